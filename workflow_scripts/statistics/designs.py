"""The designs that are simulated, and what theory says of them: the oracle's standard error and shares of verdicts."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2, nct, norm, t

from workflow_scripts.statistics import power
from workflow_scripts.statistics.effects import Verdict
from workflow_scripts.statistics.pass_at_k import Reals

ALPHA, MARGIN, EFFECT = 0.05, 0.05, 0.05
POWER = 0.8  # what is claimed at the effect stated as detectable
BENCHMARK, POPULATION = "benchmark", "population"
SEEDS = (3, 5, 10)
ARMS = (1, 2, 3, 6)
UNEQUAL = ((2, 5), (3, 5), (5, 10))  # seeds of the baseline and of the other arm
LOOKS = ((5,), (3, 5, 8))

COLLAPSE_SHARE, COLLAPSE, DEEP_COLLAPSE = 0.1, 3.5, 7.0  # falls in run SDs: of the large setting 15 and 29 points
GAUSSIAN, HEAVY, BINOMIAL = "Gaussian", "t, 3 df", "8 samples, logit-normal"
NOISE = "Gaussian, 90 % problem noise"
BOTH, ONE, DEEP = "10 % collapse, both arms", "10 % collapse, one arm", "10 % deep collapse, one arm"
FALL = {BOTH: COLLAPSE, ONE: COLLAPSE, DEEP: DEEP_COLLAPSE}  # what a collapsed run's score loses, in run SDs
LIMITS = (DEEP, NOISE)  # shown, but beyond what is claimed

SAMPLES, LOGIT_MEAN, LOGIT_SD, LOGIT_SEED_PROBLEM, SLOPE = 8, 0.0, 1.5, 0.5, 0.17  # slope: mean p (1 - p)


@dataclass(frozen=True)
class Setting:
    """SDs of the components, in score units; run_sd is of a run's score, arm_problem of the difference of two arms."""

    problems: int
    run_sd: float
    seed_problem: float
    evaluation: float
    arm_problem: float

    @property
    def rest(self) -> float:
        """SD of one problem's score in one run around problem and run: seed x problem and sampling."""
        return float(np.hypot(self.seed_problem, self.evaluation))

    @property
    def seed_sd(self) -> float:
        """SD of what a run adds to all its problems."""
        return float(np.sqrt(self.run_sd**2 - self.rest**2 / self.problems))


LARGE = Setting(problems=500, run_sd=0.042, seed_problem=0.08, evaluation=0.125, arm_problem=0.05)
SMALL = Setting(problems=30, run_sd=0.031, seed_problem=0.06, evaluation=0.08, arm_problem=0.105)
NOISY = replace(SMALL, evaluation=0.15, arm_problem=0.0)  # nearly all of a run's variance comes from its problems
SETTINGS = tuple(replace(s, arm_problem=x) for s in (LARGE, SMALL) for x in (0.0, s.arm_problem))


@dataclass(frozen=True)
class DesignCell:
    """One design: what is asked, of which data, how often. looks: seeds per arm at each look.

    others: seeds of the arms beside the baseline, where they are not as many. power: share of studies claimed to find
    delta, where delta is the effect that the design states as detectable.
    """

    part: str
    setting: Setting
    distribution: str
    looks: tuple[int, ...]
    delta: float
    estimand: str | None
    repetitions: int
    others: int | None = None
    power: float | None = None

    @property
    def seeds(self) -> str:
        """Seeds at each look, in words."""
        return "/".join(map(str, self.looks)) + (f" against {self.others}" if self.others else "")

    def falls(self, arms: int) -> Reals:
        """(arms,1): by how much a run of each arm falls when it collapses; arm 0 is the baseline."""
        falls = np.full((arms, 1), FALL.get(self.distribution, 0.0) * self.setting.run_sd)
        if self.distribution in (ONE, DEEP):
            falls[0] = 0.0
        return falls


def cells(repetitions: int) -> list[DesignCell]:
    """All designs. repetitions: of the Gaussian coverage cells; the others need, and get, a part of it."""

    def times(share: float) -> int:
        return max(2, round(share * repetitions))

    noisy = [s for s in SETTINGS if s.arm_problem]
    quiet = [s for s in SETTINGS if not s.arm_problem]
    made = [DesignCell("coverage", s, GAUSSIAN, (n,), 0.0, None, repetitions) for s in SETTINGS for n in SEEDS]
    for distribution in (HEAVY, BOTH, ONE, DEEP, BINOMIAL):
        made += [DesignCell("coverage", s, distribution, (n,), 0.0, None, times(0.25)) for s in noisy for n in SEEDS]
    made += [DesignCell("coverage", NOISY, NOISE, (n,), 0.0, None, times(0.25)) for n in SEEDS]
    for fewer, more in UNEQUAL:
        made += [DesignCell("coverage", s, GAUSSIAN, (fewer,), 0.0, None, times(0.25), more) for s in noisy]
    made += [DesignCell("alternatives", s, GAUSSIAN, (n,), 0.0, POPULATION, times(0.06)) for s in noisy for n in SEEDS]
    for looks in LOOKS:
        made.append(DesignCell("false verdicts", quiet[1], GAUSSIAN, looks, 0.0, BENCHMARK, times(0.4)))
        made.append(DesignCell("false verdicts", noisy[1], GAUSSIAN, looks, 0.0, POPULATION, times(0.2)))
        made += [DesignCell("false verdicts", quiet[0], d, looks, 0.0, BENCHMARK, times(0.2)) for d in (HEAVY, BOTH)]
    for estimand, where in ((BENCHMARK, quiet), (POPULATION, noisy)):
        no_effect = [
            DesignCell("verdicts", s, GAUSSIAN, (n,), 0.0, estimand, times(0.25)) for s in where for n in SEEDS
        ]
        looked_at = DesignCell("verdicts", where[1], GAUSSIAN, LOOKS[-1], 0.0, estimand, times(0.25))
        made += no_effect
        made += [replace(cell, delta=d) for d in (MARGIN, -MARGIN) for cell in (*no_effect, looked_at)]
        made += [replace(cell, delta=detectable(cell), power=POWER) for cell in no_effect]
    return made


# What theory says


def oracle(cell: DesignCell, estimand: str) -> tuple[float, float]:
    """Standard error and Satterthwaite's df at the true variance components, for the last look of equal arms.

    With few seeds even the exact t interval is far wider than a normal one: who knows the components, but has only the
    same data's df, is what an interval can be compared with.
    """
    setting, seeds = cell.setting, cell.looks[-1]
    falls = COLLAPSE_SHARE * (1 - COLLAPSE_SHARE) * cell.falls(2)[:, 0] ** 2
    runs = (setting.run_sd**2 + falls) / seeds
    problems = setting.problems
    extra = setting.arm_problem**2 / problems if estimand == POPULATION else 0.0
    within = 2 * setting.rest**2 / seeds / problems
    denominator = float((runs**2).sum()) / (seeds - 1)
    if extra:
        denominator += (extra + within) ** 2 / (problems - 1) + within**2 / (2 * (seeds - 1) * (problems - 1))
    variance = float(runs.sum()) + extra
    return float(np.sqrt(variance)), variance**2 / denominator


@lru_cache(None)
def oracle_width(cell: DesignCell) -> float:
    """Width of the oracle's population interval."""
    se, df = oracle(cell, POPULATION)
    return float(2 * t.ppf(1 - ALPHA / 2, df) * se)


def detectable(cell: DesignCell) -> float:
    """The effect that studies of this design state as theirs, from the functions they take it from."""
    assert cell.estimand is not None
    seeds, (se, df) = cell.looks[-1], oracle(cell, cell.estimand)
    if cell.estimand == BENCHMARK:
        return power.mde_in_sd(seeds, seeds, ALPHA) * cell.setting.run_sd
    return power.mde_of_population(df, ALPHA) * se


@lru_cache(None)
def verdict_shares(cell: DesignCell) -> dict[str, float]:
    """Chance of each verdict at the last look, one arm, over the distribution of the estimated standard error.

    Better and worse are tails of the noncentral t. Exact on the benchmark but for the F test's 1 % of Welch intervals,
    and as good as Satterthwaite's df in the population. Written without the functions that judge.
    """
    assert cell.estimand is not None
    (se, df), alpha = oracle(cell, cell.estimand), ALPHA / len(cell.looks)
    two_sided, one_sided = t.ppf(1 - alpha / 2, df), t.ppf(1 - alpha, df)
    factor = two_sided + t.ppf(POWER, df)  # in standard errors, what is found with 80 % power
    if cell.estimand == BENCHMARK:
        factor = brentq(lambda effect: nct.sf(two_sided, df, effect) - POWER, 0, 3 * factor)
    points = 4000
    estimated = se * np.sqrt(chi2.ppf((np.arange(points) + 0.5) / points, df) / df)
    better = norm.sf((two_sided * estimated - cell.delta) / se)
    worse = norm.cdf((-two_sided * estimated - cell.delta) / se)
    half = np.clip(np.minimum(two_sided * estimated, MARGIN - one_sided * estimated), 0, None)
    same = norm.cdf((half - cell.delta) / se) - norm.cdf((-half - cell.delta) / se)
    rest, under = 1 - better - worse - same, factor * estimated > MARGIN
    found = {
        Verdict.BETTER: better,
        Verdict.WORSE: worse,
        Verdict.NO_DIFFERENCE: same,
        Verdict.INCONCLUSIVE: rest * ~under,
        Verdict.UNDERPOWERED: rest * under,
    }
    return {name: float(shares.mean()) for name, shares in found.items()}
