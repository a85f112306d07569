"""What more seeds would buy: the minimum detectable effect of the primary endpoint by seeds per arm, and its price."""

from dataclasses import dataclass

import numpy as np

from workflow_scripts.analysis.comparison import Analysis, Row
from workflow_scripts.statistics import power
from workflow_scripts.statistics.arm import Arm
from workflow_scripts.statistics.effects import judge

SEEDS = (3, 5, 8, 10, 20)
FLAT = "all seeds of {} have the same score within their arm, so there is no spread between runs to plan with"
SINGLE = "no arm has two seeds, so the spread between runs is not known"
MOST = 100  # seeds per arm that anybody would train


@dataclass(frozen=True)
class Spread:
    """SD of a run's score with its degrees of freedom, the arms it is of, and the seeds that the verdict says are
    needed. Where the SD is not known it is nan, df is 0, and reason says why: nothing can be planned."""

    sd: float = np.nan
    df: float = 0
    of: tuple[str, ...] = ()
    needed: int | None = None
    reason: str | None = None


def _spread(analysis: Analysis, arms: dict[str, Arm]) -> Spread:
    """That of the comparison with the largest one, as its verdict has it: of its arm and the baseline. Where none has
    two seeds on both sides, pooled over all arms that have two. A spread of 0 is none to plan with."""
    baseline, found, flat = arms[analysis.baseline], [], []
    for arm in analysis.family:
        result = judge(arms[arm], baseline, "benchmark", analysis.alpha(arm), analysis.margin)
        if not result.estimate and min(len(arms[arm].seeds), len(baseline.seeds)) > 1:
            flat.append(arm)
        if result.estimate:
            seeds = 1 / len(arms[arm].seeds) + 1 / len(baseline.seeds)
            sd = float(np.sqrt(result.estimate.seed_variance / seeds))
            found.append(Spread(sd, result.estimate.df, (arm, analysis.baseline), result.seeds_needed))
    if found:
        return max(found, key=lambda spread: spread.sd)
    if flat:
        return Spread(reason=FLAT.format(" and ".join([analysis.baseline, *flat])))
    pooled = {name: arm for name, arm in arms.items() if len(arm.seeds) > 1}
    df = sum(len(arm.seeds) - 1 for arm in pooled.values())
    if not df:
        return Spread(reason=SINGLE)
    variance = sum((len(arm.seeds) - 1) * arm.run_variance for arm in pooled.values()) / df
    if variance == 0:
        return Spread(reason=FLAT.format(" and ".join(pooled)))
    return Spread(float(np.sqrt(variance)), df, tuple(pooled))


def rows(analysis: Analysis, seconds: float) -> list[Row]:
    """A row per number of seeds. seconds: of one run, to train and to sample; nan where that is not known."""
    view, pass_at = analysis.views[analysis.endpoint_view], analysis.endpoint_pass_at
    arms = {arm: analysis.arm(arm, view, analysis.endpoint_step(arm), pass_at) for arm in analysis.arms}
    spread = _spread(analysis, arms)
    sd, upper = spread.sd, power.upper_bound(spread.sd, spread.df) if spread.df else np.nan
    one, family = analysis.alpha_of(1), analysis.alpha_of(len(analysis.family))
    have = [len(made.seeds) for arm, made in arms.items() if analysis.seeds(arm)]
    needed = {spread.needed} if spread.needed and spread.needed <= MOST else set()
    found: list[Row] = []
    for seeds in sorted({*SEEDS, *needed, *(n for n in have if n > 1)}):
        mde_family = power.mde_in_sd(seeds, seeds, family)
        found.append(
            {
                "seeds": seeds,
                "run_sd": sd,
                "run_sd_upper80": upper,
                "run_sd_of": " and ".join(spread.of) or None,
                "mde80_one": sd * power.mde_in_sd(seeds, seeds, one),
                "mde80_family": sd * mde_family,
                "mde80_family_upper80": upper * mde_family,
                "resolves_margin": sd * mde_family <= analysis.margin if spread.df else None,
                "seconds_per_run": seconds,
                "extra_seconds": seconds * sum(max(seeds - n, 0) for n in have),
                "reason": spread.reason,
            }
        )
    return found
