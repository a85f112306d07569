# What happens before and after Snakemake's jobs: checks, the record of the plan, and results that are missing.

import atexit

from snakemake.io import is_flagged

from workflow_scripts.commands import cluster, declared, disk, progress, unlock
from workflow_scripts.study import machine_faults
from workflow_scripts.training import finished


def begin():
    """At the start of a real run: what the study is held to is put on record, and a thread tells how far it is."""
    if not workflow.is_main_process or ROOT in BEGUN:  # the process that runs one job
        return
    BEGUN.add(ROOT)
    alone = not unlock.alive()  # another study's Snakemake may be at work here
    unlock.hold()
    faults = preflight.unwritable(Path(ROOT)) or preflight.missing_sources(STUDY, Path(ROOT))
    if not workflow.touch and (unknown := unrecorded()):  # --touch takes everything over, unseen
        faults.append(without_record(unknown))
    if alone and (queued := cluster.cancel_pending()):
        print(f"cancelled {queued} jobs that an earlier Snakemake had left in Slurm's queue", file=sys.stderr)
    if workflow.executor_plugin.name == "slurm":
        cluster.be_patient()
        submitted = [job for job in workflow.dag.needrun_jobs() if not job.is_local]
        named = workflow.resource_settings.overwrite_resources
        faults += cluster.faults(submitted, named, [rule.name for rule in workflow.rules])
    if workflow.local_exec and any(map(trains_or_samples, workflow.dag.needrun_jobs())):
        faults += machine_faults(STUDY, progress.gpus_here())
        faults += [] if with_conda() else preflight.other_trl()
    if not faults:  # what is to be fetched can be had, the size of the model too
        runs = progress.read_runs(Path(ROOT), RUNS, LAST_STEPS, SAMPLED, MISSING)
        faults = disk.faults(STUDY, Path(ROOT), runs)
    if faults:
        sys.exit("The study cannot run here:\n" + "\n".join(f"  {line}" for line in faults))
    if GPUS == 0 and STUDY.model.source != "embedded" and workflow.local_exec and progress.gpus_here():
        print("compute.gpus is 0: this study runs on the CPU, though there is a GPU here", file=sys.stderr)
    if late := preflight.set_to_now(Path(ROOT)):
        print(
            f"{late} files in {ROOT} had timestamps in the future; they were reset to the current time", file=sys.stderr
        )
    registration.record(registered(), PLAN)
    progress.follow(ROOT, RUNS, LAST_STEPS, SAMPLED)


def trains_or_samples(job):
    """Whether a job of this study needs what the study says of compute."""
    return "gpu" in job.rule.resources and any(map(is_ours, job.output))


def is_ours(path):
    """Whether a file is a result of this study; a Snakefile that uses this one as a module has others too."""
    return path.startswith(f"{ROOT}/")


def end():
    """At the end of a real run without a fault: Snakemake knows what is finished."""
    if workflow.is_main_process:
        outputs = [path for job in workflow.dag.jobs for path in job.output if is_ours(path)]
        recorded = {str(path) for path in outputs if workflow.persistence.metadata(path)}
        finished.forget(Path(ROOT), recorded.__contains__)
        declared.note_absent(Path(ROOT), [str(path) for path in outputs if is_flagged(path, "temp")])


def say_failures():
    """At the end of a real run with faults."""
    print(*progress.failures(ROOT), sep="\n", file=sys.stderr)


def handle_as_module():
    """Snakemake calls only the handlers of the user's own Snakefile: ours come before those that it has by now. One that
    it defines later replaces ours, and calls `begin` or `end` by itself."""
    joined = vars(workflow).setdefault("armslength_joined", set())
    if ROOT in joined:
        return
    joined.add(ROOT)
    for name, ours in {"_onstart": begin, "_onsuccess": end, "_onerror": say_failures}.items():
        setattr(workflow, name, both(ours, getattr(workflow, name)))


def both(ours, theirs):
    def handler(log):
        ours()
        theirs(log)

    return handler


def unrecorded():
    """Results that are there without Snakemake's record of how: a cluster job that outlived its Snakemake leaves such
    ones, and no later change of settings or code would be seen."""
    jobs = [job for job in workflow.dag.jobs if not workflow.dag.needrun(job)]
    return [
        path
        for job in jobs
        for path in job.output
        if is_ours(path) and os.path.exists(path) and not workflow.persistence.metadata(path)
    ]


def without_record(results):
    """What is to be done with such results."""
    return (
        f"{len(results)} results have no record of how they were made ({results[0]}): a cluster job outlived its "
        "Snakemake, or they were copied here; `armslength adopt` takes over what is current"
    )


def not_begun():
    """At the end of a process that has called no `begin`: where Snakemake finds nothing to do, and in a dry run, what it
    knows nothing of counts as current. A dry run also fails for a local file that a job would read and that is missing.
    """
    if ROOT in BEGUN or workflow.scheduler is None or not workflow.is_main_process:
        return
    planned = [job for job in workflow.dag.jobs if workflow.dryrun and workflow.dag.needrun(job)]
    if missing := preflight.missing_files(STUDY, Path(ROOT), {path for job in planned for path in job.output}):
        sys.stdout.flush()
        print(*(f"armslength: {line}" for line in missing), sep="\n", file=sys.stderr, flush=True)
        os._exit(1)
    if unknown := unrecorded():
        sys.stdout.flush()
        print(f"armslength: {without_record(unknown)}", file=sys.stderr, flush=True)
        if not workflow.dryrun:
            os._exit(1)


atexit.register(not_begun)


MISSING = declared.missing(STUDY, Path(ROOT)) if workflow.is_main_process else []


def missing_results(wildcards):
    """Inputs of `all`: Snakemake makes a missing result again if a later one is to be made, or if a target names it."""
    return [] if workflow.touch else MISSING


def make_missing_results_again():
    """The same below any other target than `all`, whose input they are not."""
    if MISSING:
        for defined in workflow.modifier.rules:
            if defined.output:
                defined.set_input(force_missing_results)


def force_missing_results(wildcards):
    """An input function, since these are called once Snakemake has the targets and before it decides which jobs run."""
    targets = workflow.dag_settings.targets
    if (IS_MODULE or targets) and not workflow.touch:
        workflow.dag.forcefiles.update(MISSING)
    return []
