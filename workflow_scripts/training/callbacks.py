"""What happens between optimizer steps: checkpoints, resumable state, progress, and an orderly end on SIGTERM."""

import io
import json
import math
import os
import shutil
import signal
import tarfile
import time
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from workflow_scripts.models.weights import is_adapter, plain_adapter_config, save_checkpoint
from workflow_scripts.training.finished import write_json
from workflow_scripts.training.records import Recorder
from workflow_scripts.training.state import StateFolder, folder_rows, put_in_place, weights_hash

SAVING_SHARE = 0.05  # of the time, at most: a state after every rollout batch, where that is longer than 20 savings
PROGRESS_EVERY_SECONDS = 2.0


class Keeper(TrainerCallback):
    """Keeps what a run must leave behind.

    run_folder: where checkpoints/step-N go; checkpoints: the steps to keep; branches: steps at which other arms
    branch off; state: the resumable state, saved at rollout-batch boundaries only, since only there is a resumed
    run equal to an undisturbed one. Of several processes the main one writes, and all stop and save at the same step.
    """

    def __init__(
        self,
        run_folder: Path,
        checkpoints: list[int],
        branches: list[int],
        state: StateFolder,
        recorder: Recorder,
        updates_per_batch: int,
        keep_last: bool,
    ) -> None:
        self.run_folder, self.checkpoints, self.branches = run_folder, checkpoints, branches
        self.state, self.recorder, self.updates_per_batch, self.keep_last = (
            state,
            recorder,
            updates_per_batch,
            keep_last,
        )
        self.manifest: list[dict[str, Any]] = []
        self.weights: dict[str, str | None] = {}  # step -> hash of what trains, where the run starts and at checkpoints
        self.made_by: list[dict[str, Any]] = []  # what drew and computed, of each job that differs from the one before
        self.terminated = False
        self._saving = math.inf  # seconds, the shortest seen
        self._began_saving = self._last_state = time.monotonic()
        self._last_progress = 0.0
        self._began: dict[str, float] = {}  # step and time at which this job has begun, or gone on

    def watch_signals(self) -> None:
        """From now on SIGTERM (time limit, preemption, scancel) lets the run end at the next rollout-batch boundary,
        its state saved; and lets it put down its results, when it is past its last one."""

        def handler(number: int, frame: Any) -> None:
            self.terminated = True

        signal.signal(signal.SIGTERM, handler)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Weights and optimizer are loaded: of a run that goes on, of a branch, or of the base."""
        self._began = {"step": state.global_step, "time": time.time()}
        self.weights.setdefault(str(state.global_step), weights_hash(_alone(kwargs["model"]), trainable=True))

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """After each optimizer step."""
        step = state.global_step
        if step in self.checkpoints and state.is_world_process_zero:
            self.save_checkpoint(kwargs["model"], step)
        if step % self.updates_per_batch == 0:
            self._began_saving = time.monotonic()
            pause = self._saving * (1 / SAVING_SHARE - 1) if math.isfinite(self._saving) else 0.0
            due = self._began_saving - self._last_state >= pause
            seen = gather_object([(self.terminated, due)])  # signals and clocks of several processes differ
            terminated, due = any(signalled for signalled, _ in seen), seen[0][1]
            last = step == state.max_steps
            if terminated or step in self.branches or (last and self.keep_last) or (due and not last):
                control.should_save = True
            if terminated and not last:
                control.should_training_stop = True
        if state.is_world_process_zero:
            self._progress(state)
        return control

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """A resumable state has just been written by transformers' Trainer."""
        PartialState().wait_for_everyone()  # each process writes its random state
        if not state.is_world_process_zero:
            return
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if state.global_step in self.branches:
            packed = self.state.branch_state(state.global_step)
            _pack(folder, self.state.saving / packed.name)
            if self.state.lease:
                self.state.lease.check()
            os.replace(self.state.saving / packed.name, packed)  # lasts with the state beside it
        self.recorder.save(folder)
        self.state.complete(
            folder,
            {
                "step": state.global_step,
                "checkpoints": self.manifest,
                "weights": self.weights,
                "made_by": self.made_by,
            },
        )
        self._last_state = time.monotonic()
        self._saving = min(self._saving, self._last_state - self._began_saving)

    def save_checkpoint(self, model: Any, step: int) -> None:
        """Weights of `step`, put down in the manifest. Raises LeaseError."""
        folder = self.run_folder / "checkpoints" / f"step-{step}"
        if self.state.lease:
            self.state.lease.check()
        for left in folder.parent.glob(".saving-*"):  # of jobs that have died
            shutil.rmtree(left, ignore_errors=True)
        new = folder.with_name(f".{self.state.saving.name}")  # beside it: renaming needs one file system
        save_checkpoint(_alone(model), new)
        put_in_place(new, folder, self.state.lease)
        self.weights[str(step)] = weights_hash(_alone(model), trainable=True)
        self.manifest += folder_rows(folder, self.run_folder, step=step)

    def _progress(self, state: TrainerState) -> None:
        now = time.time()
        if now - self._last_progress < PROGRESS_EVERY_SECONDS and state.global_step != state.max_steps:
            return
        self._last_progress = now
        reward = next((entry["reward"] for entry in reversed(state.log_history) if "reward" in entry), None)
        # on the first update of a batch nothing can clip
        clipped = [
            entry["clip_ratio/region_mean"]
            for entry in state.log_history
            if (entry["step"] - 1) % self.updates_per_batch and "clip_ratio/region_mean" in entry
        ]
        progress = {
            "step": state.global_step,
            "steps": state.max_steps,
            "reward": reward,
            "clipped": sum(clipped) / len(clipped) if clipped else None,
            "entropy": next((entry["entropy"] for entry in reversed(state.log_history) if "entropy" in entry), None),
            "time": now,
            "began": self._began,
            "pid": os.getpid(),
        }
        write_json(self.state.run / "progress.json", progress)


def _alone(model: Any) -> Any:
    """The model without what distributes it."""
    return getattr(model, "module", model)


def _pack(folder: Path, target: Path) -> None:
    """What a branch goes on from as one file: weights, optimizer, scheduler, and the step.

    Nothing else (the log, arguments of this machine, random states, which no stream depends on), and fixed times: equal
    states are equal files.
    """
    course = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
    # no part of a state: how many rollouts at once, how far its run was to go, and that this job was just told to end
    course |= {"log_history": [], "train_batch_size": 1, "max_steps": 0, "num_train_epochs": 0, "epoch": 0.0}
    course["stateful_callbacks"] = {"TrainerControl": TrainerControl().state()}
    contents = {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix in (".safetensors", ".pt")}
    contents |= {"trainer_state.json": json.dumps(course, sort_keys=True).encode()}
    if is_adapter(folder):
        contents["adapter_config.json"] = plain_adapter_config(folder / "adapter_config.json").encode()
    with open(target, "wb") as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, content in sorted(contents.items()):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        file.flush()
        os.fsync(file.fileno())


def unpack(archive: Path, folder: Path, optimizer: str) -> Path:
    """A branch state as a folder to resume from; `reset` leaves optimizer and scheduler behind."""
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    if optimizer == "reset":
        for name in ("optimizer.pt", "scheduler.pt"):
            (folder / name).unlink(missing_ok=True)
    return folder
