"""What sampling the base and sampling checkpoints share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from workflow_scripts import tables
from workflow_scripts.sampling import Completion, Engine, Options, stream_seed
from workflow_scripts.stages._command import Job, StageError
from workflow_scripts.stages._devices import take_gpus


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


@contextmanager
def _fitting() -> Iterator[None]:
    """A model that does not fit is the user's to know."""
    from accelerate.utils.memory import should_reduce_batch_size

    try:
        yield
    except RuntimeError as error:
        if not should_reduce_batch_size(error):
            raise
        raise StageError(
            "out of memory: the model itself does not fit; model.dtype: bfloat16 takes half of float32"
        ) from None


class TransformersEngine:
    """Sampling with the model in this process; adapters are put on one base."""

    def __init__(self, base: Path, dtype: str, device: str, batch_size: int | str) -> None:
        from importlib.metadata import version

        from workflow_scripts.training import models

        self.name = f"transformers {version('transformers')}"
        self.dtype, self.device, self.batch_size = dtype, device, batch_size
        with _fitting():
            model, self.tokenizer = models.load_base(base, dtype)
            self.base: Any = model.to(device).eval()
        self.model = self.base

    def load(self, checkpoint: Path | None) -> None:
        """The adapter, or the weights, of a checkpoint; None is the base, to be asked for before any adapter."""
        from workflow_scripts.training import models

        if checkpoint is None:
            self.model = self.base
            return
        fault = models.adapter_fault(self.base, checkpoint) if models.is_adapter(checkpoint) else None
        if fault:
            manifest = checkpoint.parents[1] / "checkpoints.parquet"
            raise StageError(
                f"{checkpoint}: an adapter of another base: {fault}; delete {manifest} to train this run again"
            )
        adapted = models.is_adapter(checkpoint)
        if not adapted:
            self.base = self.model = None  # one model at a time
        with _fitting():
            self.model = models.load_checkpoint(self.base, checkpoint, self.dtype).to(self.device).eval()
        self.base = self.model if adapted else None

    def sample(self, prompts: list[list[int]], seeds: list[int], options: Options) -> list[Completion]:
        """See `sampling.Engine`."""
        from workflow_scripts.sampling.transformers_engine import sample

        return sample(self.model, self.tokenizer, prompts, seeds, options, self.batch_size)


class Sampler:
    """One benchmark's problems as prompts, and the engine of this job that completes them."""

    def __init__(self, job: Job) -> None:
        import torch
        from transformers import AutoConfig, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
        take_gpus(job, 1)
        torch.set_num_threads(job.compute["threads"])
        self.job, self.problems = job, holdout(job)
        folder, settings = base_folder(job), job.settings
        self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = settings["model"]
        self.prompts = encoded(
            self.tokenizer, self.problems["question"].to_pylist(), model["prompt_family"], model.get("date")
        )
        self.options = Options.of(settings)
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        check_positions(config, self.prompts, "evaluation.max_completion", self.options.max_completion)
        self.engine = self._engine(folder)

    def _engine(self, folder: Path) -> Engine:
        compute, model = self.job.compute, self.job.settings["model"]
        if compute["engine"] == "transformers":
            return TransformersEngine(folder, model["dtype"], compute["device"], compute["eval_batch"])
        from workflow_scripts.sampling.vllm_engine import VLLMEngine

        longest = max(map(len, self.prompts), default=0) + self.options.max_completion
        adapter = model.get("adapter")
        return VLLMEngine(
            folder,
            model["dtype"],
            compute["device"],
            compute["vllm"]["sampling_memory"],
            longest,
            adapter["rank"] if adapter else None,
            decodes=bool(self.options.stop),
        )

    def draw(self, checkpoint: Path | None, arm: str, seed: int, step: int) -> pa.Table:
        """All samples of all problems from one checkpoint (None: the base), as rows of `completions`, in the order of
        problem and sample."""
        from workflow_scripts.sampling import stop_strings

        count, benchmark = self.job.settings["samples"], self.job.settings["benchmark"]
        ids = self.problems["problem_id"].to_pylist()
        pairs = [(row, number) for row in range(len(ids)) for number in range(count)]
        seeds = [stream_seed("evaluation", seed, step, ids[row], number) for row, number in pairs]
        self.engine.load(checkpoint)
        drawn = self.engine.sample([self.prompts[row] for row, _ in pairs], seeds, self.options)
        texts = stop_strings.decoded(self.tokenizer, [completion.token_ids for completion in drawn])
        columns = {
            "arm": [arm] * len(pairs),
            "seed": [seed] * len(pairs),
            "step": [step] * len(pairs),
            "benchmark": [benchmark] * len(pairs),
            "problem_id": [ids[row] for row, _ in pairs],
            "sample": [number for _, number in pairs],
            "completion": [stop_strings.cut(text, self.options.stop)[0] for text in texts],
            "completion_tokens": [len(completion.token_ids) for completion in drawn],
            "truncated": [completion.truncated for completion in drawn],
        }
        return pa.table(columns, schema=pa.schema(list(tables.COMPLETIONS.columns.items())))

    def write(self, rows: pa.Table) -> None:
        """The completions, and in their footer what drew them."""
        self.job.write("completions", tables.COMPLETIONS, rows, engine=self.engine.name)


def check_positions(config: Any, prompts: list[list[int]], key: str, completion: int) -> None:
    """Raises StageError where the longest prompt with a whole completion is longer than the model can take."""
    limit = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    prompt = max(map(len, prompts), default=0)
    if limit is not None and prompt + completion > limit:
        left = limit - completion
        shorter = key.startswith("rollout.") and left >= min(map(len, prompts))
        out = f"; or rollout.max_prompt: {left}, which leaves out the problems with longer prompts" if shorter else ""
        raise StageError(
            f"{key}: {completion}: at most {limit - prompt}: the longest prompt has {prompt} tokens, and the model "
            f"takes {limit} tokens{out}"
        )


def encoded(tokenizer: Any, questions: list[str], family: str, date: str | None) -> list[list[int]]:
    """Token ids of the questions; a tokenizer that cannot make them is the user's fault. date: None for a prompt family
    without a chat template."""
    from workflow_scripts.sampling.prompts import PromptError, encode

    try:
        return encode(tokenizer, questions, family, date)
    except PromptError as error:
        raise StageError(str(error)) from None
