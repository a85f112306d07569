"""What is asked of Slurm, and when: GPUs, and what is wrong in slurm/config.yaml. The stages are instant."""

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from copies import Copy, instant

from cluster.conftest import Work
from cluster.slurm import Slurm

RUNS = [f"results/tiny/runs/{run}/checkpoints.parquet" for run in ("fixed/seed-0", "gapo/seed-0", "gapo/seed-1")]


def untrained(root: Path, gpus: int, seconds: float) -> None:
    """Trainings take so many seconds, ask for so many GPUs, and are all that is to be done."""
    shutil.rmtree(root / "results/tiny/runs")
    (root / "seconds.json").write_text(json.dumps({"train": seconds}))
    Copy(root).study(lambda study: study.update(compute={"gpus": gpus}))


@pytest.fixture
def finished(once: Callable[..., Path]) -> Copy:
    """The small study run to its end by instant stages; the one that the tests of the workflow use."""
    return Copy(once("finished", lambda root: instant(root).snakemake("--cores", "2", "--quiet", "all")))


@pytest.mark.slow
def test_a_cluster_gets_all_gpu_jobs_at_once(finished: Copy, work: Callable[[Copy], Work], slurm: Slurm) -> None:
    copy = work(finished)
    untrained(copy.root, gpus=1, seconds=4)
    before = set(slurm.jobs())
    copy.succeeds(copy.submit(*RUNS))
    jobs = [row for name, row in slurm.jobs().items() if name not in before]
    assert [row["JobState"] for row in jobs] == ["COMPLETED"] * len(RUNS)
    assert {row["TresPerJob"] for row in jobs} == {"gres:gpu:1"}
    assert max(row["StartTime"] for row in jobs) < min(row["EndTime"] for row in jobs)


@pytest.mark.parametrize(("gpus", "at_once"), [(1, 1), (0, 3)])
def test_gpu_jobs_take_turns_on_one_machine_and_others_do_not(
    gpus: int, at_once: int, finished: Copy, tmp_path: Path
) -> None:
    root = tmp_path / "local"
    shutil.copytree(finished.root, root, symlinks=True)
    untrained(root, gpus, seconds=1)
    seen, over = [0], threading.Event()

    def count() -> None:
        while not over.is_set():
            found = [p.info for p in psutil.process_iter(["cmdline", "cwd"]) if p.info["cwd"] == str(root)]
            seen.append(sum(p["cmdline"][1:3] == ["-m", "workflow_scripts.stages.train"] for p in found))
            time.sleep(0.1)

    watching = threading.Thread(target=count)
    watching.start()
    try:
        targets = ("--cores", "4", "--quiet", "all", "--", *RUNS)
        Copy(root).snakemake(*targets, env={"CUDA_VISIBLE_DEVICES": "0"})
    finally:
        over.set()
        watching.join()
    assert max(seen) == at_once


def test_what_slurm_would_refuse_is_said_in_a_line_before_anything_is_submitted(
    finished: Copy, work: Callable[[Copy], Work], slurm: Slurm
) -> None:
    copy = work(finished)
    untrained(copy.root, gpus=1, seconds=0)
    needs = {
        "train_fixed": {"slurm_partition": "nope", "gpu_modle": "a100"},
        "train": {"gpu_model": "h900"},
        "trian": {"runtime": 5},
    }
    copy.profile(lambda profile: profile.update({"set-resources": needs}))
    copy.profile(lambda profile: profile["default-resources"].update(slurm_account="nobody"))
    before = set(slurm.jobs())
    said, _ = copy.submit(*RUNS).communicate()
    assert "set-resources: trian: no rule of that name" in said
    lines = [line.strip() for line in said.splitlines() if "slurm/config.yaml: " in line]
    assert len(lines) == 4 + slurm.accounting  # without it, no account is wrong
    assert any(
        "train_fixed: gpu_modle: no resource that Slurm's jobs have; did you mean gpu_model?" in x for x in lines
    )
    assert (
        any("slurm_account: 'nobody' is not yours; there are: " in line and "tests" in line for line in lines)
        == slurm.accounting
    )
    assert any("train_fixed: sbatch would refuse it: invalid partition specified: nope" in line for line in lines)
    assert any("train: sbatch would refuse it" in line and "--gpus=h900:1" in line for line in lines)
    assert "Traceback" not in said
    copy.profile(lambda profile: profile.pop("set-resources"))
    copy.profile(lambda profile: profile["default-resources"].pop("slurm_account"))
    copy.profile(lambda profile: profile["default-resources"].update(mem_mb="20000 * attempt"))
    said, _ = copy.submit(*RUNS).communicate()
    (line,) = [line.strip() for line in said.splitlines() if "slurm/config.yaml: " in line]
    assert "sbatch would refuse its try 4: " in line and "--mem 80000" in line
    assert set(slurm.jobs()) <= before  # Slurm forgets old ones
