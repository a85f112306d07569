"""Simulated studies whose truth is known: do intervals and verdicts do what they claim?

A score is problem + arm x problem + run + rest, the rest being seed x problem and sampling. Every draw goes through
`Arm`, `estimate`, `verdict` or `judge` as a study's counts do. A cell is one design; its repetitions are made in chunks
of fixed size, each with a random stream of its own, so that results do not depend on who computes them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from workflow_scripts.statistics import effects, naive
from workflow_scripts.statistics.arm import Arm
from workflow_scripts.statistics.designs import (
    ALPHA,
    ARMS,
    BENCHMARK,
    BINOMIAL,
    COLLAPSE_SHARE,
    FALL,
    GAUSSIAN,
    HEAVY,
    LIMITS,
    LOGIT_MEAN,
    LOGIT_SD,
    LOGIT_SEED_PROBLEM,
    MARGIN,
    POPULATION,
    SAMPLES,
    SLOPE,
    DesignCell,
    oracle_width,
    verdict_shares,
)
from workflow_scripts.statistics.effects import NotAssessable, Verdict, estimate, judge
from workflow_scripts.statistics.pass_at_k import Reals, pass_at_k, pass_at_k_variance

CHUNK = 250

OURS = "armslength"
UNADJUSTED = "unadjusted 95 % intervals"
NAIVE = ("one-seed problem bootstrap", "paired over averaged seeds", "hierarchical bootstrap", "pooled t on seeds")
# How far the theory of verdicts may be off: the F test's 1 % of Welch intervals; Satterthwaite's approximation too.
APPROXIMATION = {BENCHMARK: 0.01, POPULATION: 0.02}
VERDICTS = (Verdict.BETTER, Verdict.WORSE, Verdict.NO_DIFFERENCE, Verdict.INCONCLUSIVE, Verdict.UNDERPOWERED)


@dataclass(frozen=True)
class Row:
    """One number of a cell with its Monte Carlo standard error; targets are None where nothing is claimed."""

    cell: DesignCell
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


# Draws


def _run_effects(cell: DesignCell, rng: np.random.Generator, arms: int) -> Reals:
    """(arms,S): what each run adds to all its problems."""
    shape = (arms, max(*cell.looks, cell.others or 0))
    if cell.distribution == HEAVY:
        return cell.setting.seed_sd / np.sqrt(3) * rng.standard_t(3, shape)
    made = cell.setting.seed_sd * rng.standard_normal(shape)
    return made - cell.falls(arms) * (rng.random(shape) < COLLAPSE_SHARE) if cell.distribution in FALL else made


def _binomial(cell: DesignCell, rng: np.random.Generator) -> tuple[Reals, Reals, float]:
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


def draw(cell: DesignCell, rng: np.random.Generator, arms: int = 2) -> tuple[list[Arm], dict[str, float]]:
    """Arms, the baseline first, and the true difference of the first other arm for each estimand."""
    setting, seeds = cell.setting, max(*cell.looks, cell.others or 0)
    if cell.distribution == BINOMIAL:
        score, variance, delta = _binomial(cell, rng)
        truth = {BENCHMARK: delta, POPULATION: 0.0}
    else:
        score = setting.rest * rng.standard_normal((arms, seeds, setting.problems))
        score += 0.5 + 0.25 * rng.standard_normal(setting.problems) + _run_effects(cell, rng, arms)[..., None]
        own = setting.arm_problem / np.sqrt(2) * rng.standard_normal((arms, 1, setting.problems))
        own[1:] += cell.delta
        score += own
        falls = COLLAPSE_SHARE * cell.falls(arms)
        delta = cell.delta - float(falls[1, 0] - falls[0, 0])
        truth = {BENCHMARK: float(own[1].mean() - own[0].mean()) - cell.delta + delta, POPULATION: delta}
        variance = np.broadcast_to(setting.evaluation**2, score.shape)
    names = tuple(range(seeds))
    made = [Arm(names, (s,), (v,)) for s, v in zip(score, variance, strict=True)]
    if cell.others:
        made = [arm.of_runs(range(cell.others if place else max(cell.looks))) for place, arm in enumerate(made)]
    return made, truth


# What is measured of one draw


def _coverage(cell: DesignCell, rng: np.random.Generator) -> Callable[[], Measures]:
    def measure() -> Measures:
        (baseline, treatment), truth = draw(cell, rng)
        low, high = naive.pooled_t(treatment, baseline)
        unknown = cell.distribution == BINOMIAL
        reference = {BENCHMARK: high - low, POPULATION: np.nan if unknown or cell.others else oracle_width(cell)}
        if cell.others:  # cautious by design: width is not claimed
            reference[BENCHMARK] = np.nan
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


def _alternatives(cell: DesignCell, rng: np.random.Generator) -> Callable[[], Measures]:
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


def _says(treatment: Arm, baseline: Arm, estimand: str, alpha: float) -> str:
    """The verdict; which of the inconclusive ones it is, judge would say."""
    return effects.verdict(estimate(treatment, baseline, estimand, alpha), alpha, MARGIN, np.nan, "")[0]


def _false_verdicts(cell: DesignCell, rng: np.random.Generator) -> Callable[[], Measures]:
    assert cell.estimand is not None
    estimand, looks = cell.estimand, cell.looks

    def measure() -> Measures:
        drawn, _ = draw(cell, rng, max(ARMS) + 1)
        seen = [[arm.of_runs(range(n)) for arm in drawn] for n in looks]

        def said(arm: int, alpha: float) -> bool:
            return any(_says(arms[arm], arms[0], estimand, alpha) in (Verdict.BETTER, Verdict.WORSE) for arms in seen)

        unadjusted = [said(arm, ALPHA) for arm in range(1, max(ARMS) + 1)]
        found = {}
        for count in ARMS:
            level = effects.level(ALPHA, count, len(looks))
            # What a stricter level says, the looser one says too: only those arms need to be asked again.
            found[count, estimand, OURS, "better or worse"] = float(
                any(unadjusted[arm - 1] and said(arm, level) for arm in range(1, count + 1))
            )
            found[count, estimand, UNADJUSTED, "better or worse"] = float(any(unadjusted[:count]))
        return found

    return measure


def _verdicts(cell: DesignCell, rng: np.random.Generator) -> Callable[[], Measures]:
    assert cell.estimand is not None
    estimand, looks = cell.estimand, len(cell.looks)

    def measure() -> Measures:  # of one arm at the last look
        (baseline, treatment), _ = draw(cell, rng)
        alone = judge(treatment, baseline, estimand, effects.level(ALPHA, 1, looks), MARGIN).verdict
        found: Measures = {(1, estimand, OURS, name): float(alone == name) for name in VERDICTS}
        if abs(cell.delta) == MARGIN:  # in families of more arms: is it called no difference all the same?
            for count in ARMS[1:]:
                said = _says(treatment, baseline, estimand, effects.level(ALPHA, count, looks))
                found[count, estimand, OURS, Verdict.NO_DIFFERENCE] = float(said == Verdict.NO_DIFFERENCE)
        return found

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

    cell: DesignCell
    stream: np.random.SeedSequence
    repetitions: int


def chunks(designs: Sequence[DesignCell], seed: int) -> list[Chunk]:
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


def _expected(cell: DesignCell, arms: int, quantity: str) -> float | None:
    """What theory says of a number."""
    if quantity in VERDICTS:
        known = verdict_shares(cell)[quantity] if arms == 1 else None
        return cell.power if cell.power and quantity == Verdict.BETTER else known
    return {"coverage": 1 - ALPHA, "better or worse": ALPHA}.get(quantity)


def _targets(cell: DesignCell, name: Name, count: int) -> tuple[float | None, float | None]:
    """What is claimed of a number found in so many studies. The levels are the claim's own, whatever level says."""

    def errors(share: float, times: int = 3) -> float:
        return times * float(np.sqrt(share * (1 - share) / count))

    arms, _, method, quantity = name
    if method != OURS or cell.distribution in LIMITS:
        return None, None
    if quantity == "coverage":
        return (0.935, 0.965) if cell.distribution == GAUSSIAN and not cell.others else (0.93, None)
    if quantity == "width ratio":
        return None, 1.15
    if quantity == "better or worse":
        return None, ALPHA + errors(ALPHA)
    if quantity == Verdict.NO_DIFFERENCE and abs(cell.delta) == MARGIN:
        level = ALPHA / (arms * len(cell.looks))
        return None, level + errors(level)
    expected = _expected(cell, arms, quantity) if quantity in VERDICTS else None
    if expected is None:
        return None, None
    exact = cell.estimand == BENCHMARK and quantity in (Verdict.BETTER, Verdict.WORSE)
    if exact and quantity == Verdict.BETTER and cell.delta > 0:
        allowed = errors(expected)  # power
    else:  # some 200 more shares: of so many, three errors would miss one in every few runs by chance
        allowed = errors(expected, 4) + (0.0 if exact else APPROXIMATION[cell.estimand or ""])
    return (expected - allowed if expected > allowed else None), expected + allowed


def summarise(cell: DesignCell, found: Sequence[dict[Name, Reals]]) -> list[Row]:
    """The rows of one cell from all its chunks, in their order."""
    values = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
    rows = []
    for name, each in values.items():
        arms, estimand, method, quantity = name
        each = each[~np.isnan(each)]
        if quantity == "reference" or not len(each):
            continue
        mean, se = _mean(each)
        bounds = _targets(cell, name, len(each))
        rows.append(Row(cell, *name, mean, se, _expected(cell, arms, quantity), *bounds))
        reference = values.get((arms, estimand, method, "reference"))
        if quantity == "width" and reference is not None and not np.isnan(reference).any():
            usual = float(reference.mean())
            se = _mean(values[name] - reference * mean / usual)[1] / usual
            ratio = (arms, estimand, method, "width ratio")
            rows.append(Row(cell, *ratio, mean / usual, se, None, *_targets(cell, ratio, len(each))))
    return rows
