# The study, and the functions that hand each rule its settings and the digest of its code.

import gc
import mimetypes
import os
import shlex
import sys
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

from workflow_scripts import home, platforms

if fault := platforms.fault():  # before anything is imported that only supported platforms have
    sys.exit(f"armslength: {fault}")
os.environ.update(home.variables())

from workflow_scripts import stage_settings
from workflow_scripts.digest import digest
from workflow_scripts.figures import catalogue
from workflow_scripts.grading import libraries as grader_libraries
from workflow_scripts.grading import version as verdicts_version
from workflow_scripts.launch import declared, registration, sources
from workflow_scripts.launch.start import Start
from workflow_scripts.launch.study_file import DEFAULT_STUDY
from workflow_scripts.study import StudyFaults, load
from workflow_scripts.study.faults import repeated_keys
from workflow_scripts.tables import TableError

# A DAG is many objects and hardly any garbage: a fourth of a dry run went into looking for it.
gc.set_threshold(50_000, 20, 100)

try:
    for file in workflow.configfiles:
        if twice := repeated_keys(Path(file).read_text(encoding="utf-8")):
            raise StudyFaults([f"{file}: {line}" for line in twice])
    STUDY = load(config)
    if missing := sources.reward_faults(STUDY):
        raise StudyFaults(missing)
except StudyFaults as faults:
    sys.exit("The study cannot run:\n" + "\n".join(f"  {line}" for line in faults.lines))

BASEDIR = DEFAULT_STUDY.parent
IS_MODULE = not workflow.modifier.is_main_snakefile()
if fault := sources.unwritable(Path(".snakemake")):  # a dry run writes there too
    sys.exit(f"armslength: {fault[0]}")


def shell_text(text):
    """Text as a part of a shell command, which Snakemake formats."""
    return text.replace("{", "{{").replace("}", "}}")


ROOT = f"results/{STUDY.study}"
if IS_MODULE and workflow.modifier.modify_path(ROOT) != ROOT:
    sys.exit(f"armslength: prefix and replace_prefix of a module are not supported: results are written to {ROOT}")
PLAN = Path(ROOT) / "plan.parquet"
REWARD = verdicts_version(stage_settings.train_grader(STUDY))
try:
    PINNED = registration.pinned_reward_version(PLAN, REWARD)
except TableError as error:
    sys.exit(f"armslength: {error}")
REWARD = REWARD if STUDY.retrain_on_reward_change else PINNED
RUNS = STUDY.runs()
REPEATS = range(STUDY.evaluation.base_repeats)
SAMPLED = STUDY.sampled
HOLDOUTS = STUDY.all_benchmarks
PROMPT = stage_settings.prompt_root(STUDY)
GPUS = STUDY.compute.gpus
PROCESSES = STUDY.compute.processes or max(1, GPUS)
# This says how results are computed, not what they are, so it stays out of every rule's params. It is written into the
# shell commands, because Snakemake looks up the names in them in the user's own Snakefile where this one is a module.
COMPUTE = shell_text(
    shlex.quote(
        stage_settings.canonical(
            STUDY.compute.model_dump()
            | {
                "device": STUDY.compute.place,
                "data_dir": STUDY.data_dir,
                "fits": stage_settings.fits(STUDY),
                "sampled_on": stage_settings.sampled_on(STUDY),
            }
        )
    )
)


wildcard_constraints:
    study=STUDY.study,
    arm="[A-Za-z0-9][A-Za-z0-9_-]*",
    seed="[0-9]+",
    repeat="[0-9]+",
    step="[0-9]+",
    benchmark="[A-Za-z0-9][A-Za-z0-9_-]*",


def shell_prefix():
    """Jobs import the package from here, and run in the Python that runs Snakemake unless conda brings one of its own."""
    exports = {"PYTHONPATH": str(BASEDIR)}
    if not START.with_conda:
        exports["PATH"] = os.path.dirname(sys.executable)
    # Slurm sends SIGTERM to every process of a job: a shell that died of it would end the job under its trainer's hands,
    # which still has its state to save. With a trap it waits for the stage.
    text = "set -euo pipefail; trap : TERM; "
    text += "".join(f"export {name}={shlex.quote(value)}${{{name}:+:${name}}}; " for name, value in exports.items())
    return shell_text(text)


def not_one_of(names):
    """A pattern for any name but these."""
    return f"(?!({'|'.join(names)})/)[A-Za-z0-9][A-Za-z0-9_-]*" if names else "[A-Za-z0-9][A-Za-z0-9_-]*"


def named_files(kind, names):
    """name={input.name} for each of a job's files, as stages read them; kind: input or output."""
    return " ".join(f"{name}={{{kind}.{name}}}" for name in names)


def constant(settings):
    """A params function: the braces of a plain string in params would be taken for wildcards, those of a result are not."""
    text = stage_settings.canonical(settings)

    def params(wildcards):
        return text

    return params


def code(stage, *roots, cut=()):
    """A params function: the digest of what a stage runs."""

    def params(wildcards):
        return digest(stage, roots, cut)

    return params


def run_files(file):
    """All runs' files of that name; with allow_missing those that exist."""
    paths = [f"{ROOT}/runs/{arm}/seed-{seed}/{file}" for arm, seeds in RUNS.items() for seed in seeds]
    return [p for p in paths if Path(p).exists()] if STUDY.allow_missing else paths


def sample_files(wildcards):
    """Graded samples of the base and of all runs; with allow_missing of the runs that have them and their own record."""
    base = [f"{ROOT}/base/repeat-{repeat}/{b}/samples.parquet" for repeat in REPEATS for b in SAMPLED]
    runs = [Path(path).parent for path in run_files("checkpoints.parquet")]
    samples = [f"{ROOT}/evals/{run.parent.name}/{run.name}/{b}/samples.parquet" for run in runs for b in SAMPLED]
    return base + ([p for p in samples if Path(p).exists()] if STUDY.allow_missing else samples)


def train_set_settings(wildcards):
    return stage_settings.canonical(stage_settings.fetch_train_set(STUDY, Path(ROOT) / "data" / "candidates.parquet"))


def train_set_code(wildcards):
    return digest("fetch_train_set", set_roots(STUDY.train_set))


def set_roots(name):
    """The module of a benchmark; a set of the user's own has none."""
    found = stage_settings.benchmark_module(STUDY, name)
    return (f"benchmarks.{found}",) if found else ()


def benchmark_settings(wildcards):
    result = Path(ROOT) / "holdouts" / f"{wildcards.benchmark}.parquet"
    return stage_settings.canonical(stage_settings.fetch_benchmark(STUDY, wildcards.benchmark, result))


def benchmark_code(wildcards):
    return digest("fetch_benchmark", set_roots(wildcards.benchmark))


@lru_cache(None)
def grader_of(benchmark):
    """The grader, the libraries that its verdicts rest on, if there are any, and whether it pays copied answers."""
    name = STUDY.grader_of(benchmark)
    libraries = grader_libraries(name)
    return {"grader": name} | ({"libraries": libraries} if libraries else {}) | stage_settings.copied(STUDY, name)


def grader_settings(wildcards):
    return stage_settings.canonical(grader_of(wildcards.benchmark))


def graded(wildcards, stage, sampled):
    """With the grader, what drew the completions: where they are not kept, their grades alone tell if they are due."""
    own = grader_of(wildcards.benchmark)
    return stage_settings.canonical(own | {"sampled": sampled, "sampling_code": digest(stage, (PROMPT,))})


def grade_settings(wildcards):
    sampled = stage_settings.sample_checkpoints(STUDY, wildcards.arm, int(wildcards.seed), wildcards.benchmark)
    return graded(wildcards, "sample_checkpoints", sampled)


def grade_base_settings(wildcards):
    return graded(
        wildcards, "sample_base", stage_settings.sample_base(STUDY, int(wildcards.repeat), wildcards.benchmark)
    )


def audit_code(wildcards):
    return digest("audit_gold", (f"grading.{STUDY.grader_of(wildcards.benchmark)}",))


def grade_code(wildcards):
    return digest("grade", (f"grading.{STUDY.grader_of(wildcards.benchmark)}",))


def contamination_settings(wildcards):
    return stage_settings.canonical({"benchmark": wildcards.benchmark})


def train_settings(wildcards):
    return stage_settings.canonical(stage_settings.train(STUDY, wildcards.arm, int(wildcards.seed), REWARD))


def train_code(wildcards):
    # a version number stands for the grader: a better grader does not retrain what it would have judged alike
    return digest("train", stage_settings.train_roots(STUDY, wildcards.arm), ("grading",))


def train_branch(wildcards):
    """The state of the arm that a branch starts from."""
    branch = STUDY.resolved(wildcards.arm).branch_from
    if branch is None:
        return []
    return f"{ROOT}/runs/{branch.arm}/seed-{wildcards.seed}/branch_states/step-{branch.step}.tar"


def sample_base_settings(wildcards):
    return stage_settings.canonical(stage_settings.sample_base(STUDY, int(wildcards.repeat), wildcards.benchmark))


def sample_checkpoints_settings(wildcards):
    return stage_settings.canonical(
        stage_settings.sample_checkpoints(STUDY, wildcards.arm, int(wildcards.seed), wildcards.benchmark)
    )


def registered():
    """What the plan holds the study to, with the code of what makes results."""
    made = {
        "train": {arm: train_code(SimpleNamespace(arm=arm)) for arm in STUDY.arms},
        "grade": {b: grade_code(SimpleNamespace(benchmark=b)) for b in SAMPLED},
    }
    made |= {"sample_checkpoints": digest("sample_checkpoints", (PROMPT,))}
    made |= {stage: digest(stage) for stage in ("count", "estimate_effects")}
    return registration.registration(STUDY, REWARD, ROOT, made)


def report_settings(wildcards):
    """The page is drawn again when the plan has changed, of which it tells."""
    shown = {"plan_digest": registration.digest(registered(), PLAN), "captions": CAPTIONS}
    return stage_settings.canonical(stage_settings.report(STUDY) | shown)


mimetypes.add_type("application/vnd.apache.parquet", ".parquet")  # Snakemake's report would show it as text


def table(name):
    """A table as an output, and as a file of Snakemake's report."""
    path = f"results/{{study}}/tables/{name}.parquet"
    return report(path, caption=f"captions/tables/{name}.rst", category="Tables", labels={"table": name})


def kept(path):
    """Completions are dropped once graded where the study says so."""
    return path if STUDY.compute.keep.completions else temp(path)


START = Start(workflow, STUDY, registered)
begin, end, say_failures = START.begin, START.end, START.say_failures  # the user's own handlers may call them
