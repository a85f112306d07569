"""Intervals that are often reported instead, for the simulation that shows what they cover.

Each takes two arms of one benchmark and gives a 95 % interval of treatment - baseline. None knows of both sources of
noise, re-training and the choice of problems, except the hierarchical bootstrap, which has too few seeds to resample.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import t

from workflow_scripts.statistics.arm import Arm
from workflow_scripts.statistics.pass_at_k import Reals

ALPHA = 0.05
RESAMPLES = 400


@dataclass(frozen=True)
class Resamples:
    """How often each problem (B,N) and each seed of the two arms (2,B,S) is drawn, over its expectation of one."""

    problems: Reals
    seeds: Reals

    @classmethod
    def draw(cls, rng: np.random.Generator, seeds: int, problems: int, count: int = RESAMPLES) -> "Resamples":
        """`count` resamples of so many seeds per arm and problems."""
        return cls(
            rng.multinomial(problems, np.full(problems, 1 / problems), count).astype(float),
            rng.multinomial(seeds, np.full(seeds, 1 / seeds), (2, count)).astype(float),
        )


@lru_cache(None)
def _quantile(df: int) -> float:
    return float(t.ppf(1 - ALPHA / 2, df))


def _percentiles(deltas: Reals) -> tuple[float, float]:
    low, high = np.quantile(deltas, [ALPHA / 2, 1 - ALPHA / 2])
    return float(low), float(high)


def pooled_t(treatment: Arm, baseline: Arm) -> tuple[float, float]:
    """Student's t interval of the run scores alone."""
    seeds = len(treatment.seeds), len(baseline.seeds)
    df = sum(seeds) - 2
    common = ((seeds[0] - 1) * treatment.run_variance + (seeds[1] - 1) * baseline.run_variance) / df
    delta = float(treatment.run_means.mean() - baseline.run_means.mean())
    half = _quantile(df) * float(np.sqrt(common * (1 / seeds[0] + 1 / seeds[1])))
    return delta - half, delta + half


def one_seed_bootstrap(treatment: Arm, baseline: Arm, resamples: Resamples) -> tuple[float, float]:
    """Percentile bootstrap over the problems of the first seed of each arm."""
    difference = treatment.score[0][0] - baseline.score[0][0]
    return _percentiles(resamples.problems @ difference / len(difference))


def averaged_paired_t(treatment: Arm, baseline: Arm) -> tuple[float, float]:
    """Paired t interval over the problems, of scores averaged over the seeds."""
    difference = treatment.problem_means(0) - baseline.problem_means(0)
    half = _quantile(len(difference) - 1) * float(np.sqrt(difference.var(ddof=1) / len(difference)))
    return float(difference.mean()) - half, float(difference.mean()) + half


def hierarchical_bootstrap(treatment: Arm, baseline: Arm, resamples: Resamples) -> tuple[float, float]:
    """Percentile bootstrap over the seeds of each arm and the problems, both arms on the same problems."""
    means = [
        (weights @ arm.score[0]) / len(arm.seeds)
        for arm, weights in zip((treatment, baseline), resamples.seeds, strict=True)
    ]
    return _percentiles(((means[0] - means[1]) * resamples.problems).mean(1))
