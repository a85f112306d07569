"""Killed anywhere and started again, a study ends without doing a finished job twice."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from copies import Copy, environment, instant

CORES = 2
TARGET = "results/tiny/tables/counts.parquet"  # all that trains, samples and grades; statistics would only take time


@pytest.fixture
def slow(tmp_path: Path) -> Copy:
    """A copy in which nothing has run yet and training takes its time."""
    copy = instant(tmp_path / "copy")
    (copy.root / "seconds.json").write_text(json.dumps({"train": 3}))
    return copy


def begun(slow: Copy) -> subprocess.Popen[bytes]:
    """Snakemake at work in the copy, in a session of its own, seen until a run is being trained."""
    command = [sys.executable, "-m", "snakemake", "--cores", str(CORES), "--quiet", "all", "--", TARGET]
    process = subprocess.Popen(command, cwd=slow.root, env=environment(), start_new_session=True)
    deadline = time.time() + 120
    while not training(slow) and time.time() < deadline:
        assert process.poll() is None
        time.sleep(0.1)
    return process


def ended(slow: Copy, process: subprocess.Popen[bytes]) -> None:
    """Snakemake and all its jobs are killed."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    for orphan in training(slow):
        orphan.kill()
    process.wait()


@pytest.fixture
def started(slow: Copy) -> Iterator[subprocess.Popen[bytes]]:
    """See `begun`."""
    process = begun(slow)
    yield process
    ended(slow, process)


def training(copy: Copy) -> list[psutil.Process]:
    """Training jobs that are running in the copy."""
    found = []
    for process in psutil.process_iter():
        try:
            if "workflow_scripts.stages.train" in process.cmdline() and Path(process.cwd()) == copy.root:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def as_make_run(copy: Copy) -> subprocess.CompletedProcess[str]:
    """The two commands of `make run`."""
    copy.command("workflow_scripts", "unlock")
    return copy.snakemake("--cores", str(CORES), "--quiet", "rules", "host", "--", TARGET, check=False)


def test_killed_without_its_jobs_and_then_with_all_of_them(slow: Copy, started: subprocess.Popen[bytes]) -> None:
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    assert training(slow)
    said = slow.command("workflow_scripts", "unlock").stdout
    assert "the last Snakemake was killed" in said
    assert not training(slow)
    ended(slow, begun(slow))
    before = slow.ran()
    done = as_make_run(slow)
    assert done.returncode == 0, done.stdout[-2000:]
    again = [path for path, times in slow.ran().items() if times > 1]
    assert before
    assert len(again) <= 2 * CORES  # at most what had ended without Snakemake's knowledge
    assert slow.would_run(TARGET) == set()


@pytest.mark.slow
def test_a_living_snakemake_is_not_disturbed(slow: Copy, started: subprocess.Popen[bytes]) -> None:
    for command in ("unlock", "adopt"):
        refused = slow.command("workflow_scripts", command, check=False)
        assert refused.returncode == 1
        assert "working in this folder" in refused.stdout
    assert training(slow)
    assert started.wait(timeout=120) == 0
    assert slow.command("workflow_scripts", "unlock").stdout == ""


def test_status_reads_files_while_snakemake_works(slow: Copy, started: subprocess.Popen[bytes]) -> None:
    state = slow.root / "results/tiny/state/gapo/seed-1"
    state.mkdir(parents=True)
    (state / "progress.json").write_text(json.dumps({"step": 4, "steps": 8, "reward": 0.25, "time": time.time()}))
    said = slow.command("workflow_scripts", "status").stdout
    assert "step 4 of 8" in said
    assert "6 runs: 0 trained" in said or "6 runs: 1 trained" in said or "6 runs: 2 trained" in said


def test_a_failed_job_is_named_with_its_log_and_its_cause(copy: Copy) -> None:
    stage = copy.root / "workflow_scripts/stages/grade.py"
    text = stage.read_text()
    stage.write_text(text.replace("    run(main, LIBRARIES)", "    raise SystemExit('armslength: no grader here')"))
    for path in (copy.root / "results/tiny/evals").glob("*/seed-*/*/samples.parquet"):
        path.unlink()
    shutil.rmtree(copy.root / "results/tiny/logs/grade")
    done = copy.snakemake(TARGET, "--cores", str(CORES), "--keep-going", "--quiet", "rules", "host", check=False)
    assert done.returncode == 1
    logs = list((copy.root / "results/tiny/logs/grade").glob("*.log"))
    assert len(logs) == 6
    for path in logs:
        assert f"{path.relative_to(copy.root)}: no grader here" in done.stdout
    assert "logs/train" not in done.stdout.split("no grader here", 1)[1]
    before = copy.ran()
    stage.write_text(text)
    again = as_make_run(copy)
    assert again.returncode == 0
    assert set((copy.ran() - before).values()) == {1}
    assert {Path(path).name for path in copy.ran() - before} == {"samples.parquet", "counts.parquet"}


def test_results_may_be_moved_and_lie_behind_a_link(copy: Copy, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch" / "results"
    scratch.parent.mkdir()
    shutil.move(copy.root / "results", scratch)
    moved = Copy(copy.root.rename(tmp_path / "moved"))
    (moved.root / "results").symlink_to(scratch)
    assert moved.would_run() == set()


def test_after_a_clock_was_set_back_jobs_end_well(copy: Copy) -> None:
    """Of inputs from the future Snakemake makes failed jobs, and removes what those made."""
    tomorrow = time.time() + 86_400
    for path in (copy.root / "results").rglob("*.parquet"):
        os.utime(path, (tomorrow, tomorrow))
    copy.study(lambda study: study["analysis"].update(margin=0.03))
    done = copy.snakemake(
        "--cores", str(CORES), "--quiet", "rules", "host", "--", "results/tiny/tables/effects.parquet"
    )
    assert "had timestamps in the future; they were reset to the current time" in done.stdout
    assert copy.ran()["results/tiny/tables/effects.parquet"] == 2
    assert max(path.stat().st_mtime for path in (copy.root / "results").rglob("*.parquet")) < tomorrow - 3600


@pytest.mark.slow
def test_a_second_snakemake_on_the_same_results_is_refused(slow: Copy, started: subprocess.Popen[bytes]) -> None:
    refused = slow.snakemake("--cores", "1", "--quiet", "rules", "host", "--", TARGET, check=False)
    assert refused.returncode == 1
    assert "Directory cannot be locked" in refused.stdout
    assert training(slow)
    assert started.wait(timeout=120) == 0
    assert max(slow.ran().values()) == 1


def test_a_result_without_a_record_is_not_taken_for_current(copy: Copy) -> None:
    """A cluster job that outlives its Snakemake leaves one; no change of settings would be seen from then on."""
    output = "results/tiny/evals/gapo/seed-0/word_problems_test/samples.parquet"
    record = copy.root / ".snakemake" / "metadata" / base64.b64encode(output.encode()).decode()
    record.unlink()
    said = f"1 results have no record of how they were made ({output})"
    effects = "results/tiny/tables/effects.parquet"
    for arguments, code in (("-n", effects), 0), ((effects,), 1):  # Snakemake finds nothing to do
        done = copy.snakemake(*arguments, "--cores", "1", check=False)
        assert "Nothing to be done" in done.stdout
        assert said in done.stdout
        assert done.returncode == code
    copy.study(lambda study: study["analysis"].update(margin=0.03))
    refused = copy.snakemake("--cores", "1", "--quiet", "rules", "host", "--", effects, check=False)
    assert refused.returncode == 1
    assert said in refused.stdout
    copy.command("workflow_scripts", "adopt")
    copy.snakemake("--cores", "1", "--quiet", "rules", "host", "--", effects)
    assert copy.ran()[effects] == 2
    assert copy.ran()[output] == 1
