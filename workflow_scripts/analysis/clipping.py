"""How often a clip must fire to count: one rule for the gates of a study and for `armslength audit`.

Shares are of tokens whose rollout has an advantage. What fires at the first update of a rollout batch is numerical
noise, since the importance ratio is 1 there.
"""

from enum import StrEnum

RARE = 1e-4  # fewer than 1 token in 10,000 cannot shape training
NOISE = 0.1  # share of the later clipping up to which noise at the first update is no concern
MOSTLY_NOISE = 0.5  # from this share of the later clipping on, it may all be noise


class Clip(StrEnum):
    """What a clip did."""

    NEVER = "never"  # nothing fired
    NOISE = "noise"  # the share at first updates, where the ratio is 1, is at least half of the later one
    RARE = "rare"  # it fires, beyond noise on less than RARE of the tokens
    ACTS = "acts"


def judge(first: float, later: float) -> Clip:
    """first, later: shares of tokens clipped at the first update of a rollout batch and at the updates after it."""
    if first == 0 and later == 0:
        return Clip.NEVER
    if first >= MOSTLY_NOISE * later:
        return Clip.NOISE
    return Clip.RARE if later - first < RARE else Clip.ACTS
