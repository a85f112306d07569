"""Which problems are solved at all: solve-rate histogram, and problems gained and lost against the baseline.

Gained and lost are both positive without any effect, so the counts of a placebo stand beside them. Runs of one seed
share their noise, and a placebo has seeds of its own: so runs are compared with those of other seeds.
"""

from typing import Any

import numpy as np

from workflow_scripts.analysis.comparison import BASE, Analysis, Row


def _solved(analysis: Analysis, arm: str, benchmark: str, step: int) -> tuple[list[int], Any]:
    """Seeds, and (S, N): 1 where a run solves a problem at least once."""
    runs = analysis.runs(arm, [benchmark], step)
    return list(runs), np.array([cell.correct > 0 for (cell,) in runs.values()], dtype=np.float64)


def _others(seeds: list[int], there: list[int], same: bool) -> Any:
    """(S, S'): 1 for the runs there that a run here is compared with: those of other seeds; where there is no such run,
    and it is not the same arm, all."""
    others = np.array([[seed != other for other in there] for seed in seeds], dtype=np.float64).reshape(len(seeds), -1)
    return others if same else np.where(others.any(axis=1, keepdims=True), others, 1.0)


def _gained_and_lost(here: Any, there: Any, others: Any) -> tuple[Any, Any]:
    """(S,) each: problems that only a run here, or only one there, solves; means over the runs there.

    here, there: (S, N). others: (S, S'), which of them count for which. nan where there is none.
    """
    if not len(there):
        return np.full(len(here), np.nan), np.full(len(here), np.nan)
    with np.errstate(invalid="ignore"):  # 0/0
        gained, lost = (
            (others * pairs).sum(1) / others.sum(1) for pairs in (here @ (1 - there).T, (1 - here) @ there.T)
        )
    return gained, lost


def _placebo(analysis: Analysis, benchmark: str, step: int) -> Row:
    """What gained and lost are without any effect: of the placebo arms, else of the baseline's own runs."""
    placebos = [arm for arm in analysis.others if analysis.roles[arm] == "placebo"]
    counts = []
    for arm in placebos or [analysis.baseline]:
        own = analysis.endpoint_step(arm) if step == analysis.endpoint_step(analysis.baseline) else step
        seeds, here = _solved(analysis, arm, benchmark, own)
        of_baseline, there = _solved(analysis, analysis.baseline, benchmark, step)
        if len(here):
            others = _others(seeds, of_baseline, arm == analysis.baseline)
            counts.append([part.mean() for part in _gained_and_lost(here, there, others)])
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
        at = analysis.baseline_step(arm, step)
        its_seeds, baseline = _solved(analysis, analysis.baseline, benchmark, at)
        others = _others(seeds, its_seeds, arm == analysis.baseline)
        columns["gained"], columns["lost"] = _gained_and_lost(solved, baseline, others)
        row |= {"against": analysis.baseline, **_placebo(analysis, benchmark, at)}
    if repeats:  # each repeat against the others shows what luck does
        others = _others(seeds, repeats, True) if arm == BASE else np.ones((len(seeds), len(repeats)))
        gained, lost = _gained_and_lost(solved, of_base, others)
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


def rows(analysis: Analysis) -> list[Row]:
    """All rows: every arm at every step on every benchmark."""
    return [
        row
        for arm in (BASE, *analysis.arms)
        for benchmark in analysis.benchmarks
        for step in analysis.steps(arm)
        for row in _rows(analysis, arm, benchmark, step)
    ]
