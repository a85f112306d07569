"""What happens before and after Snakemake's jobs: checks, the record of the plan, and results that are missing."""

import atexit
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snakemake.io import is_flagged
from snakemake.settings.types import DeploymentMethod

from workflow_scripts.launch import cluster, declared, disk, lock, progress, registration, sources
from workflow_scripts.study import Study, machine_faults
from workflow_scripts.training import finished

Handler = Callable[[Any], None]  # of Snakemake's onstart, onsuccess and onerror; it gets the path of the log


class Start:
    """The start and the end of a study in one Snakemake.

    workflow: Snakemake's object of that name. registered: what the plan holds the study to (it takes a while).
    """

    def __init__(self, workflow: Any, study: Study, registered: Callable[[], dict[str, Any]]) -> None:
        self.workflow, self.study, self.registered = workflow, study, registered
        self.root = Path("results") / study.study
        self.runs = study.runs()
        self.last_steps = {arm: study.resolved(arm).training.steps for arm in self.runs}
        self.missing = declared.missing(study, self.root) if workflow.is_main_process else []
        # Of all studies of this process: several statements for the module read the Snakefile several times.
        self._begun: set[Path] = vars(workflow).setdefault("armslength_begun", set())
        self._joined: set[Path] = vars(workflow).setdefault("armslength_joined", set())
        atexit.register(self._without_begin)

    @property
    def is_module(self) -> bool:
        """Whether another Snakefile uses this one as a module."""
        return not self.workflow.modifier.is_main_snakefile()

    @property
    def with_conda(self) -> bool:
        """Whether jobs run in conda environments."""
        return DeploymentMethod.CONDA in self.workflow.deployment_settings.deployment_method

    def begin(self) -> None:
        """At the start of a real run: check, put what the study is held to on record, and follow its progress."""
        if not self.workflow.is_main_process or self.root in self._begun:  # the process that runs one job
            return
        self._begun.add(self.root)
        alone = not lock.alive()  # another study's Snakemake may be at work here
        lock.hold()
        if alone and (queued := cluster.cancel_pending()):
            print(f"cancelled {queued} jobs that an earlier Snakemake had left in Slurm's queue", file=sys.stderr)
        if faults := self._faults():
            sys.exit("The study cannot run here:\n" + "\n".join(f"  {line}" for line in faults))
        compute, on_hand = self.study.compute, self.workflow.local_exec
        if not compute.gpus and self.study.model.source != "embedded" and on_hand and progress.gpus_here():
            print("compute.gpus is 0: this study runs on the CPU, though there is a GPU here", file=sys.stderr)
        if late := sources.set_to_now(self.root):
            print(f"{late} files in {self.root} had timestamps in the future; they were reset to the current time",
                  file=sys.stderr)  # fmt: skip
        registration.record(self.registered(), self.root / "plan.parquet")
        progress.follow(str(self.root), self.runs, self.last_steps, self.study.sampled)

    def _faults(self) -> list[str]:
        """Why the study cannot run here, one line each."""
        faults = sources.unwritable(self.root) or sources.missing_sources(self.study, self.root)
        if not self.workflow.touch and (unknown := self._unrecorded()):  # --touch takes everything over, unseen
            faults.append(_without_record(unknown))
        needed = self.workflow.dag.needrun_jobs()
        if self.workflow.executor_plugin.name == "slurm":
            cluster.be_patient()
            submitted = [job for job in needed if not job.is_local]
            named = self.workflow.resource_settings.overwrite_resources
            faults += cluster.faults(submitted, named, [rule.name for rule in self.workflow.rules])
        if self.workflow.local_exec and any(map(self._trains_or_samples, self.workflow.dag.needrun_jobs())):
            faults += machine_faults(self.study, progress.gpus_here())
            faults += [] if self.with_conda else sources.other_trl()
        if not faults:  # what is to be fetched can be had, the size of the model too
            runs = progress.read_runs(self.root, self.runs, self.last_steps, self.study.sampled, self.missing)
            faults = disk.faults(self.study, self.root, runs)
        return faults

    def _trains_or_samples(self, job: Any) -> bool:
        """Whether a job of this study needs what the study says of compute."""
        return "gpu" in job.rule.resources and any(map(self._is_ours, job.output))

    def _is_ours(self, path: str) -> bool:
        """Whether a file is a result of this study; a Snakefile that uses this one as a module has others too."""
        return path.startswith(f"{self.root}/")

    def end(self) -> None:
        """At the end of a real run without a fault: Snakemake knows what is finished."""
        if self.workflow.is_main_process:
            outputs = [path for job in self.workflow.dag.jobs for path in job.output if self._is_ours(path)]
            recorded = {str(path) for path in outputs if self.workflow.persistence.metadata(path)}
            finished.forget(self.root, recorded.__contains__)
            declared.note_absent(self.root, [str(path) for path in outputs if is_flagged(path, "temp")])

    def say_failures(self) -> None:
        """At the end of a real run with faults."""
        print(*progress.failures(str(self.root)), sep="\n", file=sys.stderr)

    def join_handlers(self) -> None:
        """Snakemake calls only the handlers of the user's own Snakefile: where this one is a module of it, ours come
        before those that it has by now. One that it defines later replaces ours, and calls `begin` or `end` itself."""
        if self.root in self._joined:
            return
        self._joined.add(self.root)
        for name, ours in {"_onstart": self.begin, "_onsuccess": self.end, "_onerror": self.say_failures}.items():
            setattr(self.workflow, name, _both(ours, getattr(self.workflow, name)))

    def _unrecorded(self) -> list[str]:
        """Results that are there without Snakemake's record of how: a cluster job that outlived its Snakemake leaves
        such ones, and no later change of settings or code would be seen."""
        dag = self.workflow.dag
        return [
            path
            for job in dag.jobs
            if not dag.needrun(job)
            for path in job.output
            if self._is_ours(path) and os.path.exists(path) and not self.workflow.persistence.metadata(path)
        ]

    def _without_begin(self) -> None:
        """At the end of a process that has called no `begin`, which is a dry run or has nothing to do: what Snakemake
        knows nothing of would count as current. A dry run also fails for a local file that a job would read and that is
        missing."""
        workflow = self.workflow
        if self.root in self._begun or workflow.scheduler is None or not workflow.is_main_process:
            return
        planned = [job for job in workflow.dag.jobs if workflow.dryrun and workflow.dag.needrun(job)]
        outputs = {path for job in planned for path in job.output}
        if missing := sources.missing_files(self.study, self.root, outputs):
            sys.stdout.flush()
            print(*(f"armslength: {line}" for line in missing), sep="\n", file=sys.stderr, flush=True)
            os._exit(1)
        if unknown := self._unrecorded():
            sys.stdout.flush()
            print(f"armslength: {_without_record(unknown)}", file=sys.stderr, flush=True)
            if not workflow.dryrun:
                os._exit(1)

    def missing_results(self, wildcards: Any) -> list[str]:
        """Inputs of `all`: Snakemake makes a missing result again only if a later one is made, or a target names it."""
        return [] if self.workflow.touch else self.missing

    def make_missing_results_again(self) -> None:
        """The same below any other target than `all`, whose input they are not."""
        for rule in self.workflow.modifier.rules if self.missing else ():
            if rule.output:
                rule.set_input(self._force_missing_results)

    def _force_missing_results(self, wildcards: Any) -> list[str]:
        """An input function, since these are called once Snakemake has the targets and before it decides which jobs
        run."""
        if (self.is_module or self.workflow.dag_settings.targets) and not self.workflow.touch:
            self.workflow.dag.forcefiles.update(self.missing)
        return []


def _both(ours: Callable[[], None], theirs: Handler) -> Handler:
    def handler(log: Any) -> None:
        ours()
        theirs(log)

    return handler


def _without_record(results: list[str]) -> str:
    """What is to be done with such results."""
    return (
        f"{len(results)} results have no record of how they were made ({results[0]}): a cluster job outlived its "
        "Snakemake, or they were copied here; `armslength adopt` takes over what is current"
    )
