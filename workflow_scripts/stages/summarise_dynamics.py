"""Clip shares, ratio drift, entropy, lengths and groups of every run and update, by the group's correct rollouts."""

import pandas as pd

from workflow_scripts import tables
from workflow_scripts.analysis import dynamics
from workflow_scripts.analysis.records import run_files, run_tables
from workflow_scripts.job import Job, run

LIBRARIES = ()


def main(job: Job) -> None:
    rollouts = run_files(job, tables.ROLLOUTS)
    rows = [
        dynamics.summarise(records.to_pandas(), dynamics.read_rollouts(rollouts.get((arm, seed)))).assign(
            arm=arm, seed=seed
        )
        for arm, seed, records in run_tables(job, tables.ROLLOUT_UPDATES)
        if len(records)
    ]
    job.write("dynamics", tables.DYNAMICS, pd.concat(rows) if rows else [])


if __name__ == "__main__":
    run(main, LIBRARIES)
