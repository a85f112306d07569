"""What is wrong in slurm/config.yaml, said by Slurm itself before the first job is submitted.

Otherwise a wrong partition fails each job, once a try, in a page of text; and some clusters take a time limit above the
partition's and leave the job pending for ever.
"""

import getpass
import shlex
import subprocess
from collections.abc import Iterable
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError

FILE = "slurm/config.yaml"
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
    calls: dict[str, str] = {}
    accounts: dict[str, str] = {}
    for job in jobs:
        try:
            if call := _call(job):
                calls.setdefault(call, job.rule.name)
        except WorkflowError as error:
            lines.append(f"{FILE}: {job.rule.name}: {error}")
        if account := job.resources.get("slurm_account"):
            accounts.setdefault(str(account), job.rule.name)
    for account, rule in accounts.items():
        if others := _other_accounts(account):
            lines.append(f"{FILE}: {rule}: slurm_account: {account!r} is not yours; there are: {others}")
    for call, rule in calls.items():
        if said := _refused(call):
            lines.append(f"{FILE}: {rule}: sbatch would refuse it: {said}")
    return list(dict.fromkeys(lines))
