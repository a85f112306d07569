"""GRPO training with the objective of an arm: a subclass of TRL's GRPOTrainer with its own loss, random streams and
records.

TRL's trainer is imported here and in `log_probs` alone. What differs from TRL 1.16: the loss comes from the five axes
in `objectives`; log-probabilities are those of `log_probs`; a rollout's random numbers come from (seed, batch, prompt
position, rollout), and the permutation into minibatches from (seed, batch), one for all processes; correct counts
travel with each rollout; everything the analysis needs is recorded.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import trl
from accelerate.utils import gather_object
from accelerate.utils.memory import should_reduce_batch_size
from torch import Tensor
from trl import GRPOTrainer
from trl.models.utils import unwrap_model_for_generation
from trl.trainer import grpo_trainer
from trl.trainer.utils import split_tensor_dict

from workflow_scripts.objectives import ratio
from workflow_scripts.objectives.aggregation import Step
from workflow_scripts.objectives.bounds import Bounds, Group
from workflow_scripts.objectives.checked import PolicyError, checked, policy_name
from workflow_scripts.sampling import EngineError, stream_seed
from workflow_scripts.sampling.prompts import encode
from workflow_scripts.sampling.transformers_engine import sample
from workflow_scripts.training import TESTED_TRL
from workflow_scripts.training.errors import Diverged, OutOfMemory, TrainingError
from workflow_scripts.training.log_probs import PolicyTrainer
from workflow_scripts.training.objective import Objective, RolloutPlan
from workflow_scripts.training.records import Recorder, gathered
from workflow_scripts.training.rewards import guarded
from workflow_scripts.training.scored import Scored, leave_out_truncated, log_ends


class Trainer(PolicyTrainer):
    """TRL's GRPOTrainer with the arm's objective. `train_dataset` has columns prompt, problem_id, answer, in the order
    in which rollout batches use them (no shuffling here)."""

    def __init__(
        self,
        *args: Any,
        objective: Objective,
        plan: RolloutPlan,
        recorder: Recorder,
        grade: Callable[[list[tuple[str, str, bool]], list[str]], list[Any]] | None,
        sample_batch: int | str,
        **kwargs: Any,
    ) -> None:
        if trl.__version__ != TESTED_TRL:
            raise TrainingError(f"trl {trl.__version__} is installed; the trainer is tested with {TESTED_TRL} alone")
        self.objective, self.plan, self.recorder = objective, plan, recorder
        self.grade, self.sample_batch = grade, sample_batch
        self._scored: Scored
        self._rewards: Tensor | None = None
        self._bounds: Bounds | None = None  # of the last micro-batch
        self._buffered_inputs: list[dict[str, Any]] | None
        own = kwargs["reward_funcs"]
        kwargs["reward_funcs"] = guarded(own) if own else self.score
        if kwargs["args"].use_vllm:
            from workflow_scripts.training.vllm_rollouts import Rollouts

            grpo_trainer.VLLMGeneration = Rollouts  # TRL takes no object of ours
        super().__init__(*args, **kwargs)
        self.mask_truncated_completions = False  # TRL would mask what ends at a stop string; see below

    # --- rollouts -----------------------------------------------------------------------------------------------------

    @property
    def _batch_index(self) -> int:
        return self.state.global_step // self.plan.updates_per_batch

    def _local_rows(self, count: int) -> range:
        """Places of this process's rollouts in the rollout batch."""
        return range(self.accelerator.process_index * count, (self.accelerator.process_index + 1) * count)

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict[str, Any]]:
        return encode(self.processing_class, prompts, self.plan.prompt_family, self.plan.date), None, {}

    def _generate_single_turn(
        self,
        prompt_ids: list[list[int]],
        images: Any,
        multimodal_fields: Any,
        num_generations: int,
        *rest: Any,
        **more: Any,
    ) -> tuple[list[list[int]], Any]:
        seeds = [
            stream_seed("rollout", self.args.seed, self._batch_index, *divmod(row, self.plan.group_size))
            for row in self._local_rows(len(prompt_ids))
        ]
        if self.use_vllm:
            self.vllm_generation.seeds = seeds
            drawn = super()._generate_single_turn(prompt_ids, images, multimodal_fields, num_generations, *rest, **more)
            return self._refuse_empty(drawn)
        with (
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gather_deepspeed3_params=self.args.ds3_gather_for_generation,
                gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
            ) as model,
            self.accelerator.autocast(),  # the policy whose ratio is taken, and each weight cast once
        ):
            try:
                drawn = sample(model, self.processing_class, prompt_ids, seeds, self.plan.options, self.sample_batch)
            except EngineError as error:
                raise TrainingError(str(error)) from None
        return self._refuse_empty(([completion.token_ids for completion in drawn], None))

    def _refuse_empty(self, drawn: tuple[list[list[int]], Any]) -> tuple[list[list[int]], Any]:
        """A completion ends with a token, the end token at least; neither TRL nor a ratio knows one without."""
        for place, ids in enumerate(drawn[0]):
            if not ids:
                prompt, rollout = divmod(self._local_rows(len(drawn[0]))[place], self.plan.group_size)
                raise TrainingError(
                    f"rollout {rollout} of prompt {prompt} in batch {self._batch_index} is empty: no token was drawn"
                )
        return drawn

    def score(
        self,
        prompts: list[str],
        completions: list[str],
        completion_ids: list[list[int]],
        answer: list[str],
        problem_id: list[str],
        **_: Any,
    ) -> list[float]:
        """The reward function given to TRL where the study names a grader: 1 for a correct answer, else 0."""
        assert self.grade is not None
        verdicts = self.grade(list(zip(completions, answer, self._scored.truncated, strict=True)), prompts)
        self._scored.statuses = [verdict.status for verdict in verdicts]
        return [1.0 if verdict.status == "correct" else 0.0 for verdict in verdicts]

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        problem_ids, ends = [row["problem_id"] for row in inputs], set(self.eos_token_ids)
        self._scored = Scored.of(completions, problem_ids, completion_ids_list, ends, self.plan.options.stop)
        rewards = super()._calculate_rewards(inputs, prompts, self._scored.completions, completion_ids_list)
        if not torch.isfinite(rewards).all():
            bad = int((~torch.isfinite(rewards)).any(1).nonzero()[0])
            raise TrainingError(
                f"training.reward: rollout {bad} of batch {self._batch_index} has reward {rewards[bad].tolist()}"
            )
        self._rewards = (rewards * self.reward_weights.to(rewards.device)).sum(1)
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        assert self._rewards is not None
        rewards = self._rewards.view(-1, self.plan.group_size)
        flat = rewards.amax(1) == rewards.amin(1)  # TRL's own share misses groups such as 8 times 0.3
        self._metrics["train"]["frac_reward_zero_std"][-1:] = [flat.float().mean().item()]
        success = rewards >= self.plan.success_threshold
        correct = success.sum(1, keepdim=True).to(rewards.dtype)
        advantage = self.objective.advantage(rewards, correct).reshape(-1)
        local = self._local_rows(len(inputs))
        place = torch.arange(len(advantage), device=advantage.device)
        rows = slice(local.start, local.stop)
        output["advantages"] = advantage[rows]
        output["group_correct"] = correct.expand_as(rewards).reshape(-1)[rows]
        output["reward"] = rewards.reshape(-1)[rows]
        output["prompt_position"] = (place // self.plan.group_size)[rows].float()
        output["rollout"] = (place % self.plan.group_size)[rows].float()
        output["truncated"] = torch.tensor(self._scored.truncated, device=advantage.device).float()
        if self.args.mask_truncated_completions:
            leave_out_truncated(output, self.accelerator)
        if self.plan.options.stop:
            tokens = torch.tensor(self._scored.tokens, device=advantage.device)
            log_ends(self._metrics["train"], *self.accelerator.gather((output["truncated"], tokens)))
        self._record_rollouts(rewards, success, correct, advantage)
        return output

    def _record_rollouts(self, rewards: Tensor, success: Tensor, correct: Tensor, advantage: Tensor) -> None:
        texts = gather_object(list(self._scored.rows()))
        values = zip(
            texts,
            rewards.reshape(-1).tolist(),
            success.reshape(-1).tolist(),
            correct.expand_as(rewards).reshape(-1).tolist(),
            advantage.tolist(),
            strict=True,
        )
        self.recorder.add_rollouts(
            [
                {
                    "batch": self._batch_index, "prompt_position": place // self.plan.group_size,
                    "rollout": place % self.plan.group_size, "problem_id": problem_id,
                    "group_size": self.plan.group_size, "group_correct": int(right), "reward": reward, "success": good,
                    "status": status, "advantage": a, "completion_tokens": tokens, "truncated": cut,
                    "completion": text,
                }
                for place, ((text, problem_id, status, cut, tokens), reward, good, right, a) in enumerate(values)
            ]
        )  # fmt: skip

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        per_batch = self.args.steps_per_generation
        if self._step % (per_batch * self.num_iterations) == 0 or self._buffered_inputs is None:
            rollouts = self._into_minibatches(self._generate_and_score_completions(generation_batch))
            self._buffered_inputs = split_tensor_dict(rollouts, per_batch)
            for inputs in self._buffered_inputs:
                inputs.update(self._log_probs_before_updates(inputs))
        return self._buffered_inputs[self._step % per_batch]

    def _into_minibatches(self, rollouts: dict[str, Any]) -> dict[str, Any]:
        """One permutation of the whole rollout batch, of which each process takes its slice of every minibatch."""
        whole = {name: self._gathered(name, value) for name, value in rollouts.items()}
        count = len(whole["advantages"])
        random = np.random.Generator(
            np.random.Philox(key=stream_seed("permutation", self.args.seed, self._batch_index))
        )
        order = torch.from_numpy(random.permutation(count)).view(self.plan.minibatches, -1)
        tokens = whole["completion_mask"].sum(1).cpu()[order].sum(1, keepdim=True).expand_as(order)
        share = order.shape[1] // self.accelerator.num_processes
        start = self.accelerator.process_index * share
        mine = order[:, start : start + share].reshape(-1).to(whole["advantages"].device)
        taken = {k: v[mine] if torch.is_tensor(v) and v.dim() > 0 else v for k, v in whole.items()}
        taken["step_tokens"] = tokens[:, start : start + share].reshape(-1).to(mine.device).float()
        return taken

    def _gathered(self, name: str, value: Any) -> Any:
        if self.accelerator.num_processes == 1 or not torch.is_tensor(value) or value.dim() == 0:
            return value
        pad = self.processing_class.pad_token_id if name.endswith("_ids") else 0
        if value.dim() > 1:
            value = self.accelerator.pad_across_processes(
                value, dim=1, pad_index=pad, pad_first=name.startswith("prompt")
            )
        return self.accelerator.gather(value)

    # --- the loss -----------------------------------------------------------------------------------------------------

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        mask = inputs["completion_mask"]
        log_prob, entropy, routers = self._log_probs(model, inputs)
        old_log_prob = inputs.get("old_per_token_logps")
        old_log_prob = log_prob.detach() if old_log_prob is None else old_log_prob
        token_log_ratio = (log_prob - old_log_prob).masked_fill(mask == 0, 0.0)
        advantage = inputs["advantages"].unsqueeze(1)
        importance = torch.exp(self.objective.log_ratio(token_log_ratio, mask))
        bounds = None
        if self.objective.bounds is not None:
            own = old_log_prob.masked_fill(mask == 0, 0.0), mask.to(advantage.dtype)
            group = Group(advantage, inputs["group_correct"].unsqueeze(1), self.plan.group_size, *own)
            try:
                self._bounds = bounds = checked(self.objective.bounds, group)
            except PolicyError as error:
                raise TrainingError(str(error)) from error
        loss = self.objective.surrogate(importance, advantage, log_prob, bounds)
        if self.use_vllm and self.vllm_importance_sampling_correction:
            loss = loss * inputs["importance_sampling_ratio"]
        kl = None
        if self.objective.beta:
            difference = inputs["ref_per_token_logps"] - log_prob
            kl = torch.exp(difference) - difference - 1
            loss = loss + self.objective.beta * (kl * importance if self.objective.kl == "k3_importance" else kl)
        step = Step(
            batch_tokens=inputs["num_items_in_batch"].float(),
            step_tokens=inputs["step_tokens"][0],
            minibatches=self.plan.minibatches,
            minibatch_rollouts=self.plan.prompts * self.plan.group_size // self.plan.minibatches,
            max_completion=self.plan.options.max_completion,
        )
        self._record(inputs, mask, token_log_ratio.detach(), importance.detach(), bounds, entropy, old_log_prob, kl)
        # accelerate averages gradients over processes; the shares must add up instead
        total = self.objective.aggregate(loss, mask, step) * self.accelerator.num_processes
        if routers is not None:  # a mean over the micro-batch, as in TRL
            total = total + self.router_aux_loss_coef * routers / self.args.gradient_accumulation_steps
        return total

    def _record(
        self,
        inputs: dict[str, Any],
        mask: Tensor,
        token_log_ratio: Tensor,
        importance: Tensor,
        bounds: Bounds | None,
        entropy: Tensor,
        old_log_prob: Tensor,
        kl: Tensor | None,
    ) -> None:
        active = inputs["advantages"] != 0
        nothing = torch.zeros_like(inputs["advantages"])
        above, below, upper, lower = nothing, nothing, nothing + torch.nan, nothing + torch.nan
        if bounds is not None:
            above, below = (
                (out * mask).sum(1) * active for out in (importance > bounds.upper, importance < bounds.lower)
            )
            upper = bounds.upper[:, 0] if bounds.upper.shape[1] == 1 else upper
            lower = bounds.lower[:, 0] if bounds.lower.shape[1] == 1 else lower
        names = ("prompt_position", "rollout", "group_correct", "reward", "truncated")
        per_rollout = {name: inputs[name] for name in names}
        self.recorder.add(
            per_rollout
            | {
                "advantage": inputs["advantages"],
                "completion_tokens": mask.sum(1),
                "mean_log_ratio": ratio.sequence(token_log_ratio, mask)[:, 0],
                "sum_abs_ratio_deviation": ((torch.exp(token_log_ratio) - 1).abs() * mask).sum(1),
                "sum_entropy": (entropy * mask).sum(1),
                "sum_kl": nothing if kl is None else (kl.detach() * mask).sum(1),
                "clipped_upper_tokens": above,
                "clipped_lower_tokens": below,
                "upper_bound": upper,
                "lower_bound": lower,
                "finite": (torch.isfinite(importance) | (mask == 0)).all(1),
            },
            token_log_ratio,
            old_log_prob,
            mask,
        )

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """transformers' `train`. Raises OutOfMemory where memory ended, TrainingError for a fault of the run."""
        try:
            return super().train(*args, **kwargs)
        except RuntimeError as error:
            if not should_reduce_batch_size(error):
                raise
            raise OutOfMemory(self.args.per_device_train_batch_size) from None

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """TRL's step, and the records of each finished optimizer step."""
        loss = super().training_step(*args, **kwargs)
        if not torch.isfinite(loss):
            if self._bounds is not None and (self._bounds.lower.isnan() | self._bounds.upper.isnan()).any():
                raise TrainingError(f"clip policy {policy_name(self.objective.bounds)}: a bound is nan")
            self.recorder.refuse_infinite(self.state.global_step + 1)
            raise Diverged(f"the loss is {loss.item()} at step {self.state.global_step + 1}")
        if self._step % self.args.gradient_accumulation_steps == 0:
            several = self.accelerator.num_processes > 1
            shares = self.recorder.end_step(self.state.global_step + 1, gathered if several else None)
            for name, value in shares.items():
                known = {"clip_ratio": self.objective.bounds is not None, "kl": bool(self.objective.beta)}
                if known.get(name.partition("/")[0], True):
                    self._metrics["train"][name].append(value)
        return loss

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        # past TRL's own method: a resumable state needs no model card
        super(GRPOTrainer, self)._save_checkpoint(model, trial)
