"""The training stage in processes that die: forked, so that each costs a second and not ten.

`Deaths` starts this file as a process that has imported what the stage needs and forks one process per run; a fork
parses the stage's command line, and ends as the stage does.
"""

import builtins
import json
import math
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What changes the disk for who comes next; fsync does not, since what a process wrote outlives it.
LASTING = ("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "link", "pwrite", "open")


class Deaths:
    """Starts runs of the stage, one at a time."""

    def __init__(self) -> None:
        root = Path(__file__).resolve().parents[2]
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(root)},
        )  # fmt: skip

    def close(self) -> None:
        self._process.communicate()

    def start(self, stage: Any, at: int = 0) -> int:
        """A run of the stage, as a process; its id. at: SIGKILL before the at-th lasting call; 0: never."""
        folder = stage.root.parent
        self._ask({"arguments": stage.arguments, "folder": str(folder), "at": at})
        return int(self._answer())

    def end(self) -> int:
        """Exit code of the run that was started; of one ended by a signal its number below 0."""
        return int(self._answer())

    def run(self, stage: Any, at: int = 0) -> int:
        """Start, and wait for the end."""
        self.start(stage, at)
        return self.end()

    def _ask(self, what: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the process that forks has ended"
        return line


def said(stage: Any) -> str:
    """What the runs of a stage have said so far."""
    return (stage.root.parent / "said.txt").read_text(encoding="utf-8")


def calls(stage: Any) -> list[str]:
    """The lasting calls of the last run that came to an end, in order."""
    return json.loads((stage.root.parent / "calls.json").read_text(encoding="utf-8"))


def _changes(name: str, path: Any, *rest: Any, **more: Any) -> bool:
    """Whether a call of os.name changes anything."""
    if name == "open":
        return bool(rest[0] & os.O_CREAT)
    if name not in ("unlink", "remove", "rmdir", "mkdir"):
        return True
    try:
        os.stat(path, dir_fd=more.get("dir_fd"), follow_symlinks=False)
    except OSError:
        return name == "mkdir"
    return name != "mkdir"


def _watched(at: int, seen: list[str]) -> None:
    """Note each lasting call of the main thread, which alone writes results; die before the at-th."""

    def due(text: str) -> None:
        if threading.current_thread() is threading.main_thread():
            seen.append(text)
            if len(seen) == at:
                os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if _changes(name, *args, **kwargs):
                due(f"{name} {args[0]}")
            return real(*args, **kwargs)

        return call

    def opened(path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        writes = bool(set(mode) & set("wax+"))
        if writes:
            due(f"open {path}")
        file = real_open(path, mode, *args, **kwargs)
        if writes:
            due(f"write {path}")  # there is a file, and nothing in it
        return file

    real_open = builtins.open
    for name in LASTING:
        setattr(os, name, wrapped(name, getattr(os, name)))
    builtins.open = opened  # type: ignore[assignment]


def _run(arguments: list[str], folder: str, at: int) -> int:
    """In the fork: the stage, with a state after every rollout batch, however short, and little told meanwhile."""
    from workflow_scripts import job
    from workflow_scripts.stages import train
    from workflow_scripts.training import callbacks

    file = os.open(Path(folder) / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1), os.dup2(file, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    sys.path.insert(0, folder)
    sys.argv = ["train", *arguments]
    callbacks.SAVING_SHARE, callbacks.PROGRESS_EVERY_SECONDS = 1.0, math.inf
    seen: list[str] = []
    _watched(at, seen)
    code = 0
    try:
        job.run(train.main, train.LIBRARIES)
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, flush=True)
        code = int(bool(error.code))
    except BaseException:
        traceback.print_exc()
        code = 2
    (Path(folder) / "calls.json").write_text(json.dumps(seen), encoding="utf-8")
    return code


def _serve() -> None:
    import datasets  # noqa: F401
    import torch

    from workflow_scripts import grading  # noqa: F401
    from workflow_scripts.stages import train  # noqa: F401
    from workflow_scripts.training import run  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if not pid:
            code = 3
            try:
                code = _run(**asked)
            finally:
                os._exit(code)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    _serve()
