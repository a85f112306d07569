"""`armslength adopt`: take over results of unknown history, such as a clone with cached parquet, if they are current.

Snakemake trusts modification times, which a clone does not keep: with shuffled ones it makes everything again, with
equal ones it accepts stale results. The footer of each parquet file says more: the settings, code and inputs it was
made with. What agrees with what the study asks now is marked as current, in the order of the DAG. What does not is
listed and stays where it is; Snakemake makes it again. Nothing is deleted, and only ``--move-aside`` moves anything.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workflow_scripts import tables
from workflow_scripts.commands import unlock
from workflow_scripts.launch import declared
from workflow_scripts.launch.study_file import DEFAULT_STUDY, read_study, root_of, study_parser

LISTED = 40  # mismatches shown one by one

CURRENT, UNCHECKED, STALE, BELOW, SILENT, MISSING = "current", "unchecked", "stale", "below", "silent", "missing"
AGAIN = (STALE, BELOW, SILENT)


@dataclass
class JobState:
    """What adopt finds of one job: current; unchecked (current, but an input is missing); stale (why); below something
    stale; silent (a page or figure: no footer tells); missing (an output is not there)."""

    job: Any
    kind: str
    why: str = ""
    outputs: list[str] = field(default_factory=list)


def difference(wanted: Any, found: Any, path: str = "") -> str:
    """The first key in which two settings differ, with both values."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in sorted({*wanted, *found}):
            if wanted.get(key) != found.get(key):
                return difference(wanted.get(key), found.get(key), f"{path}.{key}".lstrip("."))
    return f"{path or 'settings'} is {json.dumps(found)} in the file, {json.dumps(wanted)} in the study"


def mismatch(path: str, wanted: dict[str, Any], inputs: str | None) -> str:
    """Why a file is not what the study asks for; empty if it is. inputs: their digest, None if it is not known."""
    if not path.endswith(".parquet"):
        return ""
    try:
        made = tables.provenance(path)
    except tables.TableError:
        return "not a readable parquet file"
    if not made:
        return "says nothing of how it was made"
    if made.get("settings") != wanted["settings"]:
        return difference(wanted["settings"], made.get("settings"))
    if made.get("code") != wanted["code"]:
        return "made by other code or other library versions"
    if inputs is not None and made.get("inputs") != inputs:
        return "made from other inputs"
    return ""


def _inputs(job: Any, root: Path) -> str | None:
    """Digest of the job's inputs as its footers have it; None where one is missing or unreadable."""
    try:
        return tables.inputs_digest([str(f) for f in job.input], root)
    except (OSError, tables.TableError):
        return None


def judge(jobs: list[Any], dependencies: Any, root: Path) -> list[JobState]:
    """A verdict for each job that writes files; jobs come in the order of the DAG."""
    kinds: dict[Any, str] = {}
    verdicts = []
    for job in jobs:
        outputs = [str(f) for f in job.output]
        if not outputs:
            continue
        verdict = JobState(job, CURRENT, outputs=outputs)
        above = {kinds.get(other) for other in dependencies[job]}
        wanted = {"settings": json.loads(job.params.settings), "code": job.params.code}
        inputs = _inputs(job, root)
        present = [path for path in outputs if Path(path).exists()]
        faults = [(path, why) for path in present if (why := mismatch(path, wanted, inputs))]
        if faults:
            verdict.kind, verdict.why = STALE, f"{faults[0][0]}: {faults[0][1]}"
        elif above & {STALE, BELOW}:
            verdict.kind = BELOW
        elif len(present) < len(outputs):
            verdict.kind = MISSING
        elif not any(path.endswith(".parquet") for path in outputs):
            verdict.kind = SILENT
        elif inputs is None:
            verdict.kind = UNCHECKED
        kinds[job] = verdict.kind
        verdicts.append(verdict)
    return verdicts


@contextmanager
def opened(configfile: str, settings: list[str]) -> Iterator[Any]:
    """Snakemake's own view of the workflow, with all jobs that the study could need."""
    from snakemake.api import SnakemakeApi
    from snakemake.cli import parse_config
    from snakemake.settings.types import (
        ConfigSettings,
        DAGSettings,
        ExecutionSettings,
        OutputSettings,
        Quietness,
        ResourceSettings,
    )

    files = [] if Path(configfile) == DEFAULT_STUDY else [Path(configfile)]
    with SnakemakeApi(OutputSettings(quiet={Quietness.ALL})) as api:
        handle = api.workflow(
            resource_settings=ResourceSettings(cores=1),
            config_settings=ConfigSettings(config=parse_config(settings), configfiles=files),
            snakefile=DEFAULT_STUDY.with_name("Snakefile"),
        )
        # no limit on what is compared by content: it is done once
        handle.dag(DAGSettings(forceall=True, max_checksum_file_size=sys.maxsize))
        workflow = handle._workflow
        workflow.execution_settings = ExecutionSettings()
        workflow._prepare_dag(forceall=True, ignore_incomplete=True, lock_warn_only=False)
        workflow._build_dag()
        yield workflow


def mark(workflow: Any, verdicts: list[JobState]) -> None:
    """Write what Snakemake looks at: rising times and metadata for what is current, "incomplete" for what is not."""
    now = time.time() - len(verdicts)
    for place, verdict in enumerate(verdicts):
        if verdict.kind in (CURRENT, UNCHECKED):
            for path in verdict.outputs:
                os.utime(path, (now + place, now + place))
    workflow.iocache.clear()
    for verdict in verdicts:
        if verdict.kind in (CURRENT, UNCHECKED):
            workflow.async_run(workflow.persistence.finished(verdict.job))
        elif verdict.kind in AGAIN:
            workflow.persistence.started(verdict.job)


def move_aside(verdicts: list[JobState], root: Path) -> Path | None:
    """Rename what is not current into a folder of its own, with the files that its manifests list."""
    aside = root / "aside" / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    moved = False
    for verdict in verdicts:
        if verdict.kind not in (STALE, BELOW):
            continue
        for path in map(Path, verdict.outputs):
            # checkpoints.parquet lists the files of checkpoints/, base/manifest.parquet those of base/model/
            beside = path.with_name("model") if path.name == "manifest.parquet" else path.with_suffix("")
            for old in (path, beside) if beside.is_dir() and path.suffix == ".parquet" else (path,):
                if old.exists():
                    new = aside / old.relative_to(root)
                    new.parent.mkdir(parents=True, exist_ok=True)
                    old.rename(new)
                    moved = True
    return aside if moved else None


def report(verdicts: list[JobState]) -> None:
    """Say what was found."""
    count = Counter(verdict.kind for verdict in verdicts)
    print(
        f"{len(verdicts)} jobs: {count[CURRENT]} current, {count[UNCHECKED]} current as far as can be told (an input is"
        f" missing), {count[STALE]} do not match, {count[BELOW]} made from those, {count[MISSING]} to make,"
        f" {count[SILENT]} pages and figures to draw again"
    )
    stale = [verdict.why for verdict in verdicts if verdict.kind == STALE]
    for why in stale[:LISTED]:
        print(f"  {why}")
    if len(stale) > LISTED:
        print(f"  and {len(stale) - LISTED} more")


def main(arguments: list[str]) -> int:
    """Compare cached results with what the study asks now, list what does not match, mark the rest as current."""
    parser = study_parser("adopt", main.__doc__)
    parser.add_argument("--move-aside", action="store_true", help="move what does not match to results/STUDY/aside/")
    options = parser.parse_args(arguments)
    root = root_of(read_study(options))
    if unlock.alive():
        print("armslength: Snakemake is working in this folder; adopt when it has ended", file=sys.stderr)
        return 1
    with opened(options.configfile, options.config) as workflow:
        jobs = [job for level in workflow.dag.toposorted() for job in level]
        verdicts = judge(jobs, workflow.dag.dependencies, root)
        report(verdicts)
        mark(workflow, verdicts)
        # what was not shipped is made again only if something needs it
        declared.note_absent(root, [path for verdict in verdicts for path in verdict.outputs])
        aside = move_aside(verdicts, root) if options.move_aside else None
    if aside:
        print(f"moved aside: {aside}")
    elif any(verdict.kind == STALE for verdict in verdicts):
        print("They stay until Snakemake makes them again; `armslength adopt --move-aside` keeps them.")
    return 0
