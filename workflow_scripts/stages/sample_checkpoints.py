"""Sample every checkpoint of one run on one benchmark: the base is loaded once, adapters are swapped."""

from pathlib import Path

import pyarrow as pa

from workflow_scripts import tables
from workflow_scripts.stages import _retention, _sampling
from workflow_scripts.stages._command import Job, StageError, run

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
            raise StageError(f"{manifest}: step {step} is missing; delete the manifest to train this run again")
        _sampling.check_files(rows, manifest, _retention.DROPPED)
    sampler = _sampling.Sampler(job)
    parts = [
        sampler.draw(manifest.parent / "checkpoints" / f"step-{step}", settings["arm"], settings["seed"], step)
        for step in steps
    ]
    sampler.write(pa.concat_tables(parts))


if __name__ == "__main__":
    run(main, LIBRARIES)
