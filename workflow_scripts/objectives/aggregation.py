"""How token losses become the one number of an optimizer step.

Each function gets one micro-batch, loss and mask (B,T), and the sizes of the step it belongs to, and returns that
micro-batch's share: the sum over the micro-batches of a step is the step's loss, however the step was split.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Step:
    """Sizes over all processes: completion tokens of the rollout batch and of this optimizer step, minibatches of a
    rollout batch, rollouts of a minibatch, longest completion allowed."""

    batch_tokens: Tensor
    step_tokens: Tensor
    minibatches: int
    minibatch_rollouts: int
    max_completion: int


def token_mean(loss: Tensor, mask: Tensor, step: Step) -> Tensor:
    """L = Σᵢ Σₜ ℓᵢₜ / (B/M): B completion tokens in the rollout batch, M minibatches. TRL's `dapo`; DAPO itself divides
    by the tokens of each group (arXiv:2503.14476 Eq. 8)."""
    return (loss * mask).sum() / (step.batch_tokens.clamp(min=1.0) / step.minibatches)


def token_mean_step(loss: Tensor, mask: Tensor, step: Step) -> Tensor:
    """L = Σᵢ Σₜ ℓᵢₜ / Σᵢ Tᵢ: over the completion tokens of this optimizer step."""
    return (loss * mask).sum() / step.step_tokens.clamp(min=1.0)


def seq_mean_token_mean(loss: Tensor, mask: Tensor, step: Step) -> Tensor:
    """L = 1/N Σᵢ 1/Tᵢ Σₜ ℓᵢₜ: mean over tokens, then over the N rollouts of the step (GRPO, arXiv:2402.03300 Eq. 3)."""
    return ((loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).sum() / step.minibatch_rollouts


def seq_mean_token_sum_norm(loss: Tensor, mask: Tensor, step: Step) -> Tensor:
    """L = 1/(N·T_max) Σᵢ Σₜ ℓᵢₜ with the longest completion allowed (Dr.GRPO, arXiv:2503.20783 section 3.2)."""
    return (loss * mask).sum() / (step.minibatch_rollouts * step.max_completion)
