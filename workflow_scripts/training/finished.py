"""What a finished run leaves until Snakemake knows of it.

Snakemake removes the outputs of a job that it did not see ending: after its own death, or when a node died in the last
second. A finished run therefore keeps links to its outputs beside its state, which cost no space; started again with
the same key it hands them out and trains nothing. They go when a Snakemake ends that found the outputs in place.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

_WHOLE = "finished.json"
_DIVERGED = "diverged.json"
# How the log of a training says that another job did a part of the run, or all of it.
RESUMES = "resumes at step"
HANDED_OUT = "finished before; its outputs are handed out again"


def durable(folder: Path, below: bool = True) -> None:
    """The folder, and files and folders below, are on the disk, whatever happens to the machine."""
    for path in [*(folder.rglob("*") if below else ()), folder]:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def write_json(path: Path, value: Any) -> None:
    """Atomically: a reader sees the old text or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def note_divergence(folder: Path, why: str) -> None:
    """Leave in a run's state folder that the run diverged, of one that leaves no outputs."""
    write_json(folder / _DIVERGED, {"why": why})


def read_divergence(folder: Path) -> str | None:
    """Why the run diverged that left no outputs; None if it did not."""
    try:
        return str(json.loads((folder / _DIVERGED).read_text(encoding="utf-8"))["why"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget_divergence(folder: Path) -> None:
    """The run is begun again."""
    (folder / _DIVERGED).unlink(missing_ok=True)


def seal(folder: Path, key: dict[str, Any], outputs: dict[str, str], root: Path) -> None:
    """Mark a folder of staged files as whole. key: what must be equal for them to be handed out; outputs: file in the
    folder → where it belongs, below root."""
    below = {name: os.path.relpath(target, root) for name, target in outputs.items()}
    write_json(folder / _WHOLE, {"key": key, "outputs": below})
    durable(folder)


def publish(folder: Path, key: dict[str, Any], outputs: dict[str, str]) -> bool:
    """Put the files of a sealed folder where they belong; False if there are none of this key and of these outputs."""
    try:
        said = json.loads((folder / _WHOLE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if not isinstance(said, dict) or said.get("key") != json.loads(json.dumps(key)):
        return False
    if said.get("outputs", {}).keys() != outputs.keys():  # where they belong may have moved
        return False
    if not all((folder / name).is_file() for name in outputs):
        return False
    for name, target in outputs.items():
        _link(folder / name, Path(target))
    return True


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    for left in target.parent.glob(f".{target.name}.*.tmp"):  # of jobs that have died
        left.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, temporary)
    os.utime(temporary)  # as new as the job that hands it out
    os.replace(temporary, target)
    temporary.unlink(missing_ok=True)  # renaming one link of a file to another one does nothing


def forget(root: Path, known: Callable[[str], bool]) -> None:
    """Of all runs of a study: drop the links where the outputs are in place. known: whether Snakemake has a record of
    how a file was made."""
    for mark in root.glob(f"state/*/seed-*/*/finished/{_WHOLE}"):
        try:
            outputs = json.loads(mark.read_text(encoding="utf-8"))["outputs"]
        except (OSError, ValueError, KeyError):
            continue
        if all((root / target).exists() and known(str(root / target)) for target in outputs.values()):
            shutil.rmtree(mark.parent, ignore_errors=True)
            for folder in (mark.parents[1], mark.parents[2], mark.parents[3]):
                with contextlib.suppress(OSError):  # not empty: there is a state, or another run is at work
                    folder.rmdir()
