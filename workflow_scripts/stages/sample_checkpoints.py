"""Sample every checkpoint of one run on one benchmark: the base is loaded once, adapters are swapped."""

from pathlib import Path

import pyarrow as pa

from workflow_scripts import tables
from workflow_scripts.errors import UserError
from workflow_scripts.job import Job, run
from workflow_scripts.models import retention
from workflow_scripts.models.files import check_files
from workflow_scripts.sampling.sampler import Sampler

LIBRARIES = ("torch", "transformers", "peft", "tokenizers")


def main(job: Job) -> None:
    settings = job.settings
    manifest = Path(job.input("checkpoints"))
    files = tables.read(manifest, tables.CHECKPOINTS).to_pylist()
    steps = settings["steps"]
    if tables.provenance(manifest).get("diverged"):  # it ended early, and counts with its last checkpoint
        reached = max(row["step"] for row in files)
        steps = sorted({*(step for step in steps if step < reached), reached})
    listed = {step: [row for row in files if row["step"] == step] for step in steps}
    for step, rows in listed.items():
        if not rows:
            raise UserError(f"{manifest}: step {step} is missing; delete the manifest to train this run again")
        check_files(rows, manifest, retention.DROPPED)
    sampler = Sampler(job)
    parts = [
        sampler.draw(manifest.parent / "checkpoints" / f"step-{step}", settings["arm"], settings["seed"], step)
        for step in steps
    ]
    sampler.write(pa.concat_tables(parts))


if __name__ == "__main__":
    run(main, LIBRARIES)
