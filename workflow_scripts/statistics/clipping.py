"""Does a clip bind beyond numerical noise? The rule that gates, tables and `armslength audit` share.

Both shares are of tokens (of rollouts where the ratio is a sequence's). On the first update after a rollout batch the
ratio is 1, so whatever is clipped there is numerical noise, and later updates have as much noise as the first.
"""

from enum import StrEnum

LEAST_SHARE = 1e-4  # clipped tokens beyond noise; a clip that stops fewer is too rare to shape training
NOISE_DOMINATES = 0.5  # first-update share over later share from which the bounds lie inside numerical noise
NOISE_NAMED = 0.1  # the same quotient, above which noise is reported beside a clip that binds


class Binding(StrEnum):
    """What the clipped shares say."""

    NEVER = "never"  # nothing was clipped
    NOISE = "noise"  # half or more of what later updates clip is numerical noise
    RARELY = "rarely"  # beyond noise, but on too few tokens to shape training
    BINDS = "binds"


def binding(first: float, later: float) -> Binding:
    """The verdict on the share clipped at first updates and the share clipped at later ones, each 0 to 1.

    Monotone: a larger later share moves it from NOISE over RARELY to BINDS, a larger first share the other way.
    """
    if first <= 0 and later <= 0:
        return Binding.NEVER
    if first >= NOISE_DOMINATES * later:
        return Binding.NOISE
    return Binding.BINDS if later - first >= LEAST_SHARE else Binding.RARELY


def noise_is_notable(first: float, later: float) -> bool:
    """Whether the share at first updates belongs beside the later share when the clip binds."""
    return first > NOISE_NAMED * later
