"""Sample every checkpoint of one run on one benchmark: the base is loaded once, adapters are swapped."""

from pathlib import Path

import pyarrow as pa

from workflow_scripts import tables
from workflow_scripts.stages import _sampling
from workflow_scripts.stages._command import Job, StageError, run

LIBRARIES = ("torch", "transformers", "peft", "tokenizers")


def main(job: Job) -> None:
    from workflow_scripts.training import models

    settings = job.settings
    manifest = Path(job.input("checkpoints"))
    files = tables.read(manifest, tables.CHECKPOINTS).to_pylist()
    problems = _sampling.holdout(job)
    base, tokenizer = _sampling.base_model(job)
    parts = []
    for step in settings["steps"]:
        listed = [row for row in files if row["step"] == step]
        if not listed:
            raise StageError(f"{manifest}: step {step} is missing; delete the manifest to train this run again")
        _sampling.check_files(listed, manifest, "train this run again")
        folder = manifest.parent / "checkpoints" / f"step-{step}"
        model = models.load_checkpoint(base, folder, settings["model"]["dtype"])
        base = model if hasattr(model, "peft_config") else base
        model = model.to(_sampling.device(job)).eval()
        parts.append(_sampling.draw(job, model, tokenizer, problems, settings["arm"], settings["seed"], step))
    job.write("completions", tables.COMPLETIONS, pa.concat_tables(parts))


if __name__ == "__main__":
    run(main, LIBRARIES)
