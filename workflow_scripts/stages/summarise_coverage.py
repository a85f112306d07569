"""Which problems each run solves: solve-rate histogram, and problems gained and lost against the base model."""

from typing import Any

import numpy as np

from workflow_scripts import tables
from workflow_scripts.stages._analysis import BASE, Analysis, Cell, write
from workflow_scripts.stages._command import Job, run

LIBRARIES = ()


def _row(cell: Cell, base: Cell | None) -> dict[str, Any]:
    solved = cell["correct"].to_numpy() > 0
    row = {"problems": len(cell), "solved": int(solved.sum())}
    row["solve_rate_histogram"] = np.bincount(cell["correct"], minlength=cell["samples"].max() + 1).tolist()
    if base is None:
        return row
    before = base["correct"].to_numpy() > 0
    return {**row, "against": BASE, "gained": int((solved & ~before).sum()), "lost": int((before & ~solved).sum())}


def main(job: Job) -> None:
    """Against one repeat of the base model, so as many samples on both sides; other repeats show what luck does."""
    analysis = Analysis(job)
    rows: list[dict[str, Any]] = []
    for (arm, seed, step, benchmark), cell in analysis.cells.items():
        if benchmark not in analysis.benchmarks:
            continue
        repeats = analysis.runs(BASE, [benchmark], 0)
        first = min(repeats, default=None)
        base = None if first is None or (arm, seed) == (BASE, first) else repeats[first][0]
        rows.append({"arm": arm, "seed": seed, "step": step, "benchmark": benchmark, **_row(cell, base)})
    write(job, "coverage", tables.COVERAGE, rows)


if __name__ == "__main__":
    run(main, LIBRARIES)
