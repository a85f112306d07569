"""Where the records of training lie, how they are read, and from where on they are a reason for a warning."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa

from workflow_scripts import tables
from workflow_scripts.job import Job

MOSTLY_FLAT = 0.5  # above this share of groups without a gradient, most of the training batch taught nothing
OFTEN_TRUNCATED = 0.1  # above this share of completions cut off, scores measure brevity too
# The sides on which a ratio can leave its bounds (arXiv:2601.03895 Fig. 2): sign of the advantage, bound
QUADRANTS = {1: (1, "upper"), 2: (1, "lower"), 3: (-1, "lower"), 4: (-1, "upper")}
SIGNS = {1: "positive", -1: "negative"}


def run_files(job: Job, table: tables.Table) -> dict[tuple[str, int], str]:
    """(arm, seed) -> that run's file, for all declared runs; they count as inputs of the job.

    With `allow_missing` the runs whose file is not there are left out; else a missing file is an error when it is read.
    """
    files = {
        (arm, seed): job.root / "runs" / arm / f"seed-{seed}" / f"{table.name}.parquet"
        for arm, seeds in job.settings["runs"].items()
        for seed in seeds
    }
    if job.settings["allow_missing"]:
        files = {run: path for run, path in files.items() if path.exists()}
    job.add_inputs(table.name, [str(path) for path in files.values()])
    return {run: str(path) for run, path in files.items()}


def run_tables(job: Job, table: tables.Table) -> Iterator[tuple[str, int, pa.Table]]:
    """(arm, seed, its rows) for each run; one run is in memory at a time."""
    for (arm, seed), path in run_files(job, table).items():
        yield arm, seed, tables.read(path, table)


def old_log_probs(path: str) -> pd.DataFrame:
    """The rollouts of a run whose old log-probabilities are recorded: batch, prompt_position, rollout, old_log_prob."""
    columns = ["batch", "prompt_position", "rollout", "old_log_prob"]
    return tables.read(path, tables.ROLLOUTS, columns).to_pandas().dropna(subset="old_log_prob")


def clipped_by_quadrant(records: pd.DataFrame) -> dict[str, pd.Series]:
    """Tokens that a run's own bounds clipped, in each quadrant, by the name of their column."""
    sign = np.sign(records["advantage"])
    return {
        f"clipped_quadrant_{number}_tokens": records[f"clipped_{side}_tokens"].where(sign == of_sign, 0)
        for number, (of_sign, side) in QUADRANTS.items()
    }
