"""One writer at a time, whoever dies, stands still or comes back; and what a finished run leaves for a second start."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from workflow_scripts.training import finished, lease

# argv: folder, kernel, seconds to hold; says "has N", then what check() says of it
HOLDER = """
import sys, time
from pathlib import Path
from workflow_scripts.training import lease
lease.BEAT_SECONDS, lease.DEAD_SECONDS, lease.POLL_SECONDS = 0.1, 1.5, 0.05
lease._kernel = lambda: sys.argv[2]
try:
    with lease.held(Path(sys.argv[1]), lambda line: print(line, flush=True)) as held:
        print("has", held.number, flush=True)
        time.sleep(float(sys.argv[3]))
        held.check()
        print("kept it", flush=True)
except lease.LeaseError as error:
    print("lost:", error, flush=True)
"""
COUNTER = """
import sys, time
from pathlib import Path
from workflow_scripts.training import lease
lease.POLL_SECONDS = 0.01
count = Path(sys.argv[1], "count")
for _ in range(5):
    with lease.held(Path(sys.argv[1]), lambda line: None) as held:
        before = int(count.read_text())
        time.sleep(0.01)
        held.check()
        count.write_text(str(before + 1))
"""
Started = subprocess.Popen[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


class Jobs:
    """Processes that hold or want the lease of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.all = folder, list[Started]()

    def start(self, seconds: float, kernel: str = "one", until: str = "has 1") -> Started:
        """A job that holds the lease for so long, once it has said `until`."""
        command = [sys.executable, "-c", HOLDER, str(self.folder), kernel, str(seconds)]
        job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.all.append(job)
        assert job.stdout is not None
        self.said = job.stdout.readline().strip()
        assert self.said.startswith(until), self.said
        return job


@pytest.fixture
def jobs(folder: Path) -> Iterator[Jobs]:
    started = Jobs(folder)
    yield started
    for job in started.all:
        job.kill()
        job.communicate()


def rest(job: Started) -> list[str]:
    """What a job said after its first line, to its end."""
    assert job.stdout is not None
    lines = job.stdout.read().splitlines()  # not communicate: what readline has taken up already would be lost
    job.wait(timeout=60)
    return lines


def test_a_second_job_waits_and_says_for_whom(jobs: Jobs, folder: Path) -> None:
    first = jobs.start(2)
    second = jobs.start(0, until="waits for")
    assert f"process {first.pid} on " in jobs.said
    assert rest(first) == ["kept it"]
    assert rest(second) == ["has 1", "kept it"]
    assert not folder.exists()


def test_the_lease_of_a_dead_job_is_taken_over_at_once(jobs: Jobs) -> None:
    first = jobs.start(60)
    first.kill()
    first.wait()
    second = jobs.start(0, until="takes over from")
    assert f"process {first.pid} on " in jobs.said
    assert jobs.said.endswith("which has died")
    assert rest(second) == ["has 2", "kept it"]


def test_a_job_that_stands_still_on_this_machine_keeps_its_lease(jobs: Jobs) -> None:
    first = jobs.start(0.5)
    first.send_signal(signal.SIGSTOP)
    second = jobs.start(0, until="waits for")
    time.sleep(3)  # twice what counts as dead elsewhere
    assert second.poll() is None
    first.send_signal(signal.SIGCONT)
    assert rest(first) == ["kept it"]
    assert rest(second)[-1] == "kept it"


def test_of_another_machine_only_silence_is_death_and_who_comes_back_writes_nothing(jobs: Jobs) -> None:
    first = jobs.start(0.5)
    first.send_signal(signal.SIGSTOP)
    second = jobs.start(3, kernel="two", until="waits for")
    said = [second.stdout.readline().strip() for _ in range(2)]  # type: ignore[union-attr]
    assert said[0].endswith("of which nothing was heard for 2 s")
    assert said[1] == "has 2"
    first.send_signal(signal.SIGCONT)
    assert f"was taken over by process {second.pid} on " in rest(first)[-1]
    assert rest(second) == ["kept it"]


def test_a_job_of_another_machine_that_beats_keeps_its_lease(jobs: Jobs) -> None:
    first = jobs.start(4)
    second = jobs.start(0, kernel="two", until="waits for")
    assert rest(first) == ["kept it"]
    assert rest(second) == ["has 1", "kept it"]


def test_a_lease_whose_maker_died_before_it_wrote_a_word_is_no_hindrance(jobs: Jobs, folder: Path) -> None:
    folder.mkdir()
    (folder / "lease-000003").touch()
    job = jobs.start(0, until="waits for process ? on an unknown machine")
    assert rest(job)[-2:] == ["has 4", "kept it"]


def test_leases_of_several_dead_jobs_are_all_cleared_away(jobs: Jobs, folder: Path) -> None:
    """As after a job that died while it took over from a dead one."""
    first = jobs.start(60)
    first.kill()
    first.wait()
    (folder / "lease-000002").write_bytes((folder / "lease-000001").read_bytes())
    job = jobs.start(0, until="takes over from")
    assert rest(job)[-2:] == ["has 3", "kept it"]
    assert not folder.exists()


@pytest.mark.parametrize("fault", [OSError("No space left on device"), KeyboardInterrupt()])
def test_who_fails_while_taking_leaves_no_lease(
    fault: BaseException, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beat(*_: object) -> None:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(lease, "_beat", beat)
        with pytest.raises(type(fault)), lease.held(folder, print):
            pass
    assert not folder.exists()


def test_of_many_jobs_one_at_a_time_works(folder: Path) -> None:
    folder.mkdir()
    (folder / "count").write_text("0")
    command = [sys.executable, "-c", COUNTER, str(folder)]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    assert [job.communicate(timeout=120)[1] for job in started] == [""] * 4
    assert (folder / "count").read_text() == "20"
    assert lease.numbers(folder) == []


def test_a_terminated_job_says_whom_it_waited_for(jobs: Jobs) -> None:
    first = jobs.start(60)
    second = jobs.start(0, until="waits for")
    second.terminate()
    assert rest(second) == [f"lost: terminated before its turn; {jobs.said}"]
    assert first.poll() is None


def test_a_lease_of_the_same_number_made_since_is_another_one(folder: Path) -> None:
    with lease.held(folder, print) as mine:
        mine.file.unlink()
        with pytest.raises(lease.LeaseError, match="lease-000001 is gone or damaged"):
            mine.check()
        mine.file.with_name("lease-000001.bak").touch()  # a copy that somebody made is none
        mine.file.write_text(json.dumps({"token": "another", "pid": 1, "host": "far"}))
        with pytest.raises(lease.LeaseError, match="taken over by process 1 on far"):
            mine.check()
    assert mine.file.exists()  # not the one to remove


KEY = {"settings": {"seed": 0}, "code": "a"}


def left(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """What a finished run leaves, sealed; and where it belongs."""
    folder = tmp_path / "state" / "arm" / "seed-0" / "abc" / "finished"
    folder.mkdir(parents=True)
    outputs = {name: str(tmp_path / "runs" / name) for name in ("rollouts.parquet", "checkpoints.parquet")}
    for name in outputs:
        (folder / name).write_text(name)
    finished.seal(folder, KEY, outputs, tmp_path)
    return folder, outputs


@pytest.mark.parametrize("links", [True, False])
def test_a_finished_run_is_handed_out_as_often_as_asked(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    folder, outputs = left(tmp_path)
    if not links:
        monkeypatch.setattr(os, "link", refused)
    for _ in range(2):
        assert finished.publish(folder, KEY, outputs)
        assert [Path(path).read_text() for path in outputs.values()] == list(outputs)
        for path in outputs.values():
            assert (os.stat(path).st_nlink == 2) == links
            Path(path).unlink()  # as Snakemake does before it runs a job


def test_what_another_key_or_a_torn_write_left_is_not_handed_out(tmp_path: Path) -> None:
    folder, outputs = left(tmp_path)
    assert not finished.publish(folder, {**KEY, "code": "b"}, outputs)
    assert not finished.publish(folder, KEY, {**outputs, "step-4.tar": "runs/step-4.tar"})
    (folder / "rollouts.parquet").unlink()
    assert not finished.publish(folder, KEY, outputs)
    (folder / "finished.json").write_text('{"key":')
    assert not finished.publish(folder, KEY, outputs)
    assert not (tmp_path / "runs").exists()


def test_it_goes_when_the_outputs_are_known_to_be_in_place(tmp_path: Path) -> None:
    folder, outputs = left(tmp_path)
    finished.forget(tmp_path, lambda path: True)
    assert folder.exists()  # no output is there: Snakemake did not see the end of this job
    assert finished.publish(folder, KEY, outputs)
    finished.forget(tmp_path, lambda path: not path.endswith("checkpoints.parquet"))
    assert folder.exists()  # one is there, and without a record: it would be made again
    finished.forget(tmp_path, lambda path: True)
    assert not (tmp_path / "state" / "arm").exists()
    assert all(Path(path).exists() for path in outputs.values())
