"""Which problems are solved at all: solve-rate histogram, and problems gained and lost against the baseline.

Gained and lost are both positive without any effect, so the counts of a placebo stand beside them.
"""

from typing import Any

import numpy as np

from workflow_scripts import tables
from workflow_scripts.stages._analysis import BASE, Analysis, Row, write
from workflow_scripts.stages._command import Job, run

LIBRARIES = ()


def _solved(analysis: Analysis, arm: str, benchmark: str, step: int) -> tuple[list[int], Any]:
    """Seeds, and (S, N): 1 where a run solves a problem at least once."""
    runs = analysis.runs(arm, [benchmark], step)
    return list(runs), np.array([cell.correct > 0 for (cell,) in runs.values()], dtype=np.float64)


def _gained_and_lost(here: Any, there: Any, same: bool) -> tuple[Any, Any]:
    """(S,) each: problems that only a run here, or only one there, solves; means over the runs there.

    here, there: (S, N). same: they are the runs of one arm, and none is compared with itself. nan without runs there.
    """
    if len(there) <= same:
        return np.full(len(here), np.nan), np.full(len(here), np.nan)
    others = len(there) - same  # a run against itself adds nothing to the sums
    return (here @ (1 - there).T).sum(1) / others, ((1 - here) @ there.T).sum(1) / others


def _placebo(analysis: Analysis, benchmark: str, step: int) -> Row:
    """What gained and lost are without any effect: of the placebo arms, else of the baseline's own runs."""
    placebos = [arm for arm in analysis.others if analysis.roles[arm] == "placebo"]
    counts = []
    for arm in placebos or [analysis.baseline]:
        own = analysis.endpoint_step(arm) if step == analysis.endpoint_step(analysis.baseline) else step
        _, here = _solved(analysis, arm, benchmark, own)
        _, there = _solved(analysis, analysis.baseline, benchmark, step)
        if len(here):
            counts.append([part.mean() for part in _gained_and_lost(here, there, arm == analysis.baseline)])
    if not counts:
        return {}
    gained, lost = np.mean(counts, axis=0)
    return {"placebo": ", ".join(placebos) or analysis.baseline, "placebo_gained": gained, "placebo_lost": lost}


def _rows(analysis: Analysis, arm: str, benchmark: str, step: int) -> list[Row]:
    """A row per run, and one with the means over the arm's runs."""
    seeds, solved = _solved(analysis, arm, benchmark, step)
    if not seeds:
        return []
    row: Row = {"arm": arm, "benchmark": benchmark, "step": step, "problems": solved.shape[1]}
    columns = {"solved": solved.sum(1)}
    repeats, of_base = _solved(analysis, BASE, benchmark, 0)
    if arm != BASE:
        _, baseline = _solved(analysis, analysis.baseline, benchmark, at := analysis.baseline_step(arm, step))
        columns["gained"], columns["lost"] = _gained_and_lost(solved, baseline, arm == analysis.baseline)
        row |= {"against": analysis.baseline, **_placebo(analysis, benchmark, at)}
    if repeats:  # each repeat against the others shows what luck does
        gained, lost = _gained_and_lost(solved, of_base, arm == BASE)
        columns |= {"gained_from_base": gained, "lost_from_base": lost}
    cells = [cell for (cell,) in analysis.runs(arm, [benchmark], step).values()]
    bins = 1 + max(int(cell.samples.max()) for cell in cells)
    histograms = [np.bincount(cell.correct, minlength=bins) for cell in cells]
    found = [
        {**row, "level": "run", "seed": seed, "seeds": 1, "solve_rate_histogram": histograms[i].tolist()}
        | {name: values[i] for name, values in columns.items()}
        for i, seed in enumerate(seeds)
    ]
    total = {"level": "arm", "seeds": len(seeds), "solve_rate_histogram": np.sum(histograms, axis=0).tolist()}
    return [*found, {**row, **total, **{name: values.mean() for name, values in columns.items()}}]


def main(job: Job) -> None:
    analysis = Analysis(job)
    rows = [
        row
        for arm in (BASE, *analysis.arms)
        for benchmark in analysis.benchmarks
        for step in analysis.steps(arm)
        for row in _rows(analysis, arm, benchmark, step)
    ]
    write(job, "coverage", tables.COVERAGE, rows)


if __name__ == "__main__":
    run(main, LIBRARIES)
