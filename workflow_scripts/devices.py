"""Which GPUs of this machine a job takes, where several are visible to it; and what it computes on."""

import fcntl
import itertools
import os
import platform
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from workflow_scripts.errors import UserError
from workflow_scripts.job import Job

_held: list[TextIO] = []  # a lock lasts as long as its file is open: until this process ends, however it ends


def take_gpus(job: Job, count: int) -> None:
    """Restrict this process and those it starts to `count` GPUs, of the visible ones those that fewest other jobs of
    this user hold. To be called before CUDA starts.

    Without it all jobs on a machine would sit on its first GPU.
    """
    import torch

    if job.compute["device"] == "cpu":
        return
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    here = torch.cuda.device_count()
    visible = said.split(",")[:here] if said else [str(number) for number in range(here)]
    if count > len(visible):
        raise UserError(f"compute.gpus: {count}: at most {len(visible)}: so many GPUs are visible here")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(_least_held(visible, count, Path(tempfile.gettempdir())))


def hardware(device: str, processes: int) -> str:
    """What a training of so many processes computes on, for the record: its GPUs, or the processor and what torch uses
    of it (sums of floats differ with both)."""
    import torch

    if device != "cpu":
        return f"{processes} x {torch.cuda.get_device_name()}"
    said = ""
    with suppress(OSError):  # Linux alone has it
        said = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    names = [line.partition(":")[2].strip() for line in said.splitlines() if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def _least_held(names: Sequence[str], count: int, folder: Path) -> list[str]:
    """`count` of the names, each marked in the folder as held once more by this process."""
    taken: list[str] = []
    for level in itertools.count():
        for name in names:
            if name not in taken and _lock(folder / f"armslength-{os.getuid()}-gpu-{name}-{level}.lock"):
                taken.append(name)
                if len(taken) == count:
                    return sorted(taken, key=list(names).index)
    raise AssertionError("some level is free")


def _lock(path: Path) -> bool:
    file = open(path, "w")  # noqa: SIM115 (held open on purpose)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return False
    _held.append(file)
    return True
