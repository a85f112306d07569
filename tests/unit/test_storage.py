"""A disk that fills up, one that cannot be written, files from the future, and two trainers of one run: right results
or one line, and nothing lost."""

import contextlib
import errno
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from training_stage import Stage, last_line

from workflow_scripts.launch import cluster, lock, progress, sources
from workflow_scripts.started import STARTED

Mount = Callable[..., None]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Mounts at the place given last, until the test ends."""
    places = []

    def mounted(*arguments: str) -> None:
        done = subprocess.run(["mount", *arguments], text=True, capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"mounting needs root and a kernel that allows it: {done.stderr.strip()}")
        places.append(arguments[-1])

    yield mounted
    for place in dict.fromkeys(places):
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    stage = Stage(tmp_path_factory.mktemp("undisturbed"))
    stage.settings["training"]["reward"] = "rewards:counted"
    return stage.trained()


@pytest.mark.parametrize("spare", [64, *(pytest.param(kilobytes, marks=pytest.mark.slow) for kilobytes in (500, 1500))])
def test_on_a_full_disk_a_run_ends_in_one_line_and_goes_on_when_there_is_room(
    spare: int, undisturbed: Stage, mount: Mount, tmp_path: Path
) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place))
    stage = Stage(place / "run")
    stage.settings["training"]["reward"] = "rewards:counted"
    used = sum(p.stat().st_size + 4096 for p in place.rglob("*"))
    mount("-o", f"remount,size={used // 1024 + spare}k", str(place))
    done = stage.train()
    assert done.returncode == 1, done.stdout
    assert last_line(done).startswith(f"armslength: no space left on the disk, or in the quota, of {stage.root}")
    mount("-o", "remount,size=64m", str(place))
    stage.trained()
    kept = {name: sha for name, sha in undisturbed.files().items() if name.startswith("runs/")}
    assert {name: sha for name, sha in stage.files().items() if name.startswith("runs/")} == kept
    assert len(stage.drawn) <= 4  # two rollout batches; the one that was going, and what a full disk kept of no state


def test_where_results_cannot_be_written_the_job_says_so(mount: Mount, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    mount("--bind", str(stage.root), str(stage.root))
    mount("-o", "remount,ro,bind", str(stage.root))
    done = stage.train()
    assert done.returncode == 1
    assert last_line(done).startswith("armslength: ")
    assert f"Read-only file system; the study writes below {stage.root}" in last_line(done)
    (said,) = sources.unwritable(stage.root / "runs" / "arm" / "seed-0")
    assert said == f"{stage.root} cannot be written; run in a folder that can (snakemake --directory)"
    assert sources.unwritable(tmp_path / "other") == []
    one = tmp_path / "one"
    (one / "logs").mkdir(parents=True)
    mount("--bind", str(one / "logs"), str(one / "logs"))
    mount("-o", "remount,ro,bind", str(one / "logs"))
    (said,) = sources.unwritable(one)
    assert said.startswith(f"{one / 'logs'} cannot be written")


def test_where_a_job_could_not_even_write_its_log_the_end_says_why(mount: Mount, tmp_path: Path) -> None:
    root = tmp_path / "results"
    root.mkdir()
    assert progress.failures(root) == []
    mount("-t", "tmpfs", "-o", "size=512k", "tmpfs", str(root))
    (root / "logs").mkdir()
    (root / "logs" / "count.log").touch()
    (root / "logs" / "train.log").write_text("armslength: no such model\n")
    assert progress.failures(root) == [
        f"{root}: no space left on the disk; free some and start again", f"{root}/logs/train.log: no such model",
    ]  # fmt: skip


def test_of_two_trainers_of_one_run_the_second_waits_and_trains_nothing(undisturbed: Stage, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.settings["training"]["reward"] = "rewards:counted"
    first = stage.start()
    while not list(stage.root.glob("state/*/*/lease-*")) and first.poll() is None:
        time.sleep(0.02)
    second = stage.start()
    said = [job.communicate(timeout=300)[0] for job in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), said
    assert f"waits for process {first.pid} on " in said[1]
    assert "finished before; its outputs are handed out again" in said[1]
    assert stage.drawn == undisturbed.drawn
    kept = {name: sha for name, sha in undisturbed.files().items() if name.startswith("runs/")}
    assert {name: sha for name, sha in stage.files().items() if name.startswith("runs/")} == kept


def test_files_of_the_future_are_of_now(tmp_path: Path) -> None:
    for name, ahead in (("old", -1e6), ("new", 0.0), ("future", 1e5)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() + ahead,) * 2)
    assert sources.set_to_now(tmp_path) == 1
    assert (tmp_path / "future").stat().st_mtime <= time.time() + 1
    assert (tmp_path / "old").stat().st_mtime < time.time() - 1e5
    assert sources.set_to_now(tmp_path / "none") == 0


def test_a_command_on_a_folder_that_cannot_be_written_says_so(mount: Mount, tmp_path: Path) -> None:
    (tmp_path / ".snakemake").mkdir()
    mount("--bind", str(tmp_path), str(tmp_path))
    mount("-o", "remount,ro,bind", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "workflow_scripts", "unlock"], cwd=tmp_path, text=True, capture_output=True, check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "armslength: .snakemake/alive.lock: cannot be written: Read-only file system\n"
    with contextlib.suppress(OSError):
        (tmp_path / "x").touch()
    assert not (tmp_path / "x").exists()


def test_without_file_locks_a_study_starts_and_a_snakemake_here_is_still_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fcntl, "flock", none)
    lock.hold()
    assert not lock.alive()
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "snakemake"])
    try:
        assert lock.alive()
    finally:
        other.kill()
        other.wait()


def test_what_a_stage_has_started_is_an_orphan_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    plain = {k: v for k, v in os.environ.items() if k != STARTED}
    marks = [{}, {STARTED: "1"}, {STARTED: "1", "SLURM_JOB_ID": "7"}]
    started = [subprocess.Popen(sleeping, env=plain | mark) for mark in marks]
    try:
        assert [process.pid for process in lock.orphans()] == [started[1].pid]
        monkeypatch.setenv("SLURM_JOB_ID", "7")  # in that allocation they are its own
        assert [process.pid for process in lock.orphans()] == [started[2].pid]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_cluster_without_accounting_commands_has_no_accounts_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert cluster._other_accounts("mine") is None
