"""The resumable state of a training run, and the checkpoints it leaves.

State lies in an undeclared folder, one sub-folder per identity and saved rollout-batch boundary: what transformers'
Trainer needs to go on (weights, optimizer, scheduler, random states), the records so far, and ``state.json``, which
names the run's identity (settings without steps and checkpoints, code, inputs) and every file with its hash. A state
is written beside the others, forced to the disk and only then renamed into its place; what is half-written, damaged, of
another identity, or without one of its files is ignored. Checkpoints hold only what changed, as safetensors.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch

from workflow_scripts import tables
from workflow_scripts.training.finished import durable, write_json
from workflow_scripts.training.lease import Lease


def identity(settings: dict[str, Any], code: str, inputs: str) -> str:
    """Digest of what must be equal for a saved state to be continued: more steps may be asked for, nothing else."""
    lasting = settings["training"]["schedule"].startswith("constant")  # else the rates depend on the number of steps
    free = {"steps", "checkpoints"} if lasting else {"checkpoints"}
    training = {k: v for k, v in settings["training"].items() if k not in free}
    return tables.text_digest(json.dumps([{**settings, "training": training}, code, inputs], sort_keys=True))


def weights_hash(model: torch.nn.Module, trainable: bool) -> str | None:
    """sha256 over names and bytes of the parameters that train (or of those that do not); None if there are none."""
    sha, found = hashlib.sha256(), False
    for name, parameter in sorted(model.named_parameters()):
        if parameter.requires_grad == trainable:
            found = True
            sha.update(name.encode())
            sha.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:16] if found else None


def folder_rows(folder: Path, relative_to: Path, **columns: Any) -> list[dict[str, Any]]:
    """One manifest row per file below a folder: path, sha256, bytes."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return [
        {
            **columns,
            "file": p.relative_to(relative_to).as_posix(),
            "sha256": tables.file_sha256(p),
            "bytes": p.stat().st_size,
        }
        for p in files
    ]


def put_in_place(folder: Path, target: Path, lease: Lease | None) -> None:
    """Rename a folder that is written to the end, replacing what is there, unless the lease is lost."""
    durable(folder)
    if lease:
        lease.check()
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(folder, target)
    durable(target.parent, below=False)


class StateFolder:
    """Where one run keeps what a restarted job needs. lease: of `run`; without one nobody else may be at work."""

    def __init__(self, run: Path, identity: str, lease: Lease | None = None) -> None:
        self.run, self.folder, self.identity, self.lease = run, run / identity, identity, lease
        self.saving = self.folder / f"saving-{lease.token if lease else ''}"
        self.saving.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob("saving-*"):  # of jobs that have died
            if left != self.saving:
                shutil.rmtree(left, ignore_errors=True)
        for left in (run / "progress.json", *run.glob(".progress.json.*.tmp")):
            left.unlink(missing_ok=True)

    @property
    def finished(self) -> Path:
        """What the run leaves when it is done; see `training.finished`."""
        return self.folder / "finished"

    def branch_state(self, step: int) -> Path:
        """The state of that step as one file, for the arms that branch off there."""
        return self.folder / f"branch-{step}.tar"

    def complete(self, checkpoint: Path, extra: dict[str, Any]) -> None:
        """Put a state that was saved in `saving` in its place, then drop older ones. Raises LeaseError."""
        files = {p.name: tables.file_sha256(p) for p in checkpoint.iterdir()}
        write_json(checkpoint / "state.json", {"identity": self.identity, "files": files, **extra})
        put_in_place(checkpoint, self.folder / checkpoint.name, self.lease)
        for other in self._saved():
            if other.name != checkpoint.name:
                shutil.rmtree(other, ignore_errors=True)

    def _saved(self) -> list[Path]:
        found = [path for path in self.folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdecimal()]
        return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))

    def _whole(self, folder: Path) -> dict[str, Any] | None:
        """What a state of this identity says of itself; None if it is not whole."""
        try:
            saved = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            if not isinstance(saved, dict) or saved.get("identity") != self.identity:
                return None
            files = {p.name: tables.file_sha256(p) for p in folder.iterdir() if p.name != "state.json"}
        except (OSError, ValueError):
            return None
        if saved.get("files") != files:
            return None
        return saved

    def newest(
        self, steps: int, checkpoints: list[int], branches: list[int], run_folder: Path
    ) -> tuple[Path, dict[str, Any]] | None:
        """The newest whole state of this identity within `steps`, if what it should have left on its way (checkpoints,
        and the states at `branches`) is still there."""
        for candidate in reversed(self._saved()):
            saved = self._whole(candidate)
            if saved is None or saved["step"] > steps:
                continue
            known = {row["file"]: row["sha256"] for row in saved["checkpoints"]}
            wanted = [step for step in checkpoints if step <= saved["step"]]
            have = {row["step"] for row in saved["checkpoints"]}
            intact = all(
                (run_folder / f).is_file() and tables.file_sha256(run_folder / f) == h for f, h in known.items()
            )
            branched = all(self.branch_state(step).is_file() for step in branches if step <= saved["step"])
            if intact and branched and have.issuperset(wanted):
                return candidate, saved
        return None

    def remove(self) -> None:
        """The run is done and no state is to be kept; only what it leaves stays until Snakemake knows of it."""
        for path in self.folder.iterdir():
            if path != self.finished:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        self.ended()

    def ended(self) -> None:
        """Nothing more is written; of several states, left by a job that died while it removed one, the last stays."""
        for older in self._saved()[:-1]:
            shutil.rmtree(older, ignore_errors=True)
        shutil.rmtree(self.saving, ignore_errors=True)
        (self.run / "progress.json").unlink(missing_ok=True)
