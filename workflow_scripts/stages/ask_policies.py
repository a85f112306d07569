"""What every clip policy of the study would have done with the recorded ratios of each run. Nothing is trained."""

import pandas as pd

from workflow_scripts import tables
from workflow_scripts.analysis import policies
from workflow_scripts.analysis.records import old_log_probs, run_files, run_tables
from workflow_scripts.job import Job, run

LIBRARIES = ()


def main(job: Job) -> None:
    settings = job.settings
    tails, rollouts = run_files(job, tables.TAIL_TOKENS), run_files(job, tables.ROLLOUTS)
    rows = []
    for arm, seed, found in run_tables(job, tables.ROLLOUT_UPDATES):
        tail = tables.read(tails[arm, seed], tables.TAIL_TOKENS).to_pandas()
        records = policies.Records(found.to_pandas(), tail, settings["ratios"][arm], old_log_probs(rollouts[arm, seed]))
        rows.append(policies.ask(records, settings["own"].get(arm), settings["policies"]).assign(arm=arm, seed=seed))
    job.write("policies", tables.POLICIES, pd.concat(rows) if rows else [])


if __name__ == "__main__":
    run(main, LIBRARIES)
