"""How rewards become advantages. reward (G,k): G groups of k rollouts -> advantage (G,k).

Raises ValueError for another shape, a group of one rollout (its advantage is always 0), and rewards that are not
finite.
"""

import torch
from torch import Tensor

STD_FLOOR = 1e-4  # as TRL


def none(reward: Tensor) -> Tensor:
    """A = R − mean(R) over the k rollouts of the group (Dr.GRPO, arXiv:2503.20783 section 3.2).

    Exactly 0 where all rewards of a group are equal: the mean of eight times 0.3 is not 0.3 in floating point, and the
    optimizer would blow up what is left.
    """
    if reward.dim() != 2 or reward.shape[1] < 2:
        raise ValueError(f"rewards are (G,k), groups of k >= 2 rollouts, not {tuple(reward.shape)}")
    if not torch.isfinite(reward).all():
        raise ValueError(f"rewards are finite, not {reward[~torch.isfinite(reward)][0].item()}")
    differ = reward.amax(1, keepdim=True) > reward.amin(1, keepdim=True)
    return (reward - reward.mean(1, keepdim=True)) * differ


def group(reward: Tensor) -> Tensor:
    """A = (R − mean(R)) / (std(R) + 10⁻⁴) over the k rollouts of the group, with the sample standard deviation, which
    divides by k − 1 (GRPO, arXiv:2402.03300 section 4.1.2)."""
    return none(reward) / (reward.std(1, keepdim=True) + STD_FLOOR)


def batch(reward: Tensor) -> Tensor:
    """A = (R − mean(R)) / (std(all R) + 10⁻⁴): mean over the group, standard deviation over the whole rollout batch."""
    return none(reward) / (reward.std() + STD_FLOOR)


def focal(advantage: Tensor, correct: Tensor, *, focal_gamma: float) -> Tensor:
    """A′ = (1 − c/k)^γ · A (F-GRPO, arXiv:2602.06717 Eq. 12, 13). correct (G,1): c, the correct rollouts of the group,
    0 to k."""
    return advantage * (1 - correct / advantage.shape[1]) ** focal_gamma
