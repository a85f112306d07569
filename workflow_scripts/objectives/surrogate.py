"""What is done with ratio, bounds and advantage: the loss of each token, before aggregation.

ratio (B,T) or (B,1); bounds broadcast to it; advantage (B,1); log_prob (B,T). Returned: loss, (B,T) or (B,1).
"""

import torch
from torch import Tensor

from workflow_scripts.objectives.bounds import Bounds


def clipped(ratio: Tensor, advantage: Tensor, log_prob: Tensor, bounds: Bounds) -> Tensor:
    """ℓ = −clamp(r, lower, upper) · A: PPO and all its clip variants (arXiv:1707.06347 Eq. 7)."""
    # broadcast first: the gradient of torch.clamp fails where only the upper bound has a column for each token
    return -torch.clamp(*torch.broadcast_tensors(ratio, bounds.lower, bounds.upper)) * advantage


def cispo(ratio: Tensor, advantage: Tensor, log_prob: Tensor, bounds: Bounds | None, *, cispo_upper: float) -> Tensor:
    """ℓ = −sg(min(r, upper)) · A · log π, sg: without gradient (CISPO, arXiv:2506.13585 Eq. 4, 5). `cispo_upper` is the
    absolute cap, as in TRL."""
    return -torch.clamp(ratio, max=cispo_upper).detach() * advantage * log_prob


def sapo(
    ratio: Tensor,
    advantage: Tensor,
    log_prob: Tensor,
    bounds: Bounds | None,
    *,
    sapo_tau: tuple[float, float] = (1.0, 1.05),
) -> Tensor:
    """ℓ = −σ(τ(r − 1)) · 4/τ · A: a smooth gate in place of the clip, with τ by the sign of A (SAPO, arXiv:2511.20347
    Eq. 5, 6)."""
    positive, negative = (torch.full_like(advantage, tau) for tau in sapo_tau)
    tau = torch.where(advantage > 0, positive, negative)
    return -torch.sigmoid(tau * (ratio - 1)) * 4 / tau * advantage
