"""`armslength unlock`: let a study go on after its Snakemake was killed.

A killed Snakemake leaves its locks behind, and the jobs it had started go on and would write to the same files as their
second start.
"""

import argparse
import sys

import psutil

from workflow_scripts.launch import cluster
from workflow_scripts.launch.lock import SNAKEMAKE, alive, orphans

GRACE = 20.0  # seconds that an orphaned job gets to save its state


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
