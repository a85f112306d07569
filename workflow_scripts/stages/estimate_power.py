"""What more seeds would buy: the minimum detectable effect of the primary endpoint by seeds per arm, and its price."""

from typing import Any

import numpy as np

from workflow_scripts import tables
from workflow_scripts.stages._analysis import Analysis, write
from workflow_scripts.stages._command import Job, run
from workflow_scripts.statistics import power
from workflow_scripts.statistics.arm import Arm

LIBRARIES = ("scipy", "statsmodels")
SEEDS = (3, 5, 8, 10, 20)


def _run_sd(arms: list[Arm]) -> tuple[float, int]:
    """SD of a run's score pooled over the arms, and its degrees of freedom; nan and 0 where no arm has two seeds."""
    parts = [(len(arm.seeds) - 1, arm.run_variance) for arm in arms if len(arm.seeds) > 1]
    df = sum(n for n, _ in parts)
    return (float(np.sqrt(sum(n * variance for n, variance in parts) / df)), df) if df else (np.nan, 0)


def _seconds_per_run(job: Job) -> float:
    """Mean time of the runs whose training and sampling were both timed here; nan if there is none."""
    runs = tables.read(job.input("runs"), tables.RUNS, ["train_seconds", "sample_seconds"]).to_pylist()
    timed = [r["train_seconds"] + r["sample_seconds"] for r in runs if None not in r.values()]
    return float(np.mean(timed)) if timed else np.nan


def main(job: Job) -> None:
    analysis = Analysis(job)
    view, pass_at = analysis.views[analysis.endpoint_view], analysis.endpoint_pass_at
    arms = [analysis.arm(arm, view, analysis.endpoint_step(arm), pass_at) for arm in analysis.arms]
    sd, df = _run_sd(arms)
    upper = power.upper_bound(sd, df) if df else np.nan
    seconds = _seconds_per_run(job)
    one, family = analysis.alpha_of(1), analysis.alpha_of(len(analysis.family))
    have = [len(made.seeds) for arm, made in zip(analysis.arms, arms, strict=True) if analysis.seeds(arm)]
    rows: list[dict[str, Any]] = []
    for seeds in sorted({*SEEDS, *(n for n in have if n > 1)}):
        mde_family = power.mde_in_sd(seeds, seeds, family)
        rows.append(
            {
                "seeds": seeds,
                "run_sd": sd,
                "run_sd_upper80": upper,
                "mde80_one": sd * power.mde_in_sd(seeds, seeds, one),
                "mde80_family": sd * mde_family,
                "mde80_family_upper80": upper * mde_family,
                "resolves_margin": sd * mde_family <= analysis.margin if df else None,
                "seconds_per_run": seconds,
                "extra_seconds": seconds * sum(max(seeds - n, 0) for n in have),
            }
        )
    write(job, "power", tables.POWER, rows)


if __name__ == "__main__":
    run(main, LIBRARIES)
