"""Clip policies: between which values may the importance ratio still move the policy?

Each policy is one function from a `Group` to a `Bounds` pair, as short as its equation. Its keyword arguments are the
keys an arm of a study may set (without a default: must set). For A > 0 the upper bound acts, for A < 0 the lower one; a
bound that does not act is infinite, which makes ``clamp(ratio, lower, upper) * A`` equal PPO's ``min(r A, clip(r) A)``
in value and gradient (arXiv:1707.06347 Eq. 7).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Group:
    """What a bound may depend on, for B rollouts of T tokens.

    advantage (B,1). group_correct (B,1): how many rollouts of the group have a reward that is a success; advantages do
    not show it, since shaped rewards, scales and weights change their signs. group_size: rollouts of a prompt.
    old_log_prob (B,T): log-probabilities under the policy that drew the rollouts, 0 after the end of a completion.
    mask (B,T): 1 for the tokens of a completion, 0 after its end; all 1 if it is left out.

    T is the longest completion of one micro-batch, not of the rollout batch: a bound must not depend on T or on the
    other rows. Raises ValueError for other shapes, and for a group of one rollout.
    """

    advantage: Tensor
    group_correct: Tensor
    group_size: int
    old_log_prob: Tensor
    mask: Tensor = None  # left out: every token counts

    def __post_init__(self) -> None:
        rows = len(self.advantage)
        if self.advantage.shape != (rows, 1) or self.group_correct.shape != (rows, 1):
            shapes = f"{tuple(self.advantage.shape)} and {tuple(self.group_correct.shape)}"
            raise ValueError(f"advantage and group_correct are (B,1), not {shapes}")
        if self.old_log_prob.dim() != 2 or len(self.old_log_prob) != rows:
            raise ValueError(f"old_log_prob is (B,T) with B = {rows}, not {tuple(self.old_log_prob.shape)}")
        if self.mask is None:
            object.__setattr__(self, "mask", torch.ones_like(self.old_log_prob))
        if self.mask.shape != self.old_log_prob.shape:
            raise ValueError(
                f"mask is (B,T) as old_log_prob, {tuple(self.old_log_prob.shape)}, not {tuple(self.mask.shape)}"
            )
        if self.group_size < 2:
            raise ValueError(f"a group has at least 2 rollouts, not {self.group_size}")

    @property
    def completion_tokens(self) -> Tensor:
        """Tokens of each completion, (B,1)."""
        return self.mask.sum(1, keepdim=True)

    @property
    def position(self) -> Tensor:
        """Place of each token in its completion, from 0, (1,T)."""
        return torch.arange(self.mask.shape[1], device=self.mask.device).unsqueeze(0)


@dataclass(frozen=True)
class Bounds:
    """lower and upper bound of the ratio, each (B,1) or (B,T)."""

    lower: Tensor
    upper: Tensor


def _one_sided(group: Group, lower: float | Tensor, upper: float | Tensor) -> Bounds:
    """Upper bound where A > 0, lower bound elsewhere (A = 0 has no gradient either way)."""
    positive = group.advantage > 0
    infinite = torch.full_like(group.advantage, math.inf)
    return Bounds(
        lower=torch.where(positive, -infinite, torch.as_tensor(lower, dtype=infinite.dtype, device=infinite.device)),
        upper=torch.where(positive, torch.as_tensor(upper, dtype=infinite.dtype, device=infinite.device), infinite),
    )


def _correct(group: Group) -> Tensor:
    """The count for which a width is asked. With rewards of 0 and 1 a group without success has no advantage; a shaped
    reward gives it some, and Eq. 11 read at 0 would leave its own ceiling."""
    return group.group_correct.clamp(min=1)


def _adaptive_width(group_correct: Tensor | float, group_size: int, narrow: float, wide: float) -> Tensor | float:
    """Linear in the number of correct rollouts: `wide` at 1, `narrow` at all (arXiv:2609.00444 Eq. 11)."""
    return narrow + (wide - narrow) * (group_size - group_correct) / (group_size - 1)


def _mean_correct(group: Group, mean_correct: float | None) -> float:
    """Mean count at which a positive rollout finds its group; (2k-1)/3 if counts are uniform over 1..k-1."""
    return (2 * group.group_size - 1) / 3 if mean_correct is None else mean_correct


def ppo(group: Group, *, eps_low: float, eps_high: float) -> Bounds:
    """A > 0: r ≤ 1 + ε_high; A < 0: r ≥ 1 − ε_low. GRPO (arXiv:2402.03300 Eq. 3), DAPO's clip-higher 0.2/0.28
    (arXiv:2503.14476 Eq. 8), and GSPO with the sequence ratio (arXiv:2507.18071 Eq. 5)."""
    return _one_sided(group, 1 - eps_low, 1 + eps_high)


def dual_clip(group: Group, *, eps_low: float, eps_high: float, dual_clip_bound: float) -> Bounds:
    """As `ppo`, and A < 0: r ≤ dual_clip_bound (arXiv:1912.09729 Eq. 5; TRL's `delta`)."""
    plain = _one_sided(group, 1 - eps_low, 1 + eps_high)
    return Bounds(plain.lower, plain.upper.clamp(max=dual_clip_bound))


def gapo(group: Group, *, eps_low: float, eps_high_max: float) -> Bounds:
    """A > 0: r ≤ 1 + ε(c), ε(c) = ε_low + (ε_high_max − ε_low)·(k − c)/(k − 1); A < 0: r ≥ 1 − ε_low. The upper width
    follows how rare a correct answer was (arXiv:2609.00444 Eq. 11)."""
    width = _adaptive_width(_correct(group), group.group_size, eps_low, eps_high_max)
    return _one_sided(group, 1 - eps_low, 1 + width)


def gapo_matched(group: Group, *, eps_low: float, eps_high_max: float, mean_correct: float | None = None) -> Bounds:
    """A > 0: r ≤ 1 + ε(c̄), as wide as `gapo` on average (c̄: `mean_correct`): separates the width from the adaptivity
    (ours)."""
    width = _adaptive_width(_mean_correct(group, mean_correct), group.group_size, eps_low, eps_high_max)
    return _one_sided(group, 1 - eps_low, 1 + width)


def gapo_mirrored(group: Group, *, eps_low: float, eps_high_max: float, mean_correct: float | None = None) -> Bounds:
    """A > 0: r ≤ 1 + 2·ε(c̄) − ε(c): `gapo` with the same mean width and the wrong direction (ours)."""
    width = _adaptive_width(_correct(group), group.group_size, eps_low, eps_high_max)
    mean = _adaptive_width(_mean_correct(group, mean_correct), group.group_size, eps_low, eps_high_max)
    return _one_sided(group, 1 - eps_low, 1 + 2 * mean - width)


def gapo_proportional(group: Group, *, eps_low: float, eps_high_max: float) -> Bounds:
    """A > 0: r ≤ 1 + ε_high_max·(k − c)/(k − 1): a width proportional to the advantage 1 − c/k, without the floor that
    Eq. 11 adds (ours)."""
    width = _adaptive_width(_correct(group), group.group_size, 0.0, eps_high_max)
    return _one_sided(group, 1 - eps_low, 1 + width)


def gapo_lower(group: Group, *, eps_low: float, eps_high_max: float, eps_low_max: float) -> Bounds:
    """As `gapo`, and A < 0: r ≥ 1 − ε_low − (ε_low_max − ε_low)·(c − 1)/(k − 1): wide where wrong answers are rare
    (ours)."""
    upper = _adaptive_width(_correct(group), group.group_size, eps_low, eps_high_max)
    lower = eps_low + (eps_low_max - eps_low) * (_correct(group) - 1) / (group.group_size - 1)
    return _one_sided(group, 1 - lower, 1 + upper)


def abc(group: Group, *, eps_1: float, eps_2: float, eps_3: float, eps_4: float) -> Bounds:
    """A > 0: 1 − ε₂ ≤ r ≤ 1 + ε₁; A ≤ 0: 1 − ε₄ ≤ r ≤ 1 + ε₃ (arXiv:2601.03895 Eq. 5)."""
    positive = group.advantage > 0
    one = torch.ones_like(group.advantage)
    return Bounds(
        lower=torch.where(positive, one - eps_2, one - eps_4), upper=torch.where(positive, one + eps_1, one + eps_3)
    )


def dcpo(group: Group, *, eps_low: float, eps_high: float) -> Bounds:
    """A > 0: r ≤ min(10, ½ + ½√(1 + 4·ε_high/q)); A < 0: r ≥ ½ + ½√max(1 − 4·ε_low/q, 0), q = π_old(y_t). Rare tokens
    may move further; token ratio only (arXiv:2509.02333)."""
    q = group.old_log_prob.exp()
    q = q.clamp(min=torch.finfo(q.dtype).tiny)  # of a token all but impossible: 0/0 with a width of 0
    upper = (0.5 + 0.5 * torch.sqrt(1 + 4 * eps_high / q)).clamp(max=10.0)
    lower = 0.5 + 0.5 * torch.sqrt((1 - 4 * eps_low / q).clamp(min=0.0))
    return _one_sided(group, lower, upper)
