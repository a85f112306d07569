"""Through a real Slurm, and whatever ends a job there, a study has the tables of an undisturbed one."""

import shutil
import signal
from collections.abc import Callable

import pytest
from copies import Copy
from smoke_study import ROOT

from cluster.conftest import Work, until
from workflow_scripts import tables

# the times that jobs took, all of a table's columns that may differ
TIMES = {
    "tables/runs.parquet": (tables.RUNS, ("train_seconds", "sample_seconds")),
    "tables/power.parquet": (tables.POWER, ("seconds_per_run", "extra_seconds")),
}
COUNTS = f"{ROOT}/tables/counts.parquet"  # what every statistic rests on


def contents(copy: Copy) -> dict[str, object]:
    """All tables of a study by path: the digest of their rows; where they hold times, the rows without them."""
    found: dict[str, object] = {}
    for path in sorted((copy.root / ROOT).rglob("*.parquet")):
        name = str(path.relative_to(copy.root / ROOT))
        if name in TIMES:
            table, times = TIMES[name]
            found[name] = tables.read(path, table).drop_columns(list(times)).to_pylist()
        elif not name.startswith("state/") and name != "plan.parquet":  # the plan has a date
            found[name] = tables.input_digest(path)
    return found


def cancelled(work: Work, arguments: tuple[str, ...]) -> None:
    """`scancel`, by the user or an administrator; as after any failure, the next try gets more memory."""
    before = set(work.slurm.jobs())
    process = work.submit(*arguments)
    work.stopped_trainer()
    (job,) = work.slurm.running()
    work.slurm.run("scancel", job)
    work.succeeds(process)
    jobs = {name: row["MinMemoryNode"] for name, row in work.slurm.jobs().items() if name not in before}
    assert jobs.pop(job) == "8000M"
    assert jobs.pop(min(jobs, key=int)) == "16000M"
    assert set(jobs.values()) <= {"8000M"}  # sampling, grading and counting, each a job of its own


def timed_out(work: Work, arguments: tuple[str, ...]) -> None:
    """The time limit, which Slurm looks after every half minute."""
    work.profile(lambda profile: profile["default-resources"].update(runtime=1))
    process = work.submit(*arguments)
    work.stopped_trainer()
    until("a time-out", lambda: any(row["JobState"] == "TIMEOUT" for row in work.slurm.jobs().values()))
    work.succeeds(process)


def preempted(work: Work, arguments: tuple[str, ...]) -> None:
    """A job of a partition with more priority takes the place; Slurm itself puts the job back into the queue."""
    work.profile(lambda profile: profile["default-resources"].update(slurm_partition="low"))
    process = work.submit(*arguments)
    work.stopped_trainer()
    whole_node = ("--partition=high", f"--cpus-per-task={work.slurm.cpus}", "--mem=100", "--output=/dev/null")
    work.slurm.run("sbatch", *whole_node, "--wrap=sleep 2")
    until("a requeue", lambda: any(int(row["Restarts"]) for row in work.slurm.jobs().values()))
    work.succeeds(process)


def same(copy: Copy, undisturbed: Copy) -> dict[str, object]:
    """What there is is what an undisturbed run has; returned to ask how much that is."""
    found, expected = contents(copy), contents(undisturbed)
    assert found == {name: expected.get(name) for name in found}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("end", [cancelled, timed_out, preempted])
def test_an_interrupted_training_goes_on(
    end: Callable[[Work, tuple[str, ...]], None], retrained: Work, done: Copy
) -> None:
    end(retrained, (COUNTS,))
    assert "resumes at step 4" in retrained.log()
    assert "tables/counts.parquet" in same(retrained, done)


@pytest.mark.slow
def test_a_killed_snakemake_leaves_a_job_that_the_next_one_waits_for(retrained: Work, done: Copy) -> None:
    """`kill -9` does not reach the cluster: the job is submitted a second time while the first one still trains."""
    process = retrained.submit(COUNTS)
    trainer = retrained.stopped_trainer()
    (first,) = retrained.slurm.running()
    process.kill()
    process.communicate()
    assert "the last Snakemake was killed" in retrained.command("workflow_scripts", "unlock").stdout
    process = retrained.submit(COUNTS)
    until("a second trainer", lambda: f"waits for Slurm job {first}" in retrained.log())
    trainer.send_signal(signal.SIGCONT)
    retrained.succeeds(process)
    assert "resumes" not in retrained.log()  # nothing was trained twice
    assert "tables/counts.parquet" in same(retrained, done)


@pytest.mark.slow
def test_the_whole_study_in_jobs_of_a_cluster(done: Copy, work: Callable[[Copy], Work]) -> None:
    """From nothing to the report, and locally there is nothing left to do."""
    copy = work(done)
    shutil.rmtree(copy.root / ROOT)
    copy.succeeds(copy.submit())
    assert same(copy, done) == contents(done)
    assert copy.would_run() == set()
