"""Intervals, verdicts and noise floors against scipy, statsmodels and simulation."""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.regression.mixed_linear_model import MixedLM

from workflow_scripts.commands import selftest
from workflow_scripts.objectives import bounds
from workflow_scripts.statistics import effects, noise_floor
from workflow_scripts.statistics.arm import Arm
from workflow_scripts.statistics.effects import Estimate, NotAssessable, estimate, judge, verdict


def arm(score: np.ndarray, *more: np.ndarray, first_seed: int = 0) -> Arm:
    """An arm from problem scores (S,N), one array per benchmark, without sampling variances."""
    scores = (np.asarray(score, dtype=float), *more)
    seeds = tuple(range(first_seed, first_seed + len(scores[0])))
    return Arm(seeds, scores, tuple(np.full_like(s, np.nan) for s in scores))


def one_problem(run_scores: list[float]) -> Arm:
    """An arm whose runs have these scores."""
    return arm(np.array(run_scores)[:, None])


def random_arm(rng: np.random.Generator, seeds: int, problems: int, mean: float = 0.5, run_sd: float = 0.05) -> Arm:
    """Scores with a run effect and noise of its own in every cell."""
    return arm(mean + rng.normal(0, run_sd, (seeds, 1)) + rng.normal(0, 0.2, (seeds, problems)))


# Intervals


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("alpha", [0.05, 0.0125])
def test_the_benchmark_interval_is_the_pooled_t_test_of_run_scores(seeds: int, alpha: float) -> None:
    rng = np.random.default_rng(seeds)
    a, b = random_arm(rng, seeds, 30, 0.55), random_arm(rng, seeds, 30)
    test = stats.ttest_ind(a.run_means, b.run_means)
    result = estimate(a, b, "benchmark", alpha)
    assert result.interval(alpha) == pytest.approx(tuple(test.confidence_interval(1 - alpha)))
    assert result.p == pytest.approx(test.pvalue)


@pytest.mark.parametrize(
    ("a", "b", "widened"),
    [
        ([0.50, 0.52, 0.48, 0.51, 0.49], [0.50, 0.53, 0.48, 0.51, 0.49], False),
        ([0.30, 0.70, 0.48, 0.21, 0.69], [0.500, 0.501, 0.502, 0.501, 0.500], True),
        ([0.50, 0.54, 0.46], [0.50, 0.52, 0.48, 0.51, 0.49, 0.50], True),
        ([0.50, 0.51, 0.49], [0.40, 0.60, 0.48, 0.55, 0.49, 0.50], True),
    ],
)
def test_unlike_arms_get_the_wider_of_pooled_and_welch(a: list[float], b: list[float], widened: bool) -> None:
    forms = [stats.ttest_ind(a, b, equal_var=equal).confidence_interval(0.95) for equal in (True, False)]
    expected = max(forms, key=lambda form: form.high) if widened else forms[0]
    assert estimate(one_problem(a), one_problem(b), "benchmark", 0.05).interval(0.05) == pytest.approx(tuple(expected))


def long_frame(a: Arm, b: Arm) -> pd.DataFrame:
    """Rows (arm, run, problem, y) of two arms on one benchmark."""
    rows = [
        {"arm": x, "run": f"{x}-{s}", "problem": i, "y": y}
        for x, side in ((1, a), (0, b))
        for s, scores in enumerate(side.score[0])
        for i, y in enumerate(scores)
    ]
    return pd.DataFrame(rows)


def test_the_population_standard_error_is_that_of_a_mixed_model() -> None:
    rng = np.random.default_rng(0)
    own = rng.normal(0, 0.3, 15) + rng.normal(0, 0.3, (2, 15))
    a, b = (arm(0.5 + own[x] + rng.normal(0, 0.15, (4, 1)) + rng.normal(0, 0.1, (4, 15))) for x in (1, 0))
    frame = long_frame(a, b).assign(one=1)
    frame["cell"] = frame["arm"].astype(str) + "-" + frame["problem"].astype(str)
    parts = {"run": "0 + C(run)", "problem": "0 + C(problem)", "cell": "0 + C(cell)"}
    fit = MixedLM.from_formula("y ~ arm", frame, groups="one", vc_formula=parts).fit(reml=True, method="bfgs")
    assert fit.converged
    result = estimate(a, b, "population", 0.05)
    assert result.extra_variance > 0
    assert result.se == pytest.approx(fit.bse["arm"], rel=1e-3)


def test_the_fixed_benchmark_standard_error_is_that_of_a_mixed_model_with_fixed_problems() -> None:
    rng = np.random.default_rng(7)
    a, b = (random_arm(rng, 4, 6, run_sd=0.3) for _ in range(2))
    frame = long_frame(a, b)
    fit = MixedLM.from_formula("y ~ arm * C(problem, Sum)", frame, groups="run").fit(reml=True)
    assert fit.converged
    assert estimate(a, b, "benchmark", 0.05).se == pytest.approx(fit.bse["arm"], rel=1e-4)


def test_satterthwaite_by_hand() -> None:
    # Run variances 2.5e-4, mean squares 5e-4, difference of problem means (.08, 0): see the design's formulas.
    a, b = selftest._arm(selftest.TREATMENT), selftest._arm(selftest.BASELINE)
    result = estimate(a, b, "population", 0.05)
    assert (result.seed_variance, result.extra_variance) == pytest.approx((1e-4, 1.5e-3))
    assert 1.6e-3**2 / (1e-8 / 8 + 1.6e-3**2 / 1 + 1e-4**2 / 8) < 1
    assert result.df == 1  # N - 1: not below the df of all parts
    parts = effects.components(a, b)
    assert parts["var_arm_problem"] == pytest.approx(0.0032 - 2 * 5e-4 / 5)
    assert parts["var_seed"] == pytest.approx(2.5e-4 - 5e-4 / 2)
    evaluation = np.mean([a.variance[0].mean(), b.variance[0].mean()])
    assert (parts["var_eval"], parts["var_seed_problem"]) == pytest.approx((evaluation, 5e-4 - evaluation))


def test_a_macro_average_adds_what_each_benchmark_adds() -> None:
    rng = np.random.default_rng(2)
    parts = {name: [rng.normal(0.5, 0.3, (1, n)) + rng.normal(0, 0.1, (3, n)) for n in (10, 25)] for name in "ab"}
    a, b = (arm(*parts[name]) for name in "ab")
    both = estimate(a, b, "population", 0.05)
    each = [estimate(arm(parts["a"][i]), arm(parts["b"][i]), "population", 0.05).extra_variance for i in range(2)]
    assert both.extra_variance == pytest.approx(sum(each) / 4)
    composite = [(parts[name][0].mean(1) + parts[name][1].mean(1)) / 2 for name in "ab"]
    assert both.seed_variance == pytest.approx(sum(c.var(ddof=1) for c in composite) / 3)


def test_no_arm_by_problem_variance_leaves_the_benchmark_interval() -> None:
    shared = np.linspace(0, 1, 20)
    a, b = (arm(shared + np.array(run)[:, None]) for run in ([0.01, 0.03, 0.02], [0.0, 0.02, 0.03]))
    fixed, population = (estimate(a, b, estimand, 0.05) for estimand in ("benchmark", "population"))
    assert (population.se, population.df) == pytest.approx((fixed.se, fixed.df))


def coverage(true_scores: Callable[[np.random.Generator], np.ndarray], estimand: str, problems: int) -> float:
    """Share of 400 experiments without a true effect, 3 seeds an arm, whose 95 % interval holds zero."""
    rng = np.random.default_rng(11)
    held = 0
    for _ in range(400):
        own = true_scores(rng)
        sides = [arm(own[x] + rng.normal(0, 0.04, (3, 1)) + rng.normal(0, 0.15, (3, problems))) for x in (0, 1)]
        low, high = estimate(*sides, estimand, 0.05).interval(0.05)
        held += low <= 0 <= high
    return held / 400


def test_the_intervals_cover_what_they_claim() -> None:
    # Three standard errors of a share of 400 around 0.95 are 0.033.
    fixed = coverage(lambda rng: np.zeros((2, 30)) + rng.random(30), "benchmark", 30)
    wide = coverage(lambda rng: rng.random(30) + rng.normal(0, 0.2, (2, 30)), "population", 30)
    blind = coverage(lambda rng: rng.random(30) + rng.normal(0, 0.2, (2, 30)), "benchmark", 30)
    assert 0.917 <= fixed <= 0.983
    assert 0.917 <= wide <= 0.983
    assert blind < 0.917  # other problems are not its question


# Not assessable


@pytest.mark.parametrize(
    ("a", "b", "estimand", "reason"),
    [
        ([0.5], [0.4, 0.5, 0.6], "benchmark", r"fewer than 2 seeds \(1 against 3\)"),
        ([0.5, 0.6], [0.4], "benchmark", r"fewer than 2 seeds \(2 against 1\)"),
        ([0.5, 0.6], [0.4, 0.5], "population", "one problem"),
        ([0.0, 0.0], [0.0, 0.0], "benchmark", "the same score"),
        ([0.3, 0.3], [0.1, 0.1], "population", "one problem"),
        ([0.1 + 0.2, 0.3], [0.1, 0.1], "benchmark", "the same score"),
    ],
)
def test_what_allows_no_interval_gets_none(a: list[float], b: list[float], estimand: str, reason: str) -> None:
    with pytest.raises(NotAssessable, match=reason):
        estimate(one_problem(a), one_problem(b), estimand, 0.05)
    found = judge(one_problem(a), one_problem(b), estimand, 0.05, 0.05)
    assert (found.verdict, found.estimate, found.seeds_needed) == ("not assessable", None, None)
    assert found.delta == pytest.approx(np.mean(a) - np.mean(b))
    assert math.isnan(found.mde80)


def test_an_arm_without_runs_has_no_difference() -> None:
    found = judge(Arm((), (), ()), one_problem([0.4, 0.5]), "benchmark", 0.05, 0.05)
    assert found.verdict == "not assessable"
    assert math.isnan(found.delta)


def test_one_arm_that_never_varies_is_still_assessable() -> None:
    found = judge(one_problem([0.0, 0.0, 0.0]), one_problem([0.40, 0.42, 0.44]), "benchmark", 0.05, 0.05)
    assert found.verdict == "worse"
    assert found.estimate is not None
    assert found.estimate.df == pytest.approx(2)  # Welch: that of the arm that varies


# Verdicts


@pytest.mark.parametrize(
    ("delta", "se", "mde80", "expected"),
    [
        (0.10, 0.010, 0.03, ("better", None)),
        (-0.10, 0.010, 0.03, ("worse", None)),
        (0.02, 0.005, 0.02, ("better", "smaller than the margin")),
        (-0.02, 0.005, 0.02, ("worse", "smaller than the margin")),
        (0.03, 0.010, 0.04, ("better", None)),  # reaches beyond the margin: 0.03 + 0.023
        (0.01, 0.010, 0.04, ("no difference beyond the margin", None)),  # 0.01 + 1.86 x 0.01 < 0.05
        (0.00, 0.0268, 0.09, ("no difference beyond the margin", None)),  # 1.8595 x 0.0268 = 0.0498
        (0.00, 0.0270, 0.09, ("inconclusive: underpowered", "needs 9 seeds per arm")),  # 0.0502
        (0.04, 0.0180, 0.04, ("inconclusive", None)),
    ],
)
def test_verdict_rule(delta: float, se: float, mde80: float, expected: tuple[str, str | None]) -> None:
    result = Estimate(delta, se**2, 0.0, 8.0)
    assert verdict(result, 0.05, 0.05, mde80, "needs 9 seeds per arm") == expected


def test_a_stricter_level_turns_better_into_inconclusive() -> None:
    a, b = one_problem([0.52, 0.56, 0.54, 0.53, 0.55]), one_problem([0.50, 0.54, 0.52, 0.51, 0.53])
    assert judge(a, b, "benchmark", 0.20, 0.05).verdict == "better"
    assert judge(a, b, "benchmark", 0.05 / 4, 0.02).verdict.startswith("inconclusive")


def test_verdict_and_drawn_interval_agree() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        a, b = (random_arm(rng, 3, 5, rng.uniform(0.45, 0.55), 0.02) for _ in range(2))
        for estimand in ("benchmark", "population"):
            found = judge(a, b, estimand, 0.0125, 0.05)
            assert found.estimate is not None
            low, high = found.estimate.interval(0.0125)
            assert (found.verdict in ("better", "worse")) == (low > 0 or high < 0) == (found.estimate.p < 0.0125)
            if found.verdict == "inconclusive: underpowered" and found.seeds_needed:
                assert found.seeds_needed > 3
                assert f"needs {found.seeds_needed} seeds" in str(found.reason)


def test_adjusted_p_values_count_comparisons_without_one() -> None:
    assert effects.adjust([0.01, 0.04], "holm") == pytest.approx([0.02, 0.04])
    assert effects.adjust([0.01, 0.04], "holm", family=4) == pytest.approx([0.04, 0.12])
    assert effects.adjust([], "holm", family=4) == []


def test_seed_correlation_needs_three_common_seeds() -> None:
    a, b = one_problem([0.1, 0.2, 0.4]), one_problem([0.3, 0.2, 0.6])
    assert effects.seed_correlation(a, b) == pytest.approx(np.corrcoef(a.run_means, b.run_means)[0, 1])
    assert math.isnan(effects.seed_correlation(a, arm(b.score[0], first_seed=1)))
    assert math.isnan(effects.seed_correlation(a, one_problem([0.3, 0.3, 0.3])))


# Noise floors


def evaluated(scores: np.ndarray, variance: float) -> Arm:
    """An arm with the same sampling variance in every cell."""
    return Arm(tuple(range(len(scores))), (scores,), (np.full_like(scores, variance),))


def test_three_repeats_flag_a_doubled_sd_in_four_cases_of_ten() -> None:
    assert noise_floor.power_of_check(3, 2.0) == pytest.approx(0.40, abs=0.01)
    assert noise_floor.power_of_check(3, 1.0) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("sd", "expected"), [(0.02, "as expected"), (0.0002, "smaller than expected"), (0.06, "larger than expected")]
)
def test_repeated_evaluations_are_compared_with_what_sampling_explains(sd: float, expected: str) -> None:
    runs = 0.5 + sd * np.array([-1.0, 0.0, 1.0])
    floor = noise_floor.evaluation(evaluated(np.repeat(runs[:, None], 100, axis=1), 0.04))
    assert (floor.sd, floor.expected_sd) == pytest.approx((sd, 0.02))
    statistic = 2 * sd**2 / 0.02**2
    assert floor.p == pytest.approx(2 * min(stats.chi2.cdf(statistic, 2), stats.chi2.sf(statistic, 2)))
    assert floor.verdict == expected


def test_evaluation_floor_without_repeats_samples_or_variance() -> None:
    for runs, variance in ((np.full((1, 4), 0.5), 0.04), (np.full((3, 4), 0.5), np.nan), (np.zeros((3, 4)), 0.0)):
        floor = noise_floor.evaluation(evaluated(runs, variance))
        assert floor.verdict == "not assessable"
        assert floor.reason
    assert noise_floor.evaluation(Arm((), (), ())).verdict == "not assessable"


def test_training_floor_says_what_more_samples_would_remove() -> None:
    rng = np.random.default_rng(5)
    wide = 0.5 + rng.normal(0, 0.2, (5, 1)) + rng.normal(0, 0.2, (5, 400))
    narrow = 0.5 + rng.normal(0, 0.2, (5, 400))
    far, near = (noise_floor.training(evaluated(scores, 0.04)) for scores in (wide, narrow))
    assert far.verdict == "only more seeds help"
    assert far.eval_share < 0.01
    assert near.eval_share > 0.25
    assert near.verdict == "more seeds or more samples help"
    low, high = (4 * far.sd**2 / stats.chi2.ppf([0.975, 0.025], 4)) ** 0.5
    assert (far.sd_low, far.sd_high) == pytest.approx((low, min(high, 0.5)))  # no score's SD is above a half
    assert noise_floor.training(evaluated(wide[:1], 0.04)).verdict == "not assessable"
    assert noise_floor.training(evaluated(np.zeros((3, 5)), 0.0)).verdict == "not assessable"


# The self-test


def test_the_selftest_passes_and_notices_a_wrong_clip(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert selftest.main([]) == 0
    assert "FAIL" not in capsys.readouterr().out
    monkeypatch.setattr(bounds, "gapo", bounds.gapo_mirrored)
    assert selftest.main([]) == 1
    assert capsys.readouterr().out.count("FAIL\n") == 7  # at c = 5 the mirrored width is the same
