"""Importance ratios from log probabilities."""

from torch import Tensor


def token(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """log r_t = log π(y_t) − log π_old(y_t), one per token (arXiv:2402.03300 Eq. 3). log_ratio, mask (B,T) -> (B,T)."""
    return log_ratio


def sequence(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """log s = 1/T Σₜ log r_t, one per rollout (GSPO, arXiv:2507.18071 Eq. 7). log_ratio, mask (B,T) -> (B,1)."""
    return ((log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)
