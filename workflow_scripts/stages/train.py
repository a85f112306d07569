"""Train one arm with one seed, from its last resumable state if there is one; while another job does, wait for it."""

import importlib
import math
import os
import shutil
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from workflow_scripts import tables
from workflow_scripts.stages._command import Job, StageError, run
from workflow_scripts.stages._devices import hardware, take_gpus
from workflow_scripts.stages._errors import out_of_space
from workflow_scripts.stages._sampling import base_folder, check_files, check_positions, encoded
from workflow_scripts.training import finished
from workflow_scripts.training.lease import Lease, LeaseError, held

LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "tokenizers")


def _user_reward(name: str) -> Any:
    """The user's package.module:function, in TRL's form."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as error:  # the module is the user's: anything may happen in it
        why = str(error) if isinstance(error, (ImportError, AttributeError)) else f"{type(error).__name__}: {error}"
        raise StageError(f"training.reward: {name}: {why}") from None
    if not callable(found):
        raise StageError(f"training.reward: {name}: a function, not {found!r:.60}")
    return found


def _grader(name: str, version: int, refuse: bool) -> Any:
    """The grader of that name, of many rows and their questions at once, if the code is of the version that the run is
    held to; None for a user's function. refuse: answers copied from the question are not paid."""
    grading = importlib.import_module("workflow_scripts.grading")
    if ":" in name:
        return None
    try:
        grading.hold_to(version, name)
    except grading.RewardVersionError as error:
        raise StageError(str(error)) from None
    return lambda rows, questions: grading.grade_many(name, rows, questions if refuse else None)


_SMALLER = (
    "a smaller compute.micro_batch, compute.gradient_checkpointing: true, or, which is another question, a smaller "
    "rollout.max_completion"
)
_LESS = (
    "model.adapter trains less, model.dtype: bfloat16 holds less, and beside vllm compute.vllm.training_memory counts"
)


def _log_rows(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
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


def _missing_packages(compute: dict[str, Any]) -> None:
    """Raises StageError for what the study names under compute and is not installed where the job runs."""
    for tracker in compute["trackers"]:
        if find_spec(tracker) is None:
            raise StageError(f"compute.trackers: {tracker}: not installed here; pip install {tracker}")
    if compute["engine"] == "vllm" and find_spec("vllm") is None:
        raise StageError("compute.engine: vllm: not installed here; make gpu")


def _prompts(job: Job, plan: Any, tokenizer: Any) -> tuple[Any, dict[str, int]]:
    """The problems in the order in which rollout batches use them; and for the footer how many the train set has and,
    with rollout.max_prompt, how many of them are left out for longer prompts: of every arm and seed the same."""
    from workflow_scripts.training import setup

    problems = tables.read(job.input("train"), tables.PROBLEMS)
    rows, most = problems.num_rows, job.settings["rollout"].get("max_prompt")
    said = {"train_problems": rows}
    if most is not None:
        prompts = encoded(tokenizer, problems["question"].to_pylist(), plan.prompt_family, plan.date)
        problems = problems.take([row for row, prompt in enumerate(prompts) if len(prompt) <= most])
        said["long_prompts"] = rows - problems.num_rows
    if problems.num_rows < plan.prompts:
        if rows < plan.prompts:
            raise StageError(f"rollout.prompts: {plan.prompts}: the train set has only {rows} rows")
        raise StageError(
            f"rollout.max_prompt: {most}: only {problems.num_rows} of {rows} train problems have prompts that short, "
            f"and rollout.prompts is {plan.prompts}"
        )
    batches = job.settings["training"]["steps"] // plan.updates_per_batch
    return problems.take(setup.prompt_order(problems.num_rows, plan.prompts, batches, job.settings["seed"])), said


def _micro_batch(job: Job, asked: int | str, model: Any, plan: Any, longest_prompt: int) -> int:
    """Rollouts at once, at most: the number of the study, or an estimate."""
    from workflow_scripts.training import memory
    from workflow_scripts.training.processes import processes

    if isinstance(asked, int):
        return asked
    compute, settings = job.compute, job.settings
    colocated = compute["engine"] == "vllm" and compute["vllm"]["mode"] == "colocate"
    adapter = settings["model"].get("adapter")
    return memory.rollouts_at_once(
        model,
        tokens=longest_prompt + plan.options.max_completion,
        available=memory.device_bytes(
            compute["device"], compute["threads"], compute["vllm"]["training_memory"] if colocated else 0.0
        ),
        compute_bytes=2 if settings["model"]["dtype"] == "bfloat16" else 4,
        checkpointing=compute["gradient_checkpointing"],
        adapter=bool(adapter),
        copies=2 if processes(compute) > 1 else 1,
        reference=bool(settings["training"]["beta"]) and not adapter,
    )


def _beginning(job: Job, trainer: Any, folder: Path) -> tuple[Any, int]:
    """The model as the run began with it, and its step: what a run that diverges before its first checkpoint has."""
    from peft import get_peft_model

    from workflow_scripts.training import callbacks, models

    if branch := job.settings.get("branch"):
        callbacks.unpack(Path(job.input("branch")), folder, branch["optimizer"])
        trainer._load_from_checkpoint(str(folder))
        return trainer.model, branch["step"]
    settings = job.settings["model"]
    model, _ = models.load_base(base_folder(job), models.training_dtype(settings))
    adapter = settings.get("adapter")
    return get_peft_model(model, models.lora(adapter)) if adapter else model, 0


def _run_folder(job: Job) -> Path:
    return Path(job.output("checkpoints")).parent


def _run_state(job: Job) -> Path:
    """Where the run keeps what a restarted job needs."""
    return job.root / "state" / _run_folder(job).relative_to(job.root / "runs")


def _state_identity(job: Job) -> str:
    from workflow_scripts.training import state

    return state.identity(job.settings, job.code, job.provenance["inputs"])


def _staged(job: Job) -> dict[str, str]:
    """Name of each output in the folder of what a finished run leaves → where it belongs; the manifest last."""
    names = {Path(path).name: path for name, paths in job.outputs.items() for path in paths if name != "checkpoints"}
    return {**names, "checkpoints.parquet": job.output("checkpoints")}


def _hand_out(job: Job, folder: Path) -> bool:
    """The outputs of a run that is finished already; False where there are none, or not with all their checkpoints."""
    manifest = folder / "checkpoints.parquet"
    if not manifest.is_file():
        return False
    try:
        check_files(tables.read(manifest, tables.CHECKPOINTS).to_pylist(), Path(job.output("checkpoints")), "")
    except (StageError, tables.TableError):
        return False
    return finished.publish(folder, job.provenance, _staged(job))


def _train(job: Job, asked: int | str, lease: Lease) -> None:
    """The whole of a run in one of its processes. asked: rollouts at once. Raises OutOfMemory where they do not fit."""
    import torch
    from accelerate.utils.memory import should_reduce_batch_size
    from datasets import Dataset
    from transformers.utils import logging

    from workflow_scripts.grading import GraderError
    from workflow_scripts.sampling import EngineError
    from workflow_scripts.training import callbacks, models, setup, state
    from workflow_scripts.training.errors import Diverged
    from workflow_scripts.training.records import Recorder
    from workflow_scripts.training.trainer import Trainer, TrainingError

    logging.disable_progress_bar()
    torch.set_num_threads(job.compute["threads"])
    settings = job.settings
    seed, training = settings["seed"], settings["training"]
    plan = setup.rollout_plan(settings)
    model, tokenizer = models.load_base(base_folder(job), models.training_dtype(settings["model"]))
    chosen, problems = _prompts(job, plan, tokenizer)
    dataset = Dataset.from_dict(
        {"prompt": chosen["question"].to_pylist(), "problem_id": chosen["problem_id"].to_pylist(),
         "answer": chosen["answer"].to_pylist()}
    )  # fmt: skip

    run_folder = _run_folder(job)
    run_name = run_folder.relative_to(job.root / "runs")
    lease.share()
    saved = state.StateFolder(_run_state(job), _state_identity(job), lease)
    recorder = Recorder(plan.group_size, plan.updates_per_batch, plan.minibatches)
    branches = {int(Path(p).stem.rpartition("-")[2]): Path(p) for p in job.outputs.get("branch_states", [])}
    keep_last = job.compute["keep"]["state"] == "last"
    keeper = callbacks.Keeper(
        run_folder, training["checkpoints"], list(branches), saved, recorder, plan.updates_per_batch, keep_last
    )
    if job.compute["gradient_checkpointing"] and not model.supports_gradient_checkpointing:
        raise StageError(f"compute.gradient_checkpointing: true: {model.config.model_type} cannot do it; use false")
    adapter = settings["model"].get("adapter")
    grade = _grader(training["reward"], settings["reward_version"], settings.get("copied") == "refuse")
    questions = sorted(set(chosen["question"].to_pylist()))
    prompts = encoded(tokenizer, questions, plan.prompt_family, plan.date)
    check_positions(model.config, prompts, "rollout.max_completion", plan.options.max_completion)
    longest_prompt = max(map(len, prompts))
    micro_batch = _micro_batch(job, asked, model, plan, longest_prompt)
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(job.root / "logs" / "tensorboard" / run_name))
    os.environ.setdefault("WANDB_PROJECT", job.root.name)
    names = {"output_dir": str(saved.saving), "run_name": run_name.as_posix(), "project": job.root.name}
    diverged: str | None = None
    keeper.watch_signals()
    try:
        trainer = Trainer(
            model=model,
            args=setup.configure(names, seed, settings, job.compute, plan, micro_batch, longest_prompt),
            reward_funcs=None if grade else _user_reward(training["reward"]),
            train_dataset=dataset,
            processing_class=tokenizer,
            peft_config=models.lora(adapter) if adapter else None,
            callbacks=[keeper],
            objective=setup.make_objective(settings["objective"], training["beta"]),
            plan=plan,
            recorder=recorder,
            grade=grade,
            sample_batch=job.compute["eval_batch"],
        )
        if (long := problems.get("long_prompts")) and trainer.accelerator.is_main_process:
            print(f"{long} of {problems['train_problems']} train problems left out: their prompts are longer than "
                  f"rollout.max_prompt, {settings['rollout']['max_prompt']} tokens", flush=True)  # fmt: skip
        initial = state.weights_hash(trainer.model, trainable=True)
        frozen = state.weights_hash(trainer.model, trainable=False)

        resume = None
        newest = saved.newest(training["steps"], training["checkpoints"], list(branches), run_folder)
        if newest is not None:
            resume = str(newest[0])
            recorder.load(newest[0])
            keeper.manifest, keeper.weights = newest[1]["checkpoints"], newest[1].get("weights", {})
            keeper.made_by = newest[1].get("made_by", [])
            if trainer.accelerator.is_main_process:
                print(f"{finished.RESUMES} {newest[1]['step']}", flush=True)
        elif job.inputs.get("branch"):
            if not Path(job.input("branch")).stat().st_size:
                raise StageError(f"{job.input('branch')}: the run it branches off diverged before that step")
            resume = str(saved.saving / "branch")
            if trainer.accelerator.is_main_process:
                callbacks.unpack(Path(job.input("branch")), Path(resume), settings["branch"]["optimizer"])
            trainer.accelerator.wait_for_everyone()
        made_by = {
            "rollout_engine": setup.rollout_engine(trainer.args),
            "hardware": hardware(job.compute["device"], trainer.accelerator.num_processes),
        }
        if made_by not in keeper.made_by[-1:]:
            keeper.made_by.append(made_by)
        trainer.train(resume_from_checkpoint=resume)
    except GraderError as error:
        raise StageError(f"training.reward: {error}") from None
    except Diverged as error:
        if trainer.accelerator.num_processes > 1:  # the others wait for this one's part of a sum
            raise StageError(str(error)) from None
        diverged = str(error)
        if not keeper.manifest:
            keeper.save_checkpoint(*_beginning(job, trainer, saved.saving / "branch"))
        print(f"{diverged}; the run ends and counts with its last checkpoint", flush=True)
    except (EngineError, TrainingError) as error:
        raise StageError(str(error)) from None
    except LeaseError as error:
        shutil.rmtree(saved.saving, ignore_errors=True)
        raise StageError(str(error)) from None
    except RuntimeError as error:
        if not should_reduce_batch_size(error):
            raise
        raise StageError(f"out of memory before the first rollout: the model itself does not fit; {_LESS}") from None
    if trainer.state.global_step < training["steps"] and not diverged:
        raise StageError(f"terminated at step {trainer.state.global_step} of {training['steps']}; its state is kept")

    if not trainer.accelerator.is_main_process:
        return
    drift = None if frozen is None else state.weights_hash(trainer.model, trainable=False) != frozen
    if drift:
        raise StageError("frozen base weights have changed during training; the run is not usable")
    staged = replace(job, outputs={n: [str(saved.saving / "finished" / f"{n}.parquet")] for n in job.outputs})
    staged.provenance = job.provenance
    for name, (table, rows) in recorder.tables().items():
        if name == "rollouts" and not job.compute["keep"]["rollouts"]:
            for column in ("completion", "old_log_prob"):
                nothing = [pa.nulls(len(rows), table.columns[column])]
                rows = rows.set_column(rows.schema.get_field_index(column), column, nothing)
        staged.write(name, table, rows)
    staged.write("trainer_log", tables.TRAINER_LOG, _log_rows(trainer.state.log_history))
    for step, path in branches.items():
        target = saved.saving / "finished" / path.name
        if diverged and step > trainer.state.global_step:
            target.write_bytes(b"")  # what branches off says why it cannot
        else:
            shutil.copyfile(saved.branch_state(step), target)
    reached = keeper.manifest[-1]["step"] if diverged else 0
    declared = {*training["checkpoints"], reached}  # a longer past may hold more
    kept = [row for row in keeper.manifest if row["step"] in declared]
    staged.write(
        "checkpoints",
        tables.CHECKPOINTS,
        sorted(kept, key=lambda row: (row["step"], row["file"])),
        initial_weights=initial,
        branch_weights=keeper.weights.get(str(settings["branch"]["step"])) if "branch" in settings else None,
        checkpoint_weights={step: keeper.weights.get(step) for step in map(str, training["checkpoints"])},
        final_weights=state.weights_hash(trainer.model, trainable=True),
        frozen_weights_drift=drift,
        diverged=diverged,
        reward_version=settings["reward_version"],
        **problems,
        micro_batch=trainer.args.per_device_train_batch_size,
        processes=trainer.accelerator.num_processes,
        made_by=keeper.made_by,
    )
    try:
        finished.seal(saved.saving / "finished", job.provenance, _staged(job), job.root)
        state.put_in_place(saved.saving / "finished", saved.finished, lease)
        finished.publish(saved.finished, job.provenance, _staged(job))
    except LeaseError as error:
        shutil.rmtree(saved.saving, ignore_errors=True)
        raise StageError(str(error)) from None
    saved.ended() if keep_last else saved.remove()


def main(job: Job) -> None:
    from workflow_scripts.training import state

    _missing_packages(job.compute)
    try:
        with held(_run_state(job), partial(print, flush=True)) as lease:
            if _hand_out(job, _run_state(job) / _state_identity(job) / "finished"):
                print(finished.HANDED_OUT, flush=True)
                saved = state.StateFolder(_run_state(job), _state_identity(job), lease)
                saved.ended() if job.compute["keep"]["state"] == "last" else saved.remove()
            else:
                _fit_and_train(job, lease)
    except LeaseError as error:
        raise StageError(str(error)) from None


def _fit_and_train(job: Job, lease: Lease) -> None:
    """In as many processes as the study says, with as many rollouts at once as fit."""
    from accelerate.utils.memory import clear_device_cache

    from workflow_scripts.training.processes import ProcessesError, launch, processes
    from workflow_scripts.training.trainer import OutOfMemory

    count = processes(job.compute)
    take_gpus(job, job.compute["gpus"])
    asked = job.compute["micro_batch"]
    while True:
        try:
            if count == 1:
                return _train(job, asked, lease)
            return launch(job.compute, (StageError, tables.TableError, OutOfMemory), _train, job, asked, lease)
        except ProcessesError as error:
            if out_of_space(error):
                raise
            raise StageError(str(error)) from None
        except OutOfMemory as error:
            tried = error.micro_batch
        if job.compute["micro_batch"] != "auto" or tried == 1:
            raise StageError(f"out of memory in training with {tried} rollouts at once; what helps: {_SMALLER}")
        asked = tried // 2
        print(f"out of memory in training with {tried} rollouts at once: goes on with at most {asked}", flush=True)
        clear_device_cache(garbage_collection=True)


if __name__ == "__main__":
    run(main, LIBRARIES)
