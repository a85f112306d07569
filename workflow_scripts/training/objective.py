"""What one run optimises, and how its rollout batches are made and used."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from workflow_scripts.objectives import advantage as advantages
from workflow_scripts.objectives import aggregation, ratio
from workflow_scripts.objectives.aggregation import Step
from workflow_scripts.objectives.bounds import Bounds, Group
from workflow_scripts.sampling import Options


@dataclass(frozen=True)
class Objective:
    """The five axes of one arm as callables, and the KL penalty.

    bounds: Group -> Bounds, or None where the surrogate has none; surrogate: (ratio, advantage, log_prob, bounds) ->
    loss; scale: reward (G,k) -> advantage (G,k).
    """

    ratio: str
    bounds: Callable[[Group], Bounds] | None
    surrogate: Callable[..., Tensor]
    scale: Callable[[Tensor], Tensor]
    focal_gamma: float | None
    aggregation: str
    beta: float
    kl: str | None

    def log_ratio(self, token_log_ratio: Tensor, mask: Tensor) -> Tensor:
        """(B,T) -> (B,T) or (B,1)."""
        return {"token": ratio.token, "sequence": ratio.sequence}[self.ratio](token_log_ratio, mask)

    def advantage(self, reward: Tensor, correct: Tensor) -> Tensor:
        """reward (G,k), correct (G,1) -> (G,k)."""
        value = self.scale(reward)
        return value if self.focal_gamma is None else advantages.focal(value, correct, focal_gamma=self.focal_gamma)

    def aggregate(self, loss: Tensor, mask: Tensor, step: Step) -> Tensor:
        """Share of this micro-batch in the loss of its optimizer step."""
        function = {
            "token-mean": aggregation.token_mean,
            "token-mean-step": aggregation.token_mean_step,
            "seq-mean-token-mean": aggregation.seq_mean_token_mean,
            "seq-mean-token-sum-norm": aggregation.seq_mean_token_sum_norm,
        }[self.aggregation]
        return function(loss, mask, step)


@dataclass(frozen=True)
class RolloutPlan:
    """How a rollout batch is made and used: prompts x group_size rollouts, in minibatches, for some epochs."""

    prompts: int
    group_size: int
    minibatches: int
    epochs: int
    options: Options
    prompt_family: str
    date: str | None  # that a chat template is told, YYYY-MM-DD; None where the family uses none
    success_threshold: float

    @property
    def updates_per_batch(self) -> int:
        """Optimizer updates per rollout batch."""
        return self.minibatches * self.epochs

    def trl_arguments(self, micro_batch: int, processes: int) -> dict[str, Any]:
        """TRL's batch arguments: the largest micro-batch that divides a process's minibatch and is not above
        `micro_batch`."""
        local = self.prompts * self.group_size // self.minibatches // processes
        per_device = max(n for n in range(1, min(micro_batch, local) + 1) if local % n == 0)
        accumulation = local // per_device
        return {
            "per_device_train_batch_size": per_device,
            "gradient_accumulation_steps": accumulation,
            "steps_per_generation": self.minibatches * accumulation,
            "num_iterations": self.epochs,
            "num_generations": self.group_size,
        }
