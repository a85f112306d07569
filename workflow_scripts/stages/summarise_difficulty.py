"""Where an effect lies: arms against the baseline, problems split by the base model's solve rate and difficulty."""

from typing import Any

import numpy as np
import pandas as pd

from workflow_scripts import tables
from workflow_scripts.stages._analysis import BASE, Analysis, write
from workflow_scripts.stages._command import Job, run
from workflow_scripts.statistics.effects import NotAssessable, estimate

LIBRARIES = ("scipy", "statsmodels")
EDGES = (0.0, 0.25, 0.5, 0.75, 1.0)
RATES = ("0", "(0, 0.25]", "(0.25, 0.5]", "(0.5, 0.75]", "(0.75, 1]")


def _solve_rate_bins(analysis: Analysis, benchmark: str) -> pd.Series | None:
    """problem_id -> bin of the base model's share of correct samples, over all its repeats; None without a base."""
    cells = [cells[0] for cells in analysis.runs(BASE, [benchmark], 0).values()]
    if not cells:
        return None
    correct, samples = (sum(cell[column].to_numpy() for cell in cells) for column in ("correct", "samples"))
    return pd.Series(np.array(RATES)[np.searchsorted(EDGES, correct / samples)], index=cells[0]["problem_id"])


def _difficulties(paths: list[str]) -> pd.Series:
    """problem_id -> difficulty as text, of the holdout problems whose source gives one."""
    frames = [tables.read(path, tables.PROBLEMS, ["problem_id", "difficulty"]).to_pandas() for path in paths]
    known = pd.concat(frames).dropna() if frames else pd.DataFrame({"problem_id": [], "difficulty": []})
    return known.set_index("problem_id")["difficulty"].astype(int).astype(str)


def _row(analysis: Analysis, arm: str, benchmark: str, pass_at: int, problems: pd.Series) -> dict[str, Any]:
    """One arm on some problems. problems: problem_id -> is it in the bin."""
    step = analysis.endpoint_step(arm)
    treatment = analysis.arm(arm, [benchmark], step, pass_at)
    baseline = analysis.arm(analysis.baseline, [benchmark], analysis.baseline_step(arm, step), pass_at)
    row: dict[str, Any] = {"arm": arm, "baseline": analysis.baseline, "benchmark": benchmark, "step": step}
    row |= {"pass_at": pass_at, "problems": int(problems.sum())}
    if not (treatment.seeds and baseline.seeds and row["problems"]):
        return row
    treatment, baseline = treatment.subset(problems.to_numpy()), baseline.subset(problems.to_numpy())
    row |= {"score": treatment.run_means.mean(), "baseline_score": baseline.run_means.mean()}
    row["delta"] = row["score"] - row["baseline_score"]
    try:
        result = estimate(treatment, baseline, "benchmark", analysis.settings["alpha"])
    except NotAssessable:
        return row
    low, high = result.interval(analysis.settings["alpha"])
    return {**row, "se": result.se, "ci_low": low, "ci_high": high}


def main(job: Job) -> None:
    analysis = Analysis(job)
    difficulty = _difficulties(job.inputs.get("holdout", []))
    rows: list[dict[str, Any]] = []
    for benchmark in analysis.benchmarks:
        problem_ids = analysis.problem_ids(benchmark)
        splits = {"base_solve_rate": _solve_rate_bins(analysis, benchmark), "difficulty": difficulty}
        for split_by, bins in splits.items():
            if bins is None:
                continue
            of_problem = bins.reindex(problem_ids)
            names = RATES if split_by == "base_solve_rate" else sorted(of_problem.dropna().unique())
            rows += [
                {"split_by": split_by, "bin": name, **_row(analysis, arm, benchmark, pass_at, of_problem == name)}
                for name in names
                for arm in analysis.others
                for pass_at in analysis.pass_at
            ]
    write(job, "difficulty", tables.DIFFICULTY, rows)


if __name__ == "__main__":
    run(main, LIBRARIES)
