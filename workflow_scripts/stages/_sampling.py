"""What sampling the base and sampling checkpoints share."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from workflow_scripts import tables
from workflow_scripts.sampling import Options, stream_seed
from workflow_scripts.stages._command import Job, StageError


def holdout(job: Job) -> pa.Table:
    """The first `problems` rows of the benchmark; all of them where the study does not say."""
    rows = tables.read(job.input("holdout"), tables.PROBLEMS)
    return rows.slice(0, job.settings.get("problems") or rows.num_rows)


def base_folder(job: Job) -> Path:
    """Where the base model lies, its files checked against the manifest."""
    manifest = Path(job.input("base"))
    check_files(tables.read(manifest, tables.MANIFEST).to_pylist(), manifest, "make the base again")
    return manifest.parent / "model"


def check_files(rows: list[dict[str, Any]], manifest: Path, what: str) -> None:
    """Raises StageError unless a manifest's files are there and have its hashes. what: what deleting it would do."""
    for row in rows:
        file = manifest.parent / row["file"]
        if not file.is_file() or tables.file_sha256(file) != row["sha256"]:
            fault = "is missing" if not file.is_file() else "is not the one of the manifest"
            raise StageError(f"{file} {fault}; delete {manifest} to {what}")


def base_model(job: Job) -> tuple[Any, Any]:
    """The base model and its tokenizer, on the device of this job."""
    import torch
    from transformers.utils import logging

    from workflow_scripts.training import models

    logging.disable_progress_bar()
    torch.set_num_threads(job.compute["threads"])
    model, tokenizer = models.load_base(base_folder(job), job.settings["model"]["dtype"])
    return model.to(device(job)).eval(), tokenizer


def device(job: Job) -> str:
    """cpu or cuda, from compute.device."""
    import torch

    asked = job.compute["device"]
    if asked == "cuda" and not torch.cuda.is_available():
        raise StageError("compute.device: cuda: no CUDA device is visible here; use auto or cpu")
    return ("cuda" if torch.cuda.is_available() else "cpu") if asked == "auto" else asked


def draw(job: Job, model: Any, tokenizer: Any, problems: pa.Table, arm: str, seed: int, step: int) -> pa.Table:
    """All samples of all problems for one model, as rows of `completions`, in the order of problem and sample."""
    from workflow_scripts.sampling.prompts import PromptError, encode
    from workflow_scripts.sampling.transformers_engine import sample

    settings = job.settings
    count, benchmark = settings["samples"], settings["benchmark"]
    options = Options(settings["temperature"], settings["top_p"], settings["max_completion"])
    ids = problems["problem_id"].to_pylist()
    try:
        prompts = encode(tokenizer, problems["question"].to_pylist(), settings["model"]["prompt_family"])
    except PromptError as error:
        raise StageError(str(error)) from None
    pairs = [(row, number) for row in range(len(ids)) for number in range(count)]
    seeds = [stream_seed("evaluation", seed, step, ids[row], number) for row, number in pairs]
    drawn = sample(model, tokenizer, [prompts[row] for row, _ in pairs], seeds, options, job.compute["eval_batch"])
    texts = tokenizer.batch_decode([completion.token_ids for completion in drawn], skip_special_tokens=True)
    columns = {
        "arm": [arm] * len(pairs),
        "seed": [seed] * len(pairs),
        "step": [step] * len(pairs),
        "benchmark": [benchmark] * len(pairs),
        "problem_id": [ids[row] for row, _ in pairs],
        "sample": [number for _, number in pairs],
        "completion": texts,
        "completion_tokens": [len(completion.token_ids) for completion in drawn],
        "truncated": [completion.truncated for completion in drawn],
    }
    return pa.table(columns, schema=pa.schema(list(tables.COMPLETIONS.columns.items())))
