"""Noise that a difference must rise above: evaluation alone, and re-training."""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np
from scipy.stats import chi2, norm, t

from workflow_scripts.statistics.arm import Arm, sum_over_benchmarks

LEVEL = 0.95
MOST_SD = 0.5  # of anything between 0 and 1
SMALL_SHARE = 0.25  # of the run variance: below it, more evaluation samples cannot help much


class NoiseVerdict(StrEnum):
    """How far results differ without any effect, as tables hold it."""

    AS_EXPECTED = "as expected"
    LARGER = "larger than expected"
    SMALLER = "smaller than expected"
    NOT_ASSESSABLE = "not assessable"


@dataclass(frozen=True)
class Floor:
    """SD of a run's score with its 95 % interval, the SD that sampling alone explains, and the 95 % band of a
    difference between two single runs; eval_share and p where the kind of floor has them. nan where not determined."""

    sd: float
    sd_low: float
    sd_high: float
    expected_sd: float
    band: float
    p: float
    eval_share: float
    verdict: str
    reason: str | None


def sd_interval(sd: float, df: int) -> tuple[float, float]:
    """The 95 % interval of a score's SD estimated with df degrees of freedom; nan for df = 0."""
    if df < 1:
        return np.nan, np.nan
    low, high = _sd_factors(df)
    return sd * low, min(sd * high, max(sd, MOST_SD))  # an estimate may exceed what the SD itself can be


@lru_cache(None)
def _sd_factors(df: int) -> tuple[float, float]:
    low, high = (float(np.sqrt(df / chi2.ppf(q, df))) for q in ((1 + LEVEL) / 2, (1 - LEVEL) / 2))
    return low, high


def power_of_check(repeats: int, ratio: float) -> float:
    """Probability that the two-sided chi-squared check flags an SD `ratio` times the expected one."""
    df = repeats - 1
    low, high = chi2.ppf([(1 - LEVEL) / 2, (1 + LEVEL) / 2], df) / ratio**2
    return float(chi2.cdf(low, df) + chi2.sf(high, df))


def evaluation(arm: Arm) -> Floor:
    """Repeated evaluations of one fixed model (a "seed" is a repeat) against what independent sampling predicts."""
    repeats = len(arm.seeds)
    expected = float(np.sqrt(np.mean(arm.evaluation_variance))) if repeats else np.nan
    band = norm.ppf((1 + LEVEL) / 2) * np.sqrt(2) * expected
    sd = float(np.sqrt(arm.run_variance))
    p, verdict, reason = np.nan, NoiseVerdict.NOT_ASSESSABLE, None
    if repeats < 2:
        reason = "fewer than 2 evaluations of the base model: nothing to compare"
    elif np.isnan(expected):
        reason = "fewer samples than 2 pass_at: the sampling variance is not known"
    elif expected == 0:
        reason = "the base model solves all samples or none: no sampling variance is expected"
    else:
        statistic = (repeats - 1) * sd**2 / expected**2
        p = float(2 * min(chi2.cdf(statistic, repeats - 1), chi2.sf(statistic, repeats - 1)))
        verdict, cause = NoiseVerdict.AS_EXPECTED, ""
        if p < 1 - LEVEL:
            too_large = sd > expected
            verdict = NoiseVerdict.LARGER if too_large else NoiseVerdict.SMALLER
            cause = "nondeterminism or grader time-outs? " if too_large else "shared sampling seeds? "
        reason = (
            f"{cause}{repeats} repeats would flag a doubled SD in {100 * power_of_check(repeats, 2.0):.0f} % of cases"
        )
    return Floor(sd, *sd_interval(sd, repeats - 1), expected, float(band), p, np.nan, verdict, reason)


def training(arm: Arm) -> Floor:
    """Seed-to-seed SD within one arm, and how much of its square more evaluation samples could remove.

    The band is the t interval of one more pair of runs: with few seeds the SD itself is uncertain.
    """
    seeds, sd = len(arm.seeds), float(np.sqrt(arm.run_variance))
    if seeds < 2 or sd == 0:
        reason = "fewer than 2 seeds: no SD" if seeds < 2 else "all seeds have the same score"
        nan = np.nan
        return Floor(sd, nan, nan, nan, nan, nan, nan, NoiseVerdict.NOT_ASSESSABLE, reason)
    share = min(float(sum_over_benchmarks(arm.residual_variance)) / sd**2, 1.0)
    expected = float(np.sqrt(np.mean(arm.evaluation_variance)))
    band = min(float(t.ppf((1 + LEVEL) / 2, seeds - 1) * np.sqrt(2) * sd), 1.0)  # no scores differ by more
    verdict, reason = (
        "only more seeds help",
        f"more samples would remove at most {100 * share:.0f} % of the run variance",
    )
    if np.isnan(share):
        verdict, reason = "not split", "one problem: sampling and training noise cannot be told apart"
    elif share > SMALL_SHARE:
        verdict = "more seeds or more samples help"
    return Floor(sd, *sd_interval(sd, seeds - 1), expected, band, np.nan, share, verdict, reason)
