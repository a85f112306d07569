"""The difference of two arms with an interval that knows of re-training, and the verdict that follows from it.

Two estimands: `benchmark` (would re-training show it on these problems?) and `population` (on problems like these).
Seeds are unpaired. The intervals are the balanced two-way analysis of variance with Satterthwaite's degrees of freedom
(Biometrics Bulletin 2, 1946, Eq. 17).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.special import fdtr, stdtr, stdtrit  # of F and t: what scipy.stats calls, without its cost per call

from workflow_scripts.statistics import power
from workflow_scripts.statistics.arm import Arm, sum_over_benchmarks


class Verdict(StrEnum):
    """What is said of a comparison, as tables hold it. Code compares these values and never their words."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no difference beyond the margin"
    UNDERPOWERED = "inconclusive: underpowered"
    INCONCLUSIVE = "inconclusive"
    NOT_ASSESSABLE = "not assessable"

    @property
    def decided(self) -> bool:
        """Whether the arms differ."""
        return self in (Verdict.BETTER, Verdict.WORSE)

    @property
    def inconclusive(self) -> bool:
        """Whether more data could decide."""
        return self in (Verdict.UNDERPOWERED, Verdict.INCONCLUSIVE)


NO_SPREAD = (
    "within each arm all seeds have the same score, so there is no run-to-run variation to estimate and the difference "
    "cannot be judged"
)
UNINFORMATIVE = 1.0  # width of an interval, half of all possible differences, from which it is said to be uninformative
UNEQUAL_VARIANCES = 0.01  # p of the F test below which Welch's form may widen the interval


class NotAssessable(Exception):
    """The data allow no interval; the message says why."""


@dataclass(frozen=True)
class Estimate:
    """delta = treatment - baseline, its variance in two parts (re-training, choice of problems), and the df of t."""

    delta: float
    seed_variance: float
    extra_variance: float
    df: float

    @property
    def se(self) -> float:
        """Standard error."""
        return float(np.sqrt(self.seed_variance + self.extra_variance))

    @property
    def p(self) -> float:
        """Two-sided p value of no difference."""
        return float(2 * stdtr(self.df, -abs(self.delta) / self.se))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Confidence interval at level 1 - alpha."""
        half = -stdtrit(self.df, alpha / 2) * self.se
        return float(self.delta - half), float(self.delta + half)

    def bounded_interval(self, alpha: float) -> tuple[float, float]:
        """The same interval within -1 and 1, which no difference of two scores leaves: the one to show and store."""
        low, high = self.interval(alpha)
        return max(low, -1.0), min(high, 1.0)


def _seed_variances(treatment: Arm, baseline: Arm) -> list[tuple[float, float]]:
    """(variance of the difference, df): pooled, and Welch's (Biometrika 34, 1947) where the arms are not alike."""
    (n1, n0), (v1, v0) = (len(treatment.seeds), len(baseline.seeds)), (treatment.run_variance, baseline.run_variance)
    common = ((n1 - 1) * v1 + (n0 - 1) * v0) / (n1 + n0 - 2)
    if common == 0:
        raise NotAssessable(NO_SPREAD)
    pooled = (common * (1 / n1 + 1 / n0), float(n1 + n0 - 2))
    tail = fdtr(n1 - 1, n0 - 1, v1 / v0) if v0 > 0 else 1.0
    if n1 == n0 and 2 * min(tail, 1 - tail) >= UNEQUAL_VARIANCES:
        return [pooled]
    each = np.array([v1 / n1, v0 / n0])
    return [pooled, (float(each.sum()), float(each.sum() ** 2 / (each**2 / [n1 - 1, n0 - 1]).sum()))]


def _extra_variance(treatment: Arm, baseline: Arm) -> tuple[float, float]:
    """Variance that the choice of problems adds, and its term in the denominator of Satterthwaite's df."""
    benchmarks = len(treatment.score)
    extra = denominator = 0.0
    for b in range(benchmarks):
        difference = treatment.problem_means(b) - baseline.problem_means(b)
        problems = len(difference)
        if problems < 2:
            raise NotAssessable("one problem says nothing about others")
        between = float(difference.var(ddof=1)) / problems / benchmarks**2
        within = sum(arm.residual_variance[b] / len(arm.seeds) for arm in (treatment, baseline)) / benchmarks**2
        if between > within:
            within_df = (len(treatment.seeds) + len(baseline.seeds) - 2) * (problems - 1)
            extra += between - within
            denominator += between**2 / (problems - 1) + within**2 / within_df
    return extra, denominator


def estimate(treatment: Arm, baseline: Arm, estimand: str, alpha: float) -> Estimate:
    """The difference of two arms. estimand: benchmark or population; alpha: level at which the wider form is chosen.

    Seeds unequal in number, or run variances that differ (F test, p < .01): the wider of pooled and Welch. With extra
    variance df is Satterthwaite's, but at least the smaller of the seeds' df and N - 1. Raises
    NotAssessable with fewer than two seeds in an arm, without any run variance, and for a population of one problem.
    """
    seeds = sorted((len(treatment.seeds), len(baseline.seeds)))
    if seeds[0] < 2:
        raise NotAssessable(f"an arm has fewer than 2 seeds ({len(treatment.seeds)} against {len(baseline.seeds)})")
    delta = float(treatment.run_means.mean() - baseline.run_means.mean())
    extra, denominator = _extra_variance(treatment, baseline) if estimand == "population" else (0.0, 0.0)
    # The variance that problems add is a difference of two, so the formula can fall below the df of all its parts.
    fewest = min(score.shape[1] - 1 for score in treatment.score) if extra else np.inf
    forms = [
        Estimate(delta, seeds_variance, extra, max(whole, min(df, fewest)))
        for seeds_variance, df in _seed_variances(treatment, baseline)
        for whole in [(seeds_variance + extra) ** 2 / (seeds_variance**2 / df + denominator)]
    ]
    return max(forms, key=lambda form: form.interval(alpha)[1])


def components(treatment: Arm, baseline: Arm) -> dict[str, float]:
    """Variance components of one benchmark, as unbiased estimates (they may be negative).

    var_eval: one problem's sampling variance; var_seed_problem and var_arm_problem: interactions; var_seed: a run's
    score. nan where not determined; for a macro average only var_seed is.
    """
    arms = (treatment, baseline)
    if min(len(arm.seeds) for arm in arms) < 2:
        return dict.fromkeys(("var_eval", "var_seed_problem", "var_seed", "var_arm_problem"), np.nan)
    residual = [float(sum_over_benchmarks(arm.residual_variance)) for arm in arms]
    known = {"var_seed": float(np.mean([arm.run_variance - r for arm, r in zip(arms, residual, strict=True)]))}
    if len(treatment.score) > 1:
        return {"var_eval": np.nan, "var_seed_problem": np.nan, "var_arm_problem": np.nan, **known}
    problems = treatment.score[0].shape[1]
    difference = treatment.problem_means(0) - baseline.problem_means(0)
    evaluation = float(np.mean([arm.variance[0].mean() for arm in arms]))
    within = sum(problems * r / len(arm.seeds) for arm, r in zip(arms, residual, strict=True))
    return {
        "var_eval": evaluation,
        "var_seed_problem": problems * float(np.mean(residual)) - evaluation,
        "var_arm_problem": float(difference.var(ddof=1)) - within if problems > 1 else np.nan,
        **known,
    }


def seed_correlation(treatment: Arm, baseline: Arm) -> float:
    """Correlation of the arms' run scores over common seeds; nan below three, or where a side does not vary."""
    common = sorted(set(treatment.seeds) & set(baseline.seeds))
    x, y = (arm.run_means[[arm.seeds.index(seed) for seed in common]] for arm in (treatment, baseline))
    if len(common) < 3 or min(np.ptp(x), np.ptp(y)) < 1e-10:
        return np.nan
    return float(np.corrcoef(x, y)[0, 1])


def verdict(result: Estimate, alpha: float, margin: float, mde80: float, needs: str) -> tuple[Verdict, str | None]:
    """The verdict and its reason, from the interval at 1 - alpha, equivalence (two one-sided t tests), then power.

    needs: what the reason says where the design is underpowered.
    """
    low, high = result.interval(alpha)
    if low > 0 or high < 0:
        small = "smaller than the margin" if -margin < low and high < margin else None
        return (Verdict.BETTER if low > 0 else Verdict.WORSE), small
    one_sided = -stdtrit(result.df, alpha) * result.se
    if abs(result.delta) + one_sided < margin:
        return Verdict.NO_DIFFERENCE, None
    return (Verdict.INCONCLUSIVE, None) if mde80 <= margin else (Verdict.UNDERPOWERED, needs)


@dataclass(frozen=True)
class Judgement:
    """All that is said of one comparison; estimate is None, and mde80 nan, where it is not assessable."""

    delta: float
    estimate: Estimate | None
    mde80: float
    seeds_needed: int | None
    verdict: Verdict
    reason: str | None


def judge(treatment: Arm, baseline: Arm, estimand: str, alpha: float, margin: float) -> Judgement:
    """Estimate, minimum detectable effect, seeds needed and verdict, all at the same alpha (after any correction)."""
    try:
        result = estimate(treatment, baseline, estimand, alpha)
    except NotAssessable as reason:
        known = bool(treatment.seeds and baseline.seeds)
        delta = float(treatment.run_means.mean() - baseline.run_means.mean()) if known else np.nan
        return Judgement(delta, None, np.nan, None, Verdict.NOT_ASSESSABLE, str(reason))
    seeds, other_seeds = len(treatment.seeds), len(baseline.seeds)
    run_sd = float(np.sqrt(result.seed_variance / (1 / seeds + 1 / other_seeds)))
    if estimand == "population":
        mde80 = power.mde_of_population(result.df, alpha) * result.se
        needed = power.seeds_for_population(run_sd, result.extra_variance, margin, alpha)
        otherwise = "needs more problems, not more seeds"
    else:
        mde80 = power.mde_in_se(result.df, alpha) * result.se  # of the form that decides, pooled or Welch's
        needed = power.seeds_for_benchmark(run_sd, margin, alpha)
        otherwise = f"needs more than {power.MOST_SEEDS} seeds per arm"
    needs = otherwise if needed is None else f"needs {needed} seeds per arm"
    return Judgement(result.delta, result, mde80, needed, *verdict(result, alpha, margin, mde80, needs))


def uninformative(result: Estimate, alpha: float, verdict: Verdict) -> str | None:
    """The sentence for an inconclusive verdict whose interval leaves nearly every difference possible; else None."""
    low, high = result.bounded_interval(alpha)
    if not verdict.inconclusive or high - low < UNINFORMATIVE:
        return None
    return (
        f"the interval is uninformative: it spans {100 * (high - low):.0f} of the 200 points from \N{MINUS SIGN}100 to "
        "+100 that a difference of scores can take"
    )


def level(alpha: float, arms: int, looks: int) -> float:
    """Bonferroni's alpha of one verdict: alpha shared by the compared arms and the planned looks, at least one each."""
    return alpha / (max(arms, 1) * max(looks, 1))


def adjust(p: Sequence[float], method: str, family: int | None = None) -> list[float]:
    """Adjusted p values (method `holm` or `fdr_bh`); `family` counts comparisons without a p value, taken as 1, too."""
    from statsmodels.stats.multitest import multipletests

    if not p:
        return []
    padded = [*p, *[1.0] * ((family or len(p)) - len(p))]
    return [float(value) for value in multipletests(padded, method=method)[1][: len(p)]]
