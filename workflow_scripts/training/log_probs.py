"""Log-probabilities of the rollouts under the trained, the old and the reference policy, computed so that they are
equal wherever the policies are.

A layer between TRL's trainer and `Trainer`. What differs from TRL 1.16: a token's position counts the tokens before it,
without padding, as it does where the rollouts are drawn; and the old and the reference log-probabilities are computed
after the rollouts have been divided into micro-batches. A matrix product may round differently with other rows, another
number of them or another width, so only the very micro-batch that the loss is computed on gives the very same numbers:
an importance ratio of exactly 1 at the first update of a rollout batch, and a KL of exactly 0 before the first step.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import use_adapter

from workflow_scripts.training.objective import Objective, RolloutPlan


def with_positions(model: Any, plain: Any) -> Callable[..., Any]:
    """The model's forward pass with positions that count attended tokens alone; plain: the model without wrappers.

    Models with absolute positions, such as GPT-2, would otherwise count the padding on the left as well, and a rollout
    would depend on the longest prompt beside it. A model that knows no position_ids finds its positions by itself.
    """
    base = plain.get_base_model() if isinstance(plain, PeftModel) else plain
    if "position_ids" not in inspect.signature(type(base).forward).parameters:
        return model

    def forward(attention_mask: Tensor, **inputs: Any) -> Any:
        positions = (attention_mask.long().cumsum(1) - 1).clamp(min=0)
        return model(attention_mask=attention_mask, position_ids=positions, **inputs)

    return forward


class PolicyTrainer(GRPOTrainer):
    """TRL's GRPOTrainer with these log-probabilities."""

    objective: Objective
    plan: RolloutPlan
    beta: float
    _deferred = False  # whether log-probabilities are left for after the division into micro-batches

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        if self._deferred:
            return None, None, None
        forward = with_positions(model, self.accelerator.unwrap_model(model))
        return super()._get_per_token_logps_and_entropies(forward, *args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's rollouts without old and reference log-probabilities. Under vLLM TRL computes old ones all the same:
        its importance correction takes the difference to those of the engine, where rounding does not matter."""
        beta, self.beta = self.beta, 0.0
        self._deferred = not (self.use_vllm and self.vllm_importance_sampling_correction)
        try:
            output = super()._generate_and_score_completions(inputs)
        finally:
            self.beta, self._deferred = beta, False
        output.pop("old_per_token_logps", None)
        return output

    def _log_probs_before_updates(self, inputs: dict[str, Any]) -> dict[str, Tensor]:
        """The old and the reference log-probabilities of a micro-batch, as far as the loss uses them. With a single
        update per rollout batch the old policy is the trained one, and the loss takes its own log-probabilities."""
        found = {}
        with torch.no_grad(), disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            if self.plan.updates_per_batch > 1:
                found["old_per_token_logps"] = self._log_probs(self.model, inputs)[0]
            if self.objective.beta:
                with self._reference() as model:
                    found["ref_per_token_logps"] = self._forward(model, inputs, compute_entropy=False)[0]
        return found

    @contextmanager
    def _reference(self) -> Iterator[Any]:
        """The reference policy: a model of its own, or the trained one without its adapter."""
        if self.ref_model is not None:
            yield self.ref_model
            return
        model = self.accelerator.unwrap_model(self.model)
        with use_adapter(model, adapter_name="ref" if "ref" in model.peft_config else None):
            yield self.model

    def _forward(
        self, model: Any, inputs: dict[str, Any], rows: Any = slice(None), compute_entropy: bool = True
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Log-probabilities and entropies (B,T) of these rows' completions, and the routers' own loss."""
        names = ("prompt_ids", "completion_ids", "prompt_mask", "completion_mask")
        prompt, completion, prompt_mask, mask = (inputs[name][rows] for name in names)
        return self._get_per_token_logps_and_entropies(
            model,
            torch.cat([prompt, completion], dim=1),
            torch.cat([prompt_mask, mask], dim=1),
            completion.size(1),
            compute_entropy=compute_entropy,
            compute_aux_loss=self.aux_loss_enabled and compute_entropy,
        )

    def _log_probs(self, model: Any, inputs: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor | None]:
        """Log-probabilities and entropies (B,T) of the completions; of a mixture of experts its routers' own loss.

        Without a KL penalty a rollout of advantage 0 adds nothing to the loss, whatever its ratio: it is recorded, and
        has no backward pass. One row always has: a step needs a graph. In the loss of routers every rollout counts.
        """

        def forward(rows: Any) -> tuple[Tensor, Tensor, Tensor | None]:
            log_prob, entropy, routers = self._forward(model, inputs, rows)
            assert entropy is not None
            return log_prob, entropy.detach(), routers

        trained = inputs["advantages"] != 0
        trained[0] |= ~trained.any()
        if self.objective.beta or self.aux_loss_enabled or trained.all():
            return forward(slice(None))
        with torch.no_grad():
            flat = forward(~trained)
        rows = torch.cat([trained.nonzero()[:, 0], (~trained).nonzero()[:, 0]]).argsort()
        log_prob, entropy = (torch.cat(pair)[rows] for pair in zip(forward(trained)[:2], flat[:2], strict=True))
        return log_prob, entropy, None
