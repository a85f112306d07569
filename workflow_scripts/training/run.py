"""One training run: made ready, begun or resumed, trained, and its outputs put in place."""

import importlib
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from datasets import Dataset
from peft import get_peft_model
from transformers.utils import logging

from workflow_scripts import tables
from workflow_scripts.devices import hardware
from workflow_scripts.errors import UserError
from workflow_scripts.job import Job
from workflow_scripts.models import weights
from workflow_scripts.models.files import base_folder
from workflow_scripts.objectives.lookup import imported
from workflow_scripts.sampling.prompts import check_positions, encode
from workflow_scripts.training import callbacks, finished, memory, outputs, setup, state
from workflow_scripts.training.errors import Diverged, OutOfMemory
from workflow_scripts.training.lease import Lease, LeaseError
from workflow_scripts.training.objective import RolloutPlan
from workflow_scripts.training.processes import launch, processes
from workflow_scripts.training.records import Recorder
from workflow_scripts.training.trainer import Trainer

_SMALLER = (
    "a smaller compute.micro_batch, compute.gradient_checkpointing: true, or, which is another question, a smaller "
    "rollout.max_completion"
)
_LESS = (
    "model.adapter trains less, model.dtype: bfloat16 holds less, and beside vllm compute.vllm.training_memory counts"
)


def fit_and_train(job: Job, lease: Lease) -> None:
    """Train in as many processes as the study says, with as many rollouts at once as fit."""
    count, asked = processes(job.compute), job.compute["micro_batch"]
    while True:
        try:
            if count == 1:
                return train(job, asked, lease)
            return launch(job.compute, (UserError, OutOfMemory), train, job, asked, lease)
        except OutOfMemory as error:
            tried = error.micro_batch
        if job.compute["micro_batch"] != "auto" or tried == 1:
            raise UserError(f"out of memory in training with {tried} rollouts at once; what helps: {_SMALLER}")
        asked = tried // 2
        print(f"out of memory in training with {tried} rollouts at once: goes on with at most {asked}", flush=True)
        clear_device_cache(garbage_collection=True)


def train(job: Job, asked: int | str, lease: Lease) -> None:
    """The whole of a run in one of its processes. asked: rollouts at once. Raises OutOfMemory where they do not fit."""
    logging.disable_progress_bar()
    torch.set_num_threads(job.compute["threads"])
    run = Run(job, lease)
    run.keeper.watch_signals()
    with _faults(run.saved):
        run.begin(asked)
        run.learn()
    if run.trainer.accelerator.is_main_process:
        with _faults(run.saved):
            run.put_down()


@contextmanager
def _faults(saved: state.StateFolder) -> Iterator[None]:
    """A lost lease leaves no files behind, and a model that does not fit is the user's to know."""
    grading = importlib.import_module("workflow_scripts.grading")
    try:
        yield
    except grading.GraderError as error:
        raise UserError(f"training.reward: {error}") from None
    except LeaseError:
        shutil.rmtree(saved.saving, ignore_errors=True)
        raise
    except RuntimeError as error:
        if not should_reduce_batch_size(error):
            raise
        raise UserError(f"out of memory before the first rollout: the model itself does not fit; {_LESS}") from None


class Run:
    """One process of a run, from the model to the outputs."""

    trainer: Trainer
    diverged: str | None = None  # why the run ended before its last step

    def __init__(self, job: Job, lease: Lease) -> None:
        self.job, self.settings, self.training = job, job.settings, job.settings["training"]
        self.plan = setup.rollout_plan(self.settings)
        self.model, self.tokenizer = weights.load_base(base_folder(job), weights.training_dtype(self.settings["model"]))
        if job.compute["gradient_checkpointing"] and not self.model.supports_gradient_checkpointing:
            kind = self.model.config.model_type
            raise UserError(f"compute.gradient_checkpointing: true: {kind} cannot do it; use false")
        self.problems, self.counts = problems_in_order(job, self.plan, self.tokenizer)
        lease.share()
        self.saved = state.StateFolder(outputs.state_folder(job), outputs.identity(job), lease)
        self.recorder = Recorder(self.plan.group_size, self.plan.updates_per_batch, self.plan.minibatches)
        states = map(Path, job.outputs.get("branch_states", []))
        self.branches = {int(path.stem.rpartition("-")[2]): path for path in states}
        self.keeper = callbacks.Keeper(
            outputs.run_folder(job), self.training["checkpoints"], list(self.branches), self.saved, self.recorder,
            self.plan.updates_per_batch, job.compute["keep"]["state"] == "last",
        )  # fmt: skip

    @property
    def main_process(self) -> bool:
        """Whether this process is the one that prints and writes."""
        return self.trainer.accelerator.is_main_process

    @cached_property
    def longest_prompt(self) -> int:
        """In tokens; UserError where the model cannot take it with a whole completion."""
        questions = sorted(set(self.problems["question"].to_pylist()))
        prompts = encode(self.tokenizer, questions, self.plan.prompt_family, self.plan.date)
        check_positions(self.model.config, prompts, "rollout.max_completion", self.plan.options.max_completion)
        return max(map(len, prompts))

    def begin(self, asked: int | str) -> None:
        """Make the trainer. asked: rollouts at once, or "auto"."""
        job, settings, name = self.job, self.settings, outputs.run_folder(self.job).relative_to(self.job.root / "runs")
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(job.root / "logs" / "tensorboard" / name))
        os.environ.setdefault("WANDB_PROJECT", job.root.name)
        names = {"output_dir": str(self.saved.saving), "run_name": name.as_posix(), "project": job.root.name}
        grade = grader(self.training["reward"], settings["reward_version"], settings.get("copied") == "refuse")
        adapter, longest = settings["model"].get("adapter"), self.longest_prompt
        tokens = longest + self.plan.options.max_completion
        micro_batch = asked if isinstance(asked, int) else memory.micro_batch(self.model, settings, job.compute, tokens)
        columns = {"prompt": "question", "problem_id": "problem_id", "answer": "answer"}
        self.trainer = Trainer(
            model=self.model,
            args=setup.configure(names, settings["seed"], settings, job.compute, self.plan, micro_batch, longest),
            reward_funcs=None if grade else imported(self.training["reward"], "training.reward"),
            train_dataset=Dataset.from_dict({new: self.problems[old].to_pylist() for new, old in columns.items()}),
            processing_class=self.tokenizer,
            peft_config=weights.lora(adapter) if adapter else None,
            callbacks=[self.keeper],
            objective=setup.make_objective(settings["objective"], self.training["beta"]),
            plan=self.plan,
            recorder=self.recorder,
            grade=grade,
            sample_batch=job.compute["eval_batch"],
        )
        if (long := self.counts.get("long_prompts")) and self.main_process:
            print(f"{long} of {self.counts['train_problems']} train problems left out: their prompts are longer than "
                  f"rollout.max_prompt, {settings['rollout']['max_prompt']} tokens", flush=True)  # fmt: skip
        self.initial = state.weights_hash(self.trainer.model, trainable=True)
        self.frozen = state.weights_hash(self.trainer.model, trainable=False)

    def learn(self) -> None:
        """Train from the newest saved state, from the state that the arm branches off, or from the base."""
        start = self._starting_state()
        made_by = {
            "rollout_engine": setup.rollout_engine(self.trainer.args),
            "hardware": hardware(self.job.compute["device"], self.trainer.accelerator.num_processes),
        }
        if made_by not in self.keeper.made_by[-1:]:
            self.keeper.made_by.append(made_by)
        try:
            self.trainer.train(resume_from_checkpoint=start)
        except Diverged as error:
            if self.trainer.accelerator.num_processes > 1:  # the others wait for this one's part of a sum
                raise
            self.diverged = str(error)
            if not self.keeper.manifest:
                self.keeper.save_checkpoint(*self._beginning())
            print(f"{error}; the run ends and counts with its last checkpoint", flush=True)
        reached, steps = self.trainer.state.global_step, self.training["steps"]
        if reached < steps and not self.diverged:
            raise UserError(f"terminated at step {reached} of {steps}; its state is kept")

    def _starting_state(self) -> str | None:
        """The folder of the state that the trainer starts from; None for the base."""
        checkpoints = self.training["checkpoints"]
        newest = self.saved.newest(
            self.training["steps"], checkpoints, list(self.branches), outputs.run_folder(self.job)
        )  # fmt: skip
        if newest is not None:
            folder, said = newest
            self.recorder.load(folder)
            self.keeper.manifest, self.keeper.weights = said["checkpoints"], said.get("weights", {})
            self.keeper.made_by = said.get("made_by", [])
            if self.main_process:
                print(f"{finished.RESUMES} {said['step']}", flush=True)
            return str(folder)
        if not self.job.inputs.get("branch"):
            return None
        branch, folder = Path(self.job.input("branch")), self.saved.saving / "branch"
        if not branch.stat().st_size:
            raise UserError(f"{branch}: the run it branches off diverged before that step")
        if self.main_process:
            callbacks.unpack(branch, folder, self.settings["branch"]["optimizer"])
        self.trainer.accelerator.wait_for_everyone()
        return str(folder)

    def _beginning(self) -> tuple[Any, int]:
        """The model as the run began with it, and its step: what a run that diverges before its first checkpoint
        has."""
        if branch := self.settings.get("branch"):
            folder = self.saved.saving / "branch"
            callbacks.unpack(Path(self.job.input("branch")), folder, branch["optimizer"])
            self.trainer._load_from_checkpoint(str(folder))
            return self.trainer.model, branch["step"]
        settings = self.settings["model"]
        model, _ = weights.load_base(base_folder(self.job), weights.training_dtype(settings))
        adapter = settings.get("adapter")
        return get_peft_model(model, weights.lora(adapter)) if adapter else model, 0

    def put_down(self) -> None:
        """Write the records beside the state, then put all outputs in place at once."""
        frozen = state.weights_hash(self.trainer.model, trainable=False)
        if self.frozen is not None and frozen != self.frozen:
            raise UserError("frozen base weights have changed during training; the run is not usable")
        folder = self.saved.saving / "finished"
        staged = replace(
            self.job, outputs={name: [str(folder / f"{name}.parquet")] for name in self.job.outputs}
        )  # fmt: skip
        staged.provenance = self.job.provenance
        for name, (table, rows) in self.recorder.tables().items():
            kept = rows if name != "rollouts" or self.job.compute["keep"]["rollouts"] else _without_texts(table, rows)
            staged.write(name, table, kept)
        staged.write("trainer_log", tables.TRAINER_LOG, log_rows(self.trainer.state.log_history))
        for step, path in self.branches.items():
            if self.diverged and step > self.trainer.state.global_step:
                (folder / path.name).write_bytes(b"")  # what branches off says why it cannot
            else:
                shutil.copyfile(self.saved.branch_state(step), folder / path.name)
        reached = self.keeper.manifest[-1]["step"] if self.diverged else 0
        declared = {*self.training["checkpoints"], reached}  # a longer past may hold more
        manifest = [row for row in self.keeper.manifest if row["step"] in declared]
        manifest.sort(key=lambda row: (row["step"], row["file"]))
        staged.write("checkpoints", tables.CHECKPOINTS, manifest, **self._footer())
        finished.seal(folder, self.job.provenance, outputs.staged(self.job), self.job.root)
        state.put_in_place(folder, self.saved.finished, self.saved.lease)
        finished.publish(self.saved.finished, self.job.provenance, outputs.staged(self.job))
        outputs.forget(self.job, self.saved)

    def _footer(self) -> dict[str, Any]:
        """What checkpoints.parquet says of the run."""
        settings, kept = self.settings, self.keeper.weights
        return {
            "initial_weights": self.initial,
            "branch_weights": kept.get(str(settings["branch"]["step"])) if "branch" in settings else None,
            "checkpoint_weights": {step: kept.get(step) for step in map(str, self.training["checkpoints"])},
            "final_weights": state.weights_hash(self.trainer.model, trainable=True),
            "frozen_weights_drift": None if self.frozen is None else False,
            "diverged": self.diverged,
            "reward_version": settings["reward_version"],
            **self.counts,
            "micro_batch": self.trainer.args.per_device_train_batch_size,
            "processes": self.trainer.accelerator.num_processes,
            "made_by": self.keeper.made_by,
        }


def problems_in_order(job: Job, plan: RolloutPlan, tokenizer: Any) -> tuple[pa.Table, dict[str, int]]:
    """The problems in the order in which rollout batches use them; and for the footer how many the train set has and,
    with rollout.max_prompt, how many of them are left out for longer prompts: of every arm and seed the same."""
    problems = tables.read(job.input("train"), tables.PROBLEMS)
    rows, most = problems.num_rows, job.settings["rollout"].get("max_prompt")
    counts = {"train_problems": rows}
    if most is not None:
        prompts = encode(tokenizer, problems["question"].to_pylist(), plan.prompt_family, plan.date)
        problems = problems.take([row for row, prompt in enumerate(prompts) if len(prompt) <= most])
        counts["long_prompts"] = rows - problems.num_rows
    if problems.num_rows < plan.prompts:
        if rows < plan.prompts:
            raise UserError(f"rollout.prompts: {plan.prompts}: the train set has only {rows} rows")
        raise UserError(
            f"rollout.max_prompt: {most}: only {problems.num_rows} of {rows} train problems have prompts that short, "
            f"and rollout.prompts is {plan.prompts}"
        )
    batches = job.settings["training"]["steps"] // plan.updates_per_batch
    order = setup.prompt_order(problems.num_rows, plan.prompts, batches, job.settings["seed"])
    return problems.take(order), counts


def grader(name: str, version: int, refuse: bool) -> Any:
    """The grader of that name, of many rows and their questions at once, if the code is of the version that the run is
    held to; None for a user's function. refuse: answers copied from the question are not paid."""
    grading = importlib.import_module("workflow_scripts.grading")
    if ":" in name:
        return None
    grading.hold_to(version, name)
    return lambda rows, questions: grading.grade_many(name, rows, questions if refuse else None)


def log_rows(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The trainer's log without what differs between equal runs: times, sums that start anew when a run resumes, and
    the sign of nan, which a saved state forgets."""
    uneven = ("time", "per_second", "mfu", "train_loss", "total_flos")
    return [
        {"step": entry["step"], "metric": name, "value": float(value) if value == value else math.nan}
        for entry in history
        for name, value in sorted(entry.items())
        if name not in ("step", "epoch")
        and isinstance(value, (int, float))
        and not any(word in name for word in uneven)
    ]


def _without_texts(table: tables.Table, rows: pa.Table) -> pa.Table:
    for column in ("completion", "old_log_prob"):
        nothing = [pa.nulls(len(rows), table.columns[column])]
        rows = rows.set_column(rows.schema.get_field_index(column), column, nothing)
    return rows
