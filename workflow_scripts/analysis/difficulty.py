"""Where an effect lies: arms against the baseline, problems split by the base model's solve rate and difficulty."""

import numpy as np
from numpy.typing import NDArray

from workflow_scripts.analysis.comparison import BASE, Analysis, Row
from workflow_scripts.statistics.effects import NotAssessable, estimate

EDGES = (0.0, 0.25, 0.5, 0.75, 1.0)
RATES = ("0", "(0, 0.25]", "(0.25, 0.5]", "(0.5, 0.75]", "(0.75, 1]")


Bins = tuple[tuple[str, ...], NDArray[np.int64]]  # names in order, and the place of each problem's (-1: in none)


def _solve_rate_bins(analysis: Analysis, benchmark: str) -> Bins | None:
    """Bins of the base model's share of correct samples, over all its repeats; None without a base."""
    cells = [cell for (cell,) in analysis.runs(BASE, [benchmark], 0).values()]
    if not cells:
        return None
    correct, samples = (np.sum([getattr(cell, name) for cell in cells], axis=0) for name in ("correct", "samples"))
    return RATES, np.searchsorted(EDGES, correct / samples)


def _difficulty_bins(analysis: Analysis, benchmark: str, difficulty: dict[str, int]) -> Bins:
    values = [difficulty.get(problem) for problem in analysis.problem_ids(benchmark)]
    levels = sorted({value for value in values if value is not None})
    places = [-1 if value is None else levels.index(value) for value in values]
    return tuple(map(str, levels)), np.array(places, dtype=np.int64)


def _row(analysis: Analysis, arm: str, benchmark: str, pass_at: int, problems: NDArray[np.bool_]) -> Row:
    """One arm on some problems, (N,)."""
    step = analysis.endpoint_step(arm)
    treatment = analysis.arm(arm, [benchmark], step, pass_at)
    baseline = analysis.arm(analysis.baseline, [benchmark], analysis.baseline_step(arm, step), pass_at)
    row: Row = {"arm": arm, "baseline": analysis.baseline, "benchmark": benchmark, "step": step}
    row |= {"pass_at": pass_at, "problems": int(problems.sum())}
    if not (treatment.seeds and baseline.seeds and row["problems"]):
        return row
    treatment, baseline = treatment.subset(problems), baseline.subset(problems)
    row |= {"score": treatment.run_means.mean(), "baseline_score": baseline.run_means.mean()}
    row["delta"] = row["score"] - row["baseline_score"]
    try:
        result = estimate(treatment, baseline, "benchmark", analysis.settings["alpha"])
    except NotAssessable:
        return row
    low, high = result.bounded_interval(analysis.settings["alpha"])
    return {**row, "se": result.se, "ci_low": low, "ci_high": high}


def rows(analysis: Analysis, difficulty: dict[str, int]) -> list[Row]:
    """All rows. difficulty: problem_id -> level, where the source gives one."""
    found: list[Row] = []
    for benchmark in analysis.benchmarks:
        splits = {
            "base_solve_rate": _solve_rate_bins(analysis, benchmark),
            "difficulty": _difficulty_bins(analysis, benchmark, difficulty),
        }
        found += [
            {"split_by": split_by, "place": place, "bin": name}
            | _row(analysis, arm, benchmark, pass_at, of_problem == place)
            for split_by, bins in splits.items()
            if bins is not None
            for names, of_problem in [bins]
            for arm in analysis.others
            for pass_at in analysis.pass_at
            for place, name in enumerate(names)
        ]
    return found
