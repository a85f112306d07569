"""What more seeds would buy: the minimum detectable effect of the primary endpoint by seeds per arm, and its price."""

import numpy as np

from workflow_scripts import tables
from workflow_scripts.analysis import power
from workflow_scripts.analysis.comparison import Analysis, in_order
from workflow_scripts.job import Job, run

LIBRARIES = ("scipy", "statsmodels")


def _seconds_per_run(job: Job) -> float:
    """Mean time of the runs whose training and sampling were both timed here; nan if there is none."""
    runs = tables.read(job.input("runs"), tables.RUNS, ["train_seconds", "sample_seconds"]).to_pylist()
    timed = [r["train_seconds"] + r["sample_seconds"] for r in runs if None not in r.values()]
    return float(np.mean(timed)) if timed else np.nan


def main(job: Job) -> None:
    analysis = Analysis.read(job.settings, job.input("counts"))
    rows = power.rows(analysis, _seconds_per_run(job))
    job.write("power", tables.POWER, in_order(tables.POWER, rows))


if __name__ == "__main__":
    run(main, LIBRARIES)
