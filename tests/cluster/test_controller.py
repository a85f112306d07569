"""Slurm itself fails, or has jobs left of a Snakemake that was killed."""

import signal
import time

import pytest
from copies import Copy
from smoke_study import ROOT

from cluster.conftest import TARGET, Work, until
from cluster.test_deaths import same


@pytest.mark.slow
def test_a_controller_that_was_away_is_waited_for(retrained: Work, done: Copy) -> None:
    """Without accounting, nothing else knows of the jobs."""
    process = retrained.submit(TARGET)
    trainer = retrained.stopped_trainer()
    retrained.slurm.controller_ends()
    trainer.send_signal(signal.SIGCONT)
    time.sleep(40)  # Snakemake asks, and gets no answer, at least once
    retrained.slurm.controller_starts()
    retrained.succeeds(process)
    assert TARGET.removeprefix(f"{ROOT}/") in same(retrained, done)


@pytest.mark.slow
def test_jobs_that_a_killed_snakemake_left_in_the_queue_are_cancelled(retrained: Work, done: Copy) -> None:
    """They would begin later, and make again what has been made since. Another job of the user's stays."""
    copy = retrained
    whole_node = ("--exclusive", "--mem=100", "--output=/dev/null", "--wrap=sleep 600")
    for _ in range(2):  # one runs, one waits
        copy.slurm.run("sbatch", f"--chdir={copy.root}", *whole_node)
    process = copy.submit(TARGET)

    def pending() -> list[str]:
        rows = copy.slurm.jobs().values()
        return [row.get("Comment", "") for row in rows if row["JobState"] == "PENDING"]

    until("a job in the queue", lambda: any(comment.startswith("rule_train") for comment in pending()))
    process.kill()
    process.communicate()
    said = copy.command("workflow_scripts", "unlock", env=copy.slurm.env).stdout
    assert "cancelled 1 in Slurm's queue" in said
    until("an empty queue", lambda: pending() == [""])
