"""Whether a Snakemake is at work in this folder, and which jobs a killed one has left.

Asked of the kernel: each Snakemake holds a shared lock on one file for as long as it lives (`hold`, called when it
starts), and a lock of the kernel dies with its process.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

import psutil

from workflow_scripts.started import STARTED

SNAKEMAKE = Path(".snakemake")


def _open() -> int:
    SNAKEMAKE.mkdir(exist_ok=True)
    return os.open(SNAKEMAKE / "alive.lock", os.O_RDWR | os.O_CREAT)  # Python does not hand it on to jobs


def hold() -> None:
    """Hold the folder's lock until this process ends."""
    with suppress(OSError):  # a file system without locks; see `alive`
        fcntl.flock(_open(), fcntl.LOCK_SH)


def alive() -> bool:
    """Is a Snakemake working in this folder?"""
    file = _open()
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: those of this machine can be seen
        return any("snakemake" in line for line in _here().values())
    finally:
        os.close(file)
    return False


def orphans() -> list[psutil.Process]:
    """Jobs of this folder that run here without their Snakemake; those of a cluster are the cluster's."""
    return [process for process in _here() if _of_a_stage(process)]


def _here() -> dict[psutil.Process, str]:
    """Processes that work in this folder with their command lines, but for this one and what started it."""
    mine = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if Path(process.cwd()) == Path.cwd() and process.pid not in mine:
                found[process] = " ".join(process.cmdline())
    return found


def _of_a_stage(process: psutil.Process) -> bool:
    """A stage of this machine or of this allocation, or one of the processes that a training has started."""
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        environment = process.environ()
        stage = any(word.startswith("workflow_scripts.stages.") for word in process.cmdline())
        same = environment.get("SLURM_JOB_ID") == os.environ.get("SLURM_JOB_ID")
        return same and (stage or environment.get(STARTED) == "1")
    return False
