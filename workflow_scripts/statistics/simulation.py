"""Simulated studies whose truth is known: do intervals and verdicts do what they claim?

A score is problem + arm x problem + run + rest, the rest being seed x problem and sampling. Every draw goes through
`Arm`, `estimate`, `verdict` or `judge` as a study's counts do. A cell is one design; its repetitions are made in chunks
of fixed size, each with a random stream of its own, so that results do not depend on who computes them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import expit
from scipy.stats import nct, t

from workflow_scripts.statistics import naive
from workflow_scripts.statistics.arm import Arm
from workflow_scripts.statistics.effects import (
    BETTER,
    INCONCLUSIVE,
    NO_DIFFERENCE,
    UNDERPOWERED,
    WORSE,
    NotAssessable,
    estimate,
    judge,
    verdict,
)
from workflow_scripts.statistics.pass_at_k import Reals, pass_at_k, pass_at_k_variance

ALPHA, MARGIN, EFFECT = 0.05, 0.05, 0.05
BENCHMARK, POPULATION = "benchmark", "population"
SEEDS = (3, 5, 10)
ARMS = (1, 2, 3, 6)
LOOKS = ((5,), (3, 5, 8))
CHUNK = 250

OURS = "armslength"
UNADJUSTED = "unadjusted 95 % intervals"
NAIVE = ("one-seed problem bootstrap", "paired over averaged seeds", "hierarchical bootstrap", "pooled t on seeds")

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
class Cell:
    """One design: what is asked, of which data, how often. looks: seeds per arm at each look."""

    part: str
    setting: Setting
    distribution: str
    looks: tuple[int, ...]
    delta: float
    estimand: str | None
    repetitions: int


@dataclass(frozen=True)
class Row:
    """One number of a cell with its Monte Carlo standard error; targets are None where nothing is claimed."""

    cell: Cell
    arms: int
    estimand: str
    method: str
    quantity: str
    value: float
    mc_se: float
    expected: float | None = None
    target_low: float | None = None
    target_high: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the value lies within its target."""
        if self.target_low is None and self.target_high is None:
            return None
        low = -np.inf if self.target_low is None else self.target_low
        return bool(low <= self.value <= (np.inf if self.target_high is None else self.target_high))


Name = tuple[int, str, str, str]  # arms, estimand, method, quantity
Measures = dict[Name, float]


def cells(repetitions: int) -> list[Cell]:
    """All designs. repetitions: of the Gaussian coverage cells; the others need, and get, a part of it."""

    def times(share: float) -> int:
        return max(2, round(share * repetitions))

    noisy = [s for s in SETTINGS if s.arm_problem]
    quiet = [s for s in SETTINGS if not s.arm_problem]
    made = [Cell("coverage", s, GAUSSIAN, (n,), 0.0, None, repetitions) for s in SETTINGS for n in SEEDS]
    for distribution in (HEAVY, BOTH, ONE, DEEP, BINOMIAL):
        made += [Cell("coverage", s, distribution, (n,), 0.0, None, times(0.25)) for s in noisy for n in SEEDS]
    made += [Cell("coverage", NOISY, NOISE, (n,), 0.0, None, times(0.25)) for n in SEEDS]
    made += [Cell("alternatives", s, GAUSSIAN, (n,), 0.0, POPULATION, times(0.06)) for s in noisy for n in SEEDS]
    for looks in LOOKS:
        made.append(Cell("false verdicts", quiet[1], GAUSSIAN, looks, 0.0, BENCHMARK, times(0.4)))
        made.append(Cell("false verdicts", noisy[1], GAUSSIAN, looks, 0.0, POPULATION, times(0.2)))
        made += [Cell("false verdicts", quiet[0], d, looks, 0.0, BENCHMARK, times(0.2)) for d in (HEAVY, BOTH)]
    made += [
        Cell("verdicts", s, GAUSSIAN, (n,), effect, estimand, times(0.1))
        for estimand, where in ((BENCHMARK, quiet), (POPULATION, noisy))
        for s in where
        for effect in (0.0, EFFECT)
        for n in SEEDS
    ]
    return made


# Draws


def _falls(cell: Cell, arms: int) -> Reals:
    """(arms,1): by how much a run of each arm falls when it collapses; arm 0 is the baseline."""
    falls = np.full((arms, 1), FALL.get(cell.distribution, 0.0) * cell.setting.run_sd)
    if cell.distribution in (ONE, DEEP):
        falls[0] = 0.0
    return falls


def _run_effects(cell: Cell, rng: np.random.Generator, arms: int) -> Reals:
    """(arms,S): what each run adds to all its problems."""
    shape = (arms, max(cell.looks))
    if cell.distribution == HEAVY:
        return cell.setting.seed_sd / np.sqrt(3) * rng.standard_t(3, shape)
    effects = cell.setting.seed_sd * rng.standard_normal(shape)
    return effects - _falls(cell, arms) * (rng.random(shape) < COLLAPSE_SHARE) if cell.distribution in FALL else effects


def _binomial(cell: Cell, rng: np.random.Generator) -> tuple[Reals, Reals, float]:
    """Scores and sampling variances (2,S,N) of counts, and the true difference on these problems."""
    setting, seeds = cell.setting, max(cell.looks)
    arm_sd, seed_sd = setting.arm_problem / np.sqrt(2) / SLOPE, setting.seed_sd / SLOPE
    own = LOGIT_MEAN + LOGIT_SD * rng.standard_normal(setting.problems)
    own = own + arm_sd * rng.standard_normal((2, 1, setting.problems))
    logits = own + seed_sd * rng.standard_normal((2, seeds, 1))
    logits += LOGIT_SEED_PROBLEM * rng.standard_normal(logits.shape)
    correct = rng.binomial(SAMPLES, expit(logits))
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    again = expit(own[..., None] + np.hypot(seed_sd, LOGIT_SEED_PROBLEM) * nodes) @ (weights / weights.sum())
    delta = float(again[1].mean() - again[0].mean())
    return pass_at_k(correct, SAMPLES, 1), pass_at_k_variance(correct, SAMPLES, 1), delta


def draw(cell: Cell, rng: np.random.Generator, arms: int = 2) -> tuple[list[Arm], dict[str, float]]:
    """Arms, the baseline first, and the true difference of the first other arm for each estimand."""
    setting, seeds = cell.setting, max(cell.looks)
    if cell.distribution == BINOMIAL:
        score, variance, delta = _binomial(cell, rng)
        truth = {BENCHMARK: delta, POPULATION: 0.0}
    else:
        score = setting.rest * rng.standard_normal((arms, seeds, setting.problems))
        score += 0.5 + 0.25 * rng.standard_normal(setting.problems) + _run_effects(cell, rng, arms)[..., None]
        own = setting.arm_problem / np.sqrt(2) * rng.standard_normal((arms, 1, setting.problems))
        own[1:] += cell.delta
        score += own
        falls = COLLAPSE_SHARE * _falls(cell, arms)
        delta = cell.delta - float(falls[1, 0] - falls[0, 0])
        truth = {BENCHMARK: float(own[1].mean() - own[0].mean()) - cell.delta + delta, POPULATION: delta}
        variance = np.broadcast_to(setting.evaluation**2, score.shape)
    names = tuple(range(seeds))
    return [Arm(names, (s,), (v,)) for s, v in zip(score, variance, strict=True)], truth


# What is measured of one draw


@lru_cache(None)
def oracle_width(cell: Cell) -> float:
    """Width of the population interval of one who knows the variance components, but has only the same data's df.

    Satterthwaite's df at the true components: with few seeds even the exact t interval is far wider than a normal one.
    """
    setting, seeds = cell.setting, cell.looks[0]
    falls = COLLAPSE_SHARE * (1 - COLLAPSE_SHARE) * _falls(cell, 2)[:, 0] ** 2
    runs = (setting.run_sd**2 + falls) / seeds
    seed_variance, problems = float(runs.sum()), setting.problems
    extra = setting.arm_problem**2 / problems
    within = 2 * setting.rest**2 / seeds / problems
    denominator = float((runs**2).sum()) / (seeds - 1)
    if extra:
        denominator += (extra + within) ** 2 / (problems - 1) + within**2 / (2 * (seeds - 1) * (problems - 1))
    variance = seed_variance + extra
    return float(2 * t.ppf(1 - ALPHA / 2, variance**2 / denominator) * np.sqrt(variance))


def _coverage(cell: Cell, rng: np.random.Generator) -> Callable[[], Measures]:
    def measure() -> Measures:
        (baseline, treatment), truth = draw(cell, rng)
        low, high = naive.pooled_t(treatment, baseline)
        unknown = cell.distribution == BINOMIAL
        reference = {BENCHMARK: high - low, POPULATION: np.nan if unknown else oracle_width(cell)}
        found = {}
        for estimand, true in truth.items():
            try:
                low, high = estimate(treatment, baseline, estimand, ALPHA).interval(ALPHA)
                covered = float(low <= true <= high)
            except NotAssessable:
                low = high = covered = np.nan
            found[1, estimand, OURS, "coverage"] = covered
            found[1, estimand, OURS, "width"] = high - low
            found[1, estimand, OURS, "reference"] = reference[estimand]
        return found

    return measure


def _alternatives(cell: Cell, rng: np.random.Generator) -> Callable[[], Measures]:
    resamples = naive.Resamples.draw(rng, cell.looks[0], cell.setting.problems)  # the same for all draws of a chunk

    def measure() -> Measures:
        (baseline, treatment), truth = draw(cell, rng)
        intervals = (
            naive.one_seed_bootstrap(treatment, baseline, resamples),
            naive.averaged_paired_t(treatment, baseline),
            naive.hierarchical_bootstrap(treatment, baseline, resamples),
            naive.pooled_t(treatment, baseline),
        )
        true = truth[POPULATION]
        return {
            (1, POPULATION, method, "coverage"): float(low <= true <= high)
            for method, (low, high) in zip(NAIVE, intervals, strict=True)
        }

    return measure


def _says_something(treatment: Arm, baseline: Arm, estimand: str, alpha: float) -> bool:
    """Whether the verdict is better or worse; which of the others it is, judge would say."""
    return verdict(estimate(treatment, baseline, estimand, alpha), alpha, MARGIN, np.nan, "")[0] in (BETTER, WORSE)


def _false_verdicts(cell: Cell, rng: np.random.Generator) -> Callable[[], Measures]:
    assert cell.estimand is not None
    estimand, looks = cell.estimand, cell.looks

    def measure() -> Measures:
        drawn, _ = draw(cell, rng, max(ARMS) + 1)
        seen = [[arm.of_runs(range(n)) for arm in drawn] for n in looks]

        def said(arm: int, alpha: float) -> bool:
            return any(_says_something(arms[arm], arms[0], estimand, alpha) for arms in seen)

        unadjusted = [said(arm, ALPHA) for arm in range(1, max(ARMS) + 1)]
        found = {}
        for count in ARMS:
            level = ALPHA / (count * len(looks))
            # What a stricter level says, the looser one says too: only those arms need to be asked again.
            found[count, estimand, OURS, "better or worse"] = float(
                any(unadjusted[arm - 1] and said(arm, level) for arm in range(1, count + 1))
            )
            found[count, estimand, UNADJUSTED, "better or worse"] = float(any(unadjusted[:count]))
        return found

    return measure


def _verdicts(cell: Cell, rng: np.random.Generator) -> Callable[[], Measures]:
    assert cell.estimand is not None
    estimand = cell.estimand

    def measure() -> Measures:
        (baseline, treatment), _ = draw(cell, rng)
        said = judge(treatment, baseline, estimand, ALPHA, MARGIN).verdict
        return {
            (1, estimand, OURS, name): float(said == name)
            for name in (BETTER, WORSE, NO_DIFFERENCE, INCONCLUSIVE, UNDERPOWERED)
        }

    return measure


PARTS = {
    "coverage": _coverage,
    "alternatives": _alternatives,
    "false verdicts": _false_verdicts,
    "verdicts": _verdicts,
}


# Chunks and what they add up to


@dataclass(frozen=True)
class Chunk:
    """So many repetitions of one cell, with their own random stream."""

    cell: Cell
    stream: np.random.SeedSequence
    repetitions: int


def chunks(designs: Sequence[Cell], seed: int) -> list[Chunk]:
    """The work, in the order of the cells; equal for equal seeds, whoever does it."""
    made = []
    for cell, stream in zip(designs, np.random.SeedSequence(seed).spawn(len(designs)), strict=True):
        sizes = [min(CHUNK, cell.repetitions - start) for start in range(0, cell.repetitions, CHUNK)]
        made += [Chunk(cell, own, size) for own, size in zip(stream.spawn(len(sizes)), sizes, strict=True)]
    return made


def run(chunk: Chunk) -> dict[Name, Reals]:
    """Every measure of every repetition of a chunk, (repetitions,) each."""
    measure = PARTS[chunk.cell.part](chunk.cell, np.random.default_rng(chunk.stream))
    found = [measure() for _ in range(chunk.repetitions)]
    return {name: np.array([one[name] for one in found]) for name in found[0]}


def _mean(values: Reals) -> tuple[float, float]:
    """Mean and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _expected_power(cell: Cell, name: str) -> float | None:
    """Chance of this verdict by theory, where a t test of run scores decides."""
    if cell.estimand != BENCHMARK or name not in (BETTER, WORSE):
        return None
    seeds = cell.looks[0]
    df, shift = 2 * (seeds - 1), cell.delta / cell.setting.run_sd * np.sqrt(seeds / 2)
    return float(nct.sf(t.ppf(1 - ALPHA / 2, df), df, shift if name == BETTER else -shift))


def _targets(cell: Cell, name: Name, se: float) -> tuple[float | None, float | None]:
    """What is claimed of a number."""
    _, _, method, quantity = name
    if method != OURS or cell.distribution in LIMITS:
        return None, None
    if quantity == "coverage":
        return (0.935, 0.965) if cell.distribution == GAUSSIAN else (0.93, None)
    if quantity == "width ratio":
        return None, 1.15
    return (None, ALPHA + 3 * se) if quantity == "better or worse" else (None, None)


def summarise(cell: Cell, found: Sequence[dict[Name, Reals]]) -> list[Row]:
    """The rows of one cell from all its chunks, in their order."""
    values = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
    rows = []
    for name, each in values.items():
        arms, estimand, method, quantity = name
        each = each[~np.isnan(each)]
        if quantity == "reference" or not len(each):
            continue
        expected = {"coverage": 1 - ALPHA, "better or worse": ALPHA}.get(quantity, _expected_power(cell, quantity))
        mean, se = _mean(each)
        rows.append(Row(cell, arms, estimand, method, quantity, mean, se, expected, *_targets(cell, name, se)))
        reference = values.get((arms, estimand, method, "reference"))
        if quantity == "width" and reference is not None and not np.isnan(reference).any():
            usual = float(reference.mean())
            se = _mean(values[name] - reference * mean / usual)[1] / usual
            bounds = _targets(cell, (arms, estimand, method, "width ratio"), se)
            rows.append(Row(cell, arms, estimand, method, "width ratio", mean / usual, se, None, *bounds))
    return rows
