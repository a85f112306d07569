"""How small an effect a design can see, and how many seeds it would take to see the margin.

Effects are in score units unless a name says `in_sd`: then in units of the run SD. alpha is two-sided.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import stdtrit  # quantiles of t, as scipy.stats has them
from scipy.stats import chi2, norm

POWER = 0.8
MOST_SEEDS = 1_000_000
FAR = 1000.0  # quantile of t above which the detectable effect is taken from its limit


def _power_in_se(effect_in_se: float, df: float, alpha: float) -> float:
    from statsmodels.stats.power import TTestIndPower  # slow to import, and not every stage gets here

    # The side of the effect alone: the other side adds less than 1e-8 at a power of 0.8, and is nan for large effects.
    # Two samples of two have a standard error of one SD.
    return float(TTestIndPower().power(effect_in_se, 2, alpha / 2, 1.0, df=df, alternative="larger"))


@lru_cache(1 << 14)
def mde_in_se(df: float, alpha: float) -> float:
    """Effect in standard errors that a t test with these degrees of freedom finds with 80 % power."""
    quantile = -float(stdtrit(df, alpha / 2))
    if quantile > FAR:
        # The noncentral t is nan here, and the normal part of the numerator does not count beside such an effect: what
        # is left is P(effect > quantile x sqrt(chi2/df)). At FAR the two agree to 1e-5.
        return quantile * float(np.sqrt(chi2.ppf(POWER, df) / df))
    # TTestIndPower.solve_power stops at effects of 10, which strict levels with two or three seeds exceed.
    top = 1.0
    while _power_in_se(top, df, alpha) < POWER:
        top *= 2
    return float(brentq(lambda effect: _power_in_se(effect, df, alpha) - POWER, 0.0, top))


def mde_in_sd(seeds: int, other_seeds: int, alpha: float) -> float:
    """Effect in run SDs that a pooled t test of so many runs an arm (at least 2) finds with 80 % power."""
    return mde_in_se(float(seeds + other_seeds - 2), alpha) * float(np.sqrt(1 / seeds + 1 / other_seeds))


def mde_of_population(df: float, alpha: float) -> float:
    """Effect in standard errors that a population interval finds with 80 % power: t_(1-alpha/2) + t_.8."""
    return float(stdtrit(df, POWER) - stdtrit(df, alpha / 2))


def _smallest(enough: Callable[[int], bool]) -> int | None:
    """Smallest number of seeds, from 2, that is enough; None if not even MOST_SEEDS are."""
    low, high = 1, 2
    while not enough(high):
        low, high = high, high * 2
        if low >= MOST_SEEDS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def seeds_for_benchmark(run_sd: float, margin: float, alpha: float) -> int | None:
    """Smallest number of seeds per arm at which `mde_in_sd` times run_sd is at most the margin."""
    return _smallest(lambda seeds: run_sd * mde_in_sd(seeds, seeds, alpha) <= margin)


def seeds_for_population(run_sd: float, extra_variance: float, margin: float, alpha: float) -> int | None:
    """Smallest number of seeds per arm that resolves the margin for problems like these.

    extra_variance: variance component arm x problem over the number of problems, which no seed removes; None means that
    only more problems help.
    """

    def enough(seeds: int) -> bool:
        factor = mde_of_population(2.0 * (seeds - 1), alpha) ** 2
        return factor * (2 * run_sd**2 / seeds + extra_variance) <= margin**2

    if (norm.ppf(1 - alpha / 2) + norm.ppf(POWER)) ** 2 * extra_variance >= margin**2:
        return None
    return _smallest(enough)


def upper_bound(sd: float, df: float, confidence: float = 0.8) -> float:
    """Upper confidence bound of an SD estimated with df degrees of freedom: what to plan with."""
    return float(sd * np.sqrt(df / chi2.ppf(1 - confidence, df)))
