"""A real Slurm for each worker, and what the tests do with Snakemake and its jobs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import yaml
from copies import Copy, environment
from smoke_study import ROOT

from cluster.slurm import NoSlurm, Slurm

RUN = "gapo/seed-1"  # the one that is trained again
LOG = f"{ROOT}/logs/train/gapo-1.log"
TARGET = f"{ROOT}/runs/{RUN}/checkpoints.parquet"
WAIT = 240.0  # seconds; nothing here takes as long on a quiet machine


def until(said: str, found: Callable[[], object], seconds: float = WAIT) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, f"never came: {said}"
        time.sleep(0.2)


@dataclass
class Work(Copy):
    """A working copy whose jobs go to the Slurm of the tests."""

    slurm: Slurm
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        """What a user's shell has on the login node of this cluster."""
        return environment() | self.slurm.env | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

    def profile(self, change: Callable[[dict], object]) -> None:
        """Change slurm/config.yaml as a user would."""
        path = self.root / "slurm" / "config.yaml"
        profile = yaml.safe_load(path.read_text(encoding="utf-8"))
        change(profile)
        path.write_text(yaml.safe_dump(profile), encoding="utf-8")

    def submit(self, *arguments: str) -> subprocess.Popen[str]:
        """`snakemake --profile slurm`, in the background; looks after its jobs more often than on a real cluster."""
        often = ("--slurm-init-seconds-before-status-checks", "2", "--latency-wait", "5", "--quiet", "rules", "host")
        command = [sys.executable, "-m", "snakemake", "--profile", "slurm", *often, "--", *arguments]
        process = subprocess.Popen(
            command, cwd=self.root, env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.started.append(process)
        return process

    def succeeds(self, process: subprocess.Popen[str]) -> str:
        """Wait for its end; what it said."""
        said, _ = process.communicate(timeout=3 * WAIT)
        assert process.returncode == 0, said[-3000:]
        return said

    def log(self) -> str:
        """The log of the run that is trained again."""
        return (self.root / LOG).read_text(encoding="utf-8", errors="replace")

    def stopped_trainer(self) -> psutil.Process:
        """The trainer of the run, stopped (SIGSTOP) after its first steps: time enough to do something to its job.

        Slurm wakes a job up (SIGCONT) before it ends it.
        """
        progress = self.root / ROOT / "state" / RUN / "progress.json"
        end = time.monotonic() + WAIT
        while True:
            assert time.monotonic() < end, "training never began"
            try:
                said = json.loads(progress.read_text(encoding="utf-8"))
            except (OSError, json.JSONDecodeError):
                said = {"step": 0}
            if 0 < said["step"] < said["steps"]:
                os.kill(said["pid"], signal.SIGSTOP)
                return psutil.Process(said["pid"])
            time.sleep(0.002)


@pytest.fixture(scope="session", params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["bare", "accounting"])
def slurm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A Slurm without or with accounting; skips, with the reason, where none can be had."""
    try:
        with Slurm(tmp_path_factory.mktemp("slurm"), accounting=request.param) as running:
            yield running
    except NoSlurm as reason:
        pytest.skip(str(reason))


@pytest.fixture
def work(slurm: Slurm, tmp_path: Path) -> Iterator[Callable[[Copy], Work]]:
    """work(copy) -> a copy of it to work in; what was started there is ended."""
    made: list[Work] = []

    def copied(original: Copy) -> Work:
        shutil.copytree(original.root, tmp_path / "work", symlinks=True)
        made.append(Work(tmp_path / "work", slurm))
        return made[-1]

    yield copied
    for one in made:
        for process in one.started:
            if process.poll() is None:
                process.kill()
                process.wait()
    for job in slurm.jobs():
        subprocess.run(["scancel", "--signal=KILL", job], env=os.environ | slurm.env, capture_output=True)
        subprocess.run(["scancel", job], env=os.environ | slurm.env, capture_output=True)


@pytest.fixture
def retrained(done: Copy, work: Callable[[Copy], Work]) -> Work:
    """The small study, finished but for one run and all that rests on it."""
    copy = work(done)
    for part in ("runs", "state", "evals"):
        shutil.rmtree(copy.root / ROOT / part / RUN)
    for part in ("tables", "figures"):
        shutil.rmtree(copy.root / ROOT / part)
    for name in ("report.html", "summary.md"):
        (copy.root / ROOT / name).unlink()
    return copy
