"""The resumable state of a training run, and the checkpoints it leaves.

State lies in an undeclared folder, one sub-folder per identity and saved rollout-batch boundary: what transformers'
Trainer needs to go on (weights, optimizer, scheduler, random states), the records so far, and last of all
``state.json``: without that file a state is half-written and ignored. It names the run's identity (settings without
steps and checkpoints, code, inputs); a state of another identity is refused. Checkpoints hold only what changed, as
safetensors.
"""

import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch

from workflow_scripts import tables


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


def write_json(path: Path, value: Any) -> None:
    """Atomically: a reader sees the old text or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


class StateFolder:
    """Where one run keeps what a restarted job needs."""

    def __init__(self, run: Path, identity: str) -> None:
        self.run, self.folder, self.identity = run, run / identity, identity
        self.folder.mkdir(parents=True, exist_ok=True)
        (run / "progress.json").unlink(missing_ok=True)

    def branch_state(self, step: int) -> Path:
        """The state of that step as one file, for the arms that branch off there."""
        return self.folder / f"branch-{step}.tar"

    def complete(self, checkpoint: Path, extra: dict[str, Any]) -> None:
        """Mark a saved state as whole, then drop older ones."""
        write_json(checkpoint / "state.json", {"identity": self.identity, **extra})
        for other in self._saved():
            if other != checkpoint:
                shutil.rmtree(other, ignore_errors=True)

    def _saved(self) -> list[Path]:
        return sorted(self.folder.glob("checkpoint-*"), key=lambda p: int(p.name.rpartition("-")[2]))

    def newest(
        self, steps: int, checkpoints: list[int], branches: list[int], run_folder: Path
    ) -> tuple[Path, dict[str, Any]] | None:
        """The newest whole state of this identity within `steps`, if what it should have left on its way (checkpoints,
        and the states at `branches`) is still there."""
        for candidate in reversed(self._saved()):
            try:
                saved = json.loads((candidate / "state.json").read_text(encoding="utf-8"))
            except (OSError, json.JSONDecodeError):
                continue
            if saved["identity"] != self.identity or saved["step"] > steps:
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
        """The run is done and no state is to be kept."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.run / "progress.json").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # states of other settings may lie beside this one
            self.run.rmdir()
