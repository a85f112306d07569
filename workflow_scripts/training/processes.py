"""One training job as several data-parallel processes on this machine.

Not through torchrun or `accelerate launch`: those kill their workers thirty seconds after a SIGTERM, before the end of
a rollout batch, and accelerate starts several processes without a GPU only through MPI.
"""

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.spawn import ProcessException, start_processes

from workflow_scripts.errors import UserError

TRACEBACK = 4000  # characters, few enough for those of all processes to fit in a pipe
SECONDS_TO_END = 5.0  # for the others, when one has failed: they stand in a collective that will never end


class ProcessesError(UserError):
    """A process has ended in a way that says nothing itself; one line for the user."""


def processes(compute: dict[str, Any]) -> int:
    """Processes of one training job: as many as GPUs, if `compute.processes` does not say."""
    return compute["processes"] or max(1, compute["gpus"])


def _member(
    rank: int,
    environment: dict[str, str],
    faults: Any,
    known: tuple[type[Exception], ...],
    work: Callable[..., None],
    arguments: Any,
) -> None:
    os.environ |= environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    try:
        work(*arguments)
    except Exception as error:
        faults.put(error if isinstance(error, known) else "".join(traceback.format_exception(error))[-TRACEBACK:])
        sys.exit(1)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def launch(
    compute: dict[str, Any], known: tuple[type[Exception], ...], work: Callable[..., None], *arguments: Any
) -> None:
    """Run work(*arguments) in the processes of a job, which form one group of torch.distributed; SIGTERM is passed on.

    The first exception of all, which the others only follow, is raised here if it is of a `known` type. Else, and where
    a process was killed, ProcessesError, after the traceback.
    """
    count = processes(compute)
    faults = torch.multiprocessing.get_context("spawn").SimpleQueue()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": str(compute["threads"]),  # accelerate would share all cores among the processes
    }  # fmt: skip
    if compute["device"] == "cpu":
        environment["ACCELERATE_TORCH_DEVICE"] = "cpu"  # cpu:0, its own choice, is no place torch.load knows
    group: Any = None
    asked = False

    def forward(number: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        for process in group.processes if group else ():
            if process.is_alive():
                process.terminate()

    before = signal.signal(signal.SIGTERM, forward)
    try:
        group = start_processes(_member, (environment, faults, known, work, arguments), count, join=False)
        if asked:  # while they were being started
            forward(signal.SIGTERM, None)
        while not group.join(grace_period=SECONDS_TO_END):
            pass
    except ProcessException as error:
        first = None if faults.empty() else faults.get()
        if isinstance(first, Exception):
            raise first from None
        killed = getattr(error, "signal_name", None)
        if killed or first is None:
            why = f"by {killed}; SIGKILL may mean that the machine's memory ended" if killed else error.msg
            raise ProcessesError(f"process {error.error_index} of {count} was ended {why}") from None
        print(first, flush=True)
        raise ProcessesError(f"one of {count} processes has ended: {first.strip().splitlines()[-1]}") from None
    finally:
        signal.signal(signal.SIGTERM, before)
