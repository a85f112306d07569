"""Dropping a run's weights once they have been sampled on every benchmark of the study (compute.keep.checkpoints)."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from workflow_scripts import tables
from workflow_scripts.job import Job

DROPPED = "train this run again (weights are not kept once they are sampled where compute.keep.checkpoints is false)"


def of_sampling(grading: Job) -> Job:
    """The job that drew what a job grades. Weights are dropped by the one that grades: only then does Snakemake know of
    the completions, and will not ask for them again."""
    base, holdout = grading.root / "base" / "manifest.parquet", grading.input("holdout")
    inputs = {"checkpoints": grading.inputs["checkpoints"], "base": [str(base)], "holdout": [holdout]}
    settings, code = grading.settings["sampled"], grading.settings["sampling_code"]
    return replace(grading, settings=settings, code=code, inputs=inputs, outputs={})


def drop_sampled_weights(job: Job) -> bool:
    """After a benchmark's completions are written: note it beside the run, and delete checkpoints/ if it was the last.

    A note says what those completions were made of; where settings, code, weights or problems are others by now, that
    benchmark is yet to be sampled again. checkpoints.parquet, with the hashes, stays. Returns whether weights were
    deleted. job: of sample_checkpoints; its compute has `sampled_on`, benchmark → samples.
    """
    folder = Path(job.input("checkpoints")).parent
    own = job.settings["benchmark"]
    _note(folder, own).parent.mkdir(exist_ok=True)
    _note(folder, own).write_text(json.dumps(_made_of(job, own, job.settings["samples"])), encoding="utf-8")
    if job.compute["keep"]["checkpoints"]:
        return False
    for benchmark, samples in job.compute["sampled_on"].items():
        note = _read(_note(folder, benchmark))
        if note is None or note != _made_of(job, benchmark, samples):
            return False
        if benchmark != own and not _sampled(job, folder, benchmark):
            return False
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # another job may be at it: both were the last
    return True


def _sampled(job: Job, run: Path, benchmark: str) -> bool:
    """Whether what a note speaks of is still there: completions, or else (compute.keep.completions) their grades."""
    evals = job.root / "evals" / run.relative_to(job.root / "runs") / benchmark
    return any((evals / f"{name}.parquet").is_file() for name in ("completions", "samples"))


def _made_of(job: Job, benchmark: str, samples: int) -> dict[str, Any]:
    holdout = str(job.root / "holdouts" / f"{benchmark}.parquet")
    return {
        "settings": job.settings | {"benchmark": benchmark, "samples": samples},
        "code": job.code,
        "inputs": tables.inputs_digest([job.input("checkpoints"), job.input("base"), holdout], job.root),
    }


def _note(folder: Path, benchmark: str) -> Path:
    return folder / "sampled" / f"{benchmark}.json"


def _read(note: Path) -> Any:
    try:
        return json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not sampled yet, or just being written: then that job looks itself
        return None
