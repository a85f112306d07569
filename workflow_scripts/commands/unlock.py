"""`armslength unlock`: let a study go on after its Snakemake was killed.

A killed Snakemake leaves its locks behind, and the jobs it had started go on and would write to the same files as their
second start. Whether a Snakemake is alive here is asked of the kernel: each one holds a shared lock on one file for as
long as it lives (`hold`, called by the Snakefile's onstart), and a lock of the kernel dies with its process.
"""

import argparse
import fcntl
import os
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from workflow_scripts.commands import cluster
from workflow_scripts.stages._started import STARTED

SNAKEMAKE = Path(".snakemake")
GRACE = 20.0  # seconds that an orphaned job gets to save its state


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


def main(arguments: list[str]) -> int:
    """Refuse while a Snakemake works here; else end what a killed one left running and remove its locks."""
    argparse.ArgumentParser(prog="armslength unlock", description=main.__doc__).parse_args(arguments)
    if not SNAKEMAKE.exists():
        return 0
    if alive():
        print(
            "armslength: Snakemake is working in this folder already; wait for it or stop it (Ctrl-C)", file=sys.stderr
        )
        return 1
    left = orphans()
    for process in left:
        process.terminate()
    _, stubborn = psutil.wait_procs(left, timeout=GRACE)
    for process in stubborn:
        process.kill()
    queued = cluster.cancel_pending()
    locks = list((SNAKEMAKE / "locks").glob("*.lock"))
    for lock in locks:
        lock.unlink(missing_ok=True)
    if left or locks or queued:
        ended = f"{len(left)} jobs it had left" + (f", cancelled {queued} in Slurm's queue" if queued else "")
        print(f"armslength: the last Snakemake was killed; ended {ended}, removed its locks")
    return 0
