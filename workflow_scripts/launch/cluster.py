"""What is wrong in slurm/config.yaml, said by Slurm itself before the first job is submitted.

Otherwise a wrong partition fails each job, once a try, in a page of text; and some clusters take a time limit above the
partition's and leave the job pending for ever.
"""

import getpass
import os
import re
import shlex
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable
from difflib import get_close_matches
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError

FILE = "slurm/config.yaml"
RESOURCES = (  # that a job on Slurm has; a study's own (licences, say) may have any other name
    "slurm_partition", "slurm_account", "slurm_extra", "slurm_cluster", "clusters", "qos", "constraint", "nodes",
    "tasks", "tasks_per_node", "tasks_per_gpu", "cpus_per_task", "cpus_per_gpu", "gpu", "gpu_model", "gres", "mpi",
    "runtime", "mem_mb", "mem_mib", "mem", "mem_mb_per_cpu", "disk_mb", "disk_mib", "disk", "tmpdir", "threads",
)  # fmt: skip
SECONDS = 30.0  # a controller that does not answer for so long is no fault of the file


def _call(job: Any) -> str | None:
    """The sbatch command of a job, as the executor would have it; None if a value is not known yet.

    Raises WorkflowError for what the executor does not take.
    """
    from snakemake_executor_plugin_slurm.submit_string import get_submit_command
    from snakemake_executor_plugin_slurm.utils import set_gres_string
    from snakemake_executor_plugin_slurm.validation import validate_slurm_extra

    if any(str(value) == "<TBD>" for name, value in job.resources.items() if name != "tmpdir"):
        return None
    validate_slurm_extra(job)
    asked = {"account": ("slurm_account", "-A"), "partition": ("slurm_partition", "-p")}
    said = {
        name: f"{flag} {shlex.quote(str(job.resources.get(key)))}" if job.resources.get(key) else ""
        for name, (key, flag) in asked.items()
    }
    fixed = {"run_uuid": "test", "slurm_logfile": "/dev/null", "comment_str": "test", "workdir": None}
    return get_submit_command(job, fixed | said) + set_gres_string(job)


def _of_try(job: Any, attempt: int) -> str | None:
    """The call of that try: what a job asks for may grow with it, beyond the machine."""
    job.attempt = attempt
    try:
        return _call(job)
    finally:
        job.attempt = 1


def _other_accounts(account: str) -> str | None:
    """The accounts of the user, if that one is not among them; None where it is, or where there is no accounting."""
    command = ["sacctmgr", "-n", "-P", "-s", "list", "user", getpass.getuser(), "format=account"]
    try:
        listed = subprocess.run(command, text=True, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    known = sorted({line.strip() for line in listed.stdout.splitlines() if line.strip()})
    return None if listed.returncode or not known or account.lower() in map(str.lower, known) else ", ".join(known)


def _refused(call: str) -> str | None:
    """What sbatch says against a request; None if it would take it."""
    words = [*shlex.split(call), "--test-only", "--wrap=true"]
    try:
        tried = subprocess.run(words, text=True, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        return f"no answer from Slurm: {str(error)[-200:]}"
    if not tried.returncode:
        return None
    said = "; ".join(dict.fromkeys(line.removeprefix("sbatch: error: ") for line in tried.stderr.splitlines() if line))
    return f"{said} ({' '.join(word for word in words[words.index('--comment') + 2 : -2] if word)})"


def cancel_pending() -> int:
    """Cancel the jobs that an earlier Snakemake of this folder has left in the queue; how many there were.

    Started later, they would remove and make again what has been made since. To be called while no Snakemake is at work
    here, of another study either.
    """
    listed = ["squeue", "--me", "--noheader", "--states=PENDING", "--format=%i|%j|%k|%Z"]
    try:
        said = subprocess.run(listed, text=True, capture_output=True, timeout=SECONDS, check=False).stdout
        left = [
            number
            for number, name, comment, folder in (line.split("|", 3) for line in said.splitlines() if "|" in line)
            if folder == os.getcwd() and comment.startswith("rule_") and re.fullmatch(r"[0-9a-f-]{36}", name)
        ]
        if left:
            subprocess.run(["scancel", *left], capture_output=True, timeout=SECONDS, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired):  # no Slurm here
        return 0
    return len(left)


def be_patient() -> None:
    """Jobs of which a check learns nothing stay under watch: slurmctld may be away for a while.

    The executor (2.8) forgets them when no answer comes, and Snakemake then waits for nothing, for ever.
    """
    from snakemake_executor_plugin_slurm import Executor

    check = Executor.check_active_jobs

    async def patient(self: Any, active_jobs: list[Any]) -> AsyncIterator[Any]:
        settled: list[Any] = []

        def noted(report: Callable[..., None]) -> Callable[..., None]:
            def call(job: Any, *args: Any, **kwargs: Any) -> None:
                settled.append(job)
                report(job, *args, **kwargs)

            return call

        names = ("report_job_success", "report_job_error")
        vars(self).update({name: noted(getattr(self, name)) for name in names})
        try:
            async for job in check(self, active_jobs):
                settled.append(job)
                yield job
        finally:
            for name in names:
                vars(self).pop(name)
        for job in active_jobs:
            if not any(job is other for other in settled):
                yield job

    Executor.check_active_jobs = patient


def _misspelt(job: Any) -> list[str]:
    """Names of resources that are nearly one of Slurm's."""
    names = [name for name, _ in job.resources.items() if name not in RESOURCES and not name.startswith("_")]
    near = {name: get_close_matches(name, RESOURCES, n=1, cutoff=0.8) for name in names}
    return [
        f"{FILE}: {job.rule.name}: {name}: no resource that Slurm's jobs have; did you mean {found[0]}?"
        for name, found in near.items()
        if found
    ]


def faults(jobs: Iterable[Any], overwritten: Iterable[str], rules: Iterable[str]) -> list[str]:
    """One line for each request that Slurm would refuse, by the first rule that makes it, and for each rule named under
    set-resources that there is not.

    jobs: Snakemake's jobs that are to be submitted; overwritten: rules named under set-resources; rules: all there are.
    """
    known = set(rules)
    lines = [
        f"{FILE}: set-resources: {name}: no rule of that name"
        for name in overwritten
        if name not in known and not name.startswith("train_")  # of another study, whose arm is branched off
    ]
    calls: dict[tuple[str | None, str | None], tuple[str, int]] = {}
    accounts: dict[str, str] = {}
    for job in jobs:
        lines += _misspelt(job)
        last = job.restart_times + 1
        try:
            calls.setdefault((_of_try(job, 1), _of_try(job, last)), (job.rule.name, last))
        except WorkflowError as error:
            lines.append(f"{FILE}: {job.rule.name}: {error}")
        if account := job.resources.get("slurm_account"):
            accounts.setdefault(str(account), job.rule.name)
    for account, rule in accounts.items():
        if others := _other_accounts(account):
            lines.append(f"{FILE}: {rule}: slurm_account: {account!r} is not yours; there are: {others}")
    for (first, then), (rule, last) in calls.items():
        if first and (said := _refused(first)):
            lines.append(f"{FILE}: {rule}: sbatch would refuse it: {said}")
        elif then and then != first and (said := _refused(then)):
            lines.append(f"{FILE}: {rule}: sbatch would refuse its try {last}: {said}")
    return list(dict.fromkeys(lines))
