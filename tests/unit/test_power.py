"""Detectable effects and seeds needed, against the library, simulation and their definitions."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestIndPower

from workflow_scripts.statistics import power
from workflow_scripts.statistics.arm import Arm
from workflow_scripts.statistics.effects import judge


@pytest.mark.parametrize(
    ("seeds", "alpha", "expected"),
    [
        *[(s, 0.05, d) for s, d in {2: 5.65, 3: 3.07, 4: 2.38, 5: 2.02, 6: 1.80, 8: 1.51, 10: 1.32, 20: 0.91}.items()],
        (5, 0.05 / 4, 2.64),
    ],
)
def test_minimum_detectable_effects_in_run_sds(seeds: int, alpha: float, expected: float) -> None:
    assert power.mde_in_sd(seeds, seeds, alpha) == pytest.approx(expected, abs=0.005)
    library = TTestIndPower().solve_power(nobs1=seeds, alpha=alpha, power=0.8, ratio=1.0)
    assert power.mde_in_sd(seeds, seeds, alpha) == pytest.approx(library, rel=1e-5)


def test_detectable_effects_beyond_the_reach_of_the_library_solver() -> None:
    # Two seeds, four arms, three looks: the library's solver stops at 10.0; checked by its definition instead.
    alpha = 0.05 / 12
    effect = power.mde_in_sd(2, 2, alpha)
    assert effect > 15
    rng = np.random.default_rng(3)
    a, b = rng.normal(effect, 1, (40_000, 2)), rng.normal(0, 1, (40_000, 2))
    assert (stats.ttest_ind(a, b, axis=1).pvalue < alpha).mean() == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(("seeds", "alpha"), [((2, 5), 0.05), ((3, 5), 0.0125), ((5, 5), 0.05)])
def test_the_detectable_effect_is_found_in_four_of_five_studies(seeds: tuple[int, int], alpha: float) -> None:
    """Of the form that decides: with unequal seeds Welch's, of other degrees of freedom in every study."""
    rng = np.random.default_rng(3)
    scores = [rng.normal(0, 0.04, (200, n)) for n in seeds]
    found = []
    for one, other in zip(*scores, strict=True):
        arms = [Arm(tuple(range(len(m))), (m[:, None],), (m[:, None] * 0,)) for m in (one, other)]
        result = judge(*arms, "benchmark", alpha, 0.05)
        # Of a normal difference with this standard error, the chance that its t exceeds the quantile.
        effect = result.mde80 / result.estimate.se
        found.append(1 - stats.nct.cdf(stats.t.ppf(1 - alpha / 2, result.estimate.df), result.estimate.df, effect))
    assert found == pytest.approx([0.8] * len(found), abs=1e-4)


@pytest.mark.parametrize("run_sd", [0.005, 0.02, 0.042, 0.3])
def test_seeds_needed_are_the_first_whose_detectable_effect_is_within_the_margin(run_sd: float) -> None:
    needed = power.seeds_for_benchmark(run_sd, 0.05, 0.0125)
    assert needed is not None
    assert run_sd * power.mde_in_sd(needed, needed, 0.0125) <= 0.05
    assert needed == 2 or run_sd * power.mde_in_sd(needed - 1, needed - 1, 0.0125) > 0.05


def test_seeds_needed_for_a_population() -> None:
    assert power.seeds_for_population(0.02, 1e-3, 0.05, 0.05) is None  # 2.8 x 0.032 > 0.05: no seed removes it
    needed = power.seeds_for_population(0.03, 1e-4, 0.05, 0.05)
    assert needed is not None

    def bound(seeds: int) -> float:
        factor = (stats.t.ppf(0.975, 2 * seeds - 2) + stats.t.ppf(0.8, 2 * seeds - 2)) ** 2
        room = 0.05**2 - factor * 1e-4
        return factor * 2 * 0.03**2 / room if room > 0 else math.inf

    assert needed >= bound(needed)
    assert needed - 1 < bound(needed - 1)


@pytest.mark.parametrize(("seeds", "factor"), [(3, 1.56), (5, 1.32)])
def test_upper_bound_of_the_run_sd(seeds: int, factor: float) -> None:
    assert power.upper_bound(1.0, 2 * (seeds - 1)) == pytest.approx(factor, abs=0.005)
