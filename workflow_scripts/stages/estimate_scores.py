"""Scores of each run, and of each arm over its runs, with truncated and unparsed shares and lengths beside them."""

from typing import Any

import numpy as np
from scipy.stats import t

from workflow_scripts import tables
from workflow_scripts.stages._analysis import BASE, Analysis, share, write
from workflow_scripts.stages._command import Job, run

LIBRARIES = ("scipy",)


def _beside(cells: list[Any]) -> dict[str, Any]:
    return {
        "problems": sum(len(cell) for cell in cells),
        "samples": min(cell["samples"].min() for cell in cells),
        "truncated_share": share(cells, "truncated"),
        "unparsed_share": share(cells, "unparsed"),
        "mean_completion_tokens": share(cells, "completion_tokens"),
    }


def _rows(analysis: Analysis, name: str, view: str, step: int, pass_at: int) -> list[dict[str, Any]]:
    """A row per run, and one for the arm: mean over its runs with the t interval that re-training allows."""
    benchmarks = analysis.views[view]
    arm = analysis.arm(name, benchmarks, step, pass_at)
    if not arm.seeds:
        return []
    cells = analysis.runs(name, benchmarks, step)
    shared = {"arm": name, "step": step, "benchmark": view, "pass_at": pass_at}
    rows = [
        {
            **shared,
            "level": "run",
            "seed": seed,
            "score": arm.run_means[i],
            "se": np.sqrt(arm.evaluation_variance[i]),
            "seeds": 1,
            **_beside(cells[seed]),
        }
        for i, seed in enumerate(arm.seeds)
    ]
    seeds, mean = len(arm.seeds), float(arm.run_means.mean())
    se = np.sqrt(arm.run_variance / seeds)
    half = t.ppf(1 - analysis.settings["alpha"] / 2, seeds - 1) * se if se > 0 else np.nan
    over_runs = _beside([cell for run_cells in cells.values() for cell in run_cells])
    rows.append(
        {
            **shared,
            "level": "arm",
            "score": mean,
            "se": se,
            "ci_low": mean - half,
            "ci_high": mean + half,
            "seeds": seeds,
            **over_runs,
            "problems": rows[0]["problems"],
        }
    )
    return rows


def main(job: Job) -> None:
    analysis = Analysis(job)
    selection = job.settings.get("selection")
    if selection:  # not reported, but the scores by which a checkpoint was chosen must be there to look at
        analysis.views[selection] = [selection]
    rows = [
        row
        for arm in (BASE, *analysis.arms)
        for view in analysis.views
        for step in analysis.steps(arm)
        for pass_at in analysis.pass_at
        for row in _rows(analysis, arm, view, step, pass_at)
    ]
    write(job, "scores", tables.SCORES, rows)


if __name__ == "__main__":
    run(main, LIBRARIES)
