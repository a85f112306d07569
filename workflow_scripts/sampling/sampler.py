"""Completions of one benchmark's problems: what sampling the base and sampling checkpoints share."""

from pathlib import Path

import pyarrow as pa

from workflow_scripts import tables
from workflow_scripts.devices import take_gpus
from workflow_scripts.job import Job
from workflow_scripts.models.files import base_folder
from workflow_scripts.sampling import Engine, Options, stream_seed


def holdout(job: Job) -> pa.Table:
    """The first `problems` rows of the benchmark; all of them where the study does not say."""
    rows = tables.read(job.input("holdout"), tables.PROBLEMS)
    return rows.slice(0, job.settings.get("problems") or rows.num_rows)


class Sampler:
    """One benchmark's problems as prompts, and the engine of this job that completes them."""

    def __init__(self, job: Job) -> None:
        import torch
        from transformers import AutoConfig, AutoTokenizer
        from transformers.utils import logging

        from workflow_scripts.sampling.prompts import check_positions, encode

        logging.disable_progress_bar()
        take_gpus(job, 1)
        torch.set_num_threads(job.compute["threads"])
        self.job, self.problems = job, holdout(job)
        folder, settings = base_folder(job), job.settings
        self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = settings["model"]
        self.prompts = encode(
            self.tokenizer, self.problems["question"].to_pylist(), model["prompt_family"], model.get("date")
        )
        self.options = Options.of(settings)
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        check_positions(config, self.prompts, "evaluation.max_completion", self.options.max_completion)
        self.engine = self._engine(folder)

    def _engine(self, folder: Path) -> Engine:
        compute, model = self.job.compute, self.job.settings["model"]
        if compute["engine"] == "transformers":
            from workflow_scripts.sampling.transformers_engine import TransformersEngine

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
