"""What of a study does not fit together: faults between keys that are each well formed.

A check reads some keys; where one of them is broken it is left out, so that one fault is not said twice. Each yields
lines of `faults.line`.
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from workflow_scripts import benchmarks
from workflow_scripts.study.arm_checks import arm_faults, policy_faults
from workflow_scripts.study.faults import Path, line, nearest, overlap
from workflow_scripts.study.keys import PROMPTS
from workflow_scripts.study.schedule import batch_faults, reward_faults, step_faults, warmup_faults
from workflow_scripts.study.trl_fields import trl_faults

if TYPE_CHECKING:
    from workflow_scripts.study import Study

Check = Callable[["Study"], Iterator[str]]
_VLLM_COOLEST, _VLLM_RANK = 0.01, 512  # sampling/vllm_engine.py has the same; importing it takes seconds
_CHECKS: list[tuple[tuple[str, ...], Check]] = []


def _reads(*keys: str) -> Callable[[Check], Check]:
    """Registers a check, with the keys it reads."""

    def register(check: Check) -> Check:
        _CHECKS.append((keys, check))
        return check

    return register


def faults(study: "Study", broken: list[Path]) -> list[str]:
    """One line per fault. broken: paths of keys that are already known to be wrong and hold stand-ins or defaults."""
    lines: list[str] = []
    for keys, check in _CHECKS:
        if not any(overlap(tuple(key.split(".")), broken) for key in keys):
            lines += check(study)
    return lines + list(arm_faults(study, broken))


def machine_faults(study: "Study", gpus_here: int) -> list[str]:
    """What the study asks of this machine and it does not have; to be asked only where jobs will run here."""
    compute, lines = study.compute, []
    if compute.gpus > gpus_here:
        lines.append(
            line(
                "compute.gpus",
                compute.gpus,
                f"at most {gpus_here}: so many GPUs are on this machine; for tables alone 0",
            )
        )
    for tracker in compute.trackers:
        if find_spec(tracker) is None:
            lines.append(line("compute.trackers", tracker, f"not installed here: pip install {tracker}"))
    if compute.engine == "vllm" and find_spec("vllm") is None:
        lines.append(line("compute.engine", "vllm", "not installed here: make gpu; for tables alone transformers"))
    return lines


@_reads("study", "model", "evaluation.prompt_family")
def _model(study: "Study") -> Iterator[str]:
    model, evaluated = study.model, study.evaluation.prompt_family
    if model.source == "embedded":
        for key, value in (("name", model.name), ("revision", model.revision)):
            if value is not None:
                yield line(f"model.{key}", value, "remove this key: the pipeline makes the embedded model itself")
        for key, family in (("model", model.prompt_family), ("evaluation", evaluated or "plain")):
            if family != "plain":
                yield line(f"{key}.prompt_family", family, "plain: the embedded model knows no other")
    elif model.name is None:
        what = {"hub": "the model's hub id", "pypi": "the package", "local": "the model's folder"}[model.source]
        yield line("model.name", None, f"source {model.source} needs {what}")
    families = (model.prompt_family, evaluated or model.prompt_family)
    if model.date is not None and not any("system" in PROMPTS[family] for family in families):
        yield line("model.date", model.date, "remove this key: only prompt families with a chat template can read it")
    if model.source == "hub" and model.revision is None:
        yield line("model.revision", None, "source hub needs a pinned revision: a commit")
    if model.source in ("pypi", "local") and model.revision is not None:
        yield line("model.revision", model.revision, f"remove this key: source {model.source} has no revisions")


@_reads("sets")
def _sets(study: "Study") -> Iterator[str]:
    for name, own in study.sets.items():
        if name == "macro":
            yield line("sets.macro", "macro", "another name: tables use this one for the mean over benchmarks")
        known = name in benchmarks.names()
        if own.path is None:
            yield line(f"sets.{name}.path", None, f"source {own.source} needs {_PATH[own.source]}")
        if own.source == "hub" and own.revision is None:
            yield line(f"sets.{name}.revision", None, "source hub needs a pinned revision: a commit")
        if not known and own.grader is None:
            yield line(f"sets.{name}.grader", None, "a problem set of your own needs a grader")
        for key in ("revision", "config", "split") if own.source == "local" else ():
            if getattr(own, key) is not None:
                yield line(f"sets.{name}.{key}", getattr(own, key), "remove this key: only source hub has it")
        for key in ("fields", "gaps", "unused", "grader") if known else ():
            if getattr(own, key) is not None:
                yield line(
                    f"sets.{name}.{key}",
                    getattr(own, key),
                    "remove this key: of a known set only the place can change",
                )


@_reads("arms", "sets")
def _names_apart(study: "Study") -> Iterator[str]:
    """Arms and problem sets name folders and files, and macOS by default ignores their case."""
    for section, names in (("arms", [*study.arms]), ("sets", [*study.sets, *study.all_benchmarks])):
        first: dict[str, str] = {}
        for name in names:
            other = first.setdefault(name.lower(), name)
            if other != name:
                yield line(f"{section}.{name}", name, f"a name that differs from {other} in more than its case")


_PATH = {"local": "the name of a file in data_dir", "hub": "the id of a data set on the hub"}


def _unknown_set(study: "Study", path: str, name: str) -> Iterator[str]:
    """At most one line: the name is no problem set."""
    names = (*study.sets, *benchmarks.names())
    if name not in names:
        yield line(path, name, "no problem set of that name" + nearest(name, names, f"; allowed: {', '.join(names)}"))


@_reads("sets", "data.train")
def _train_set(study: "Study") -> Iterator[str]:
    train = study.data.train
    if train.benchmark in study.sets:
        if train.split is not None and train.benchmark not in benchmarks.names():
            yield line("data.train.split", train.split, "remove this key: a set of your own is one split")
        return
    try:
        found = benchmarks.problem_set(train.benchmark, train.split)
    except KeyError as error:
        key = "benchmark" if train.split is None else "split"
        yield line(f"data.train.{key}", getattr(train, key), error.args[0])
        return
    if found.size is None:
        for key in ("rows", "seed"):
            if getattr(train, key) is None:
                yield f"data.train.{key}: missing: {found.name} is generated and needs it"
    if found.size is not None and train.rows is not None and train.rows > found.size:
        yield line("data.train.rows", train.rows, f"at most {found.size}, the rows of {found.name}")


@_reads("sets", "evaluation.benchmarks", "evaluation.selection")
def _benchmark_names(study: "Study") -> Iterator[str]:
    for name in study.reported:
        yield from _unknown_set(study, "evaluation.benchmarks", name)
    selection = study.evaluation.selection
    if selection is not None:
        yield from _unknown_set(study, "evaluation.selection", selection)
        if selection in study.reported:
            yield line("evaluation.selection", selection, "a benchmark that is not reported: it chooses checkpoints")


@_reads("sets", "data.decontaminate_against")
def _decontaminated(study: "Study") -> Iterator[str]:
    for name in study.data.decontaminate_against:
        yield from _unknown_set(study, "data.decontaminate_against", name)


@_reads("sets", "data", "evaluation.benchmarks", "evaluation.selection")
def _train_is_no_holdout(study: "Study") -> Iterator[str]:
    if any(_train_set(study)) or any(_benchmark_names(study)) or any(_decontaminated(study)):
        return
    place = _place(study, study.train_set)
    for key, names in (
        ("evaluation.benchmarks", study.reported),
        ("evaluation.selection", study.sampled[len(study.reported) :]),
        ("data.decontaminate_against", study.data.decontaminate_against),
    ):
        for name in names:
            if _place(study, name) == place:
                yield line(key, name, "a problem set other than the one trained on (data.train)")


def _place(study: "Study", name: str) -> tuple[str | None, ...]:
    """Where the rows of a problem set come from; two names of one place are one set."""
    own = study.sets.get(name)
    return (own.source, own.path, own.config, own.split) if own else (name,)


@_reads("rollout.prompts", "data.train.rows")
def _enough_rows(study: "Study") -> Iterator[str]:
    rows = study.data.train.rows
    if rows is not None and study.rollout.prompts > rows:
        yield line("rollout.prompts", study.rollout.prompts, f"at most data.train.rows, {rows}")


@_reads("evaluation", "sets")
def _samples(study: "Study") -> Iterator[str]:
    evaluation = study.evaluation
    if isinstance(evaluation.samples, dict):
        for name in evaluation.samples:
            if name not in study.sampled:
                near = nearest(name, study.sampled, f"; allowed: {', '.join(study.sampled)}")
                yield line(f"evaluation.samples.{name}", evaluation.samples[name], f"no benchmark of this study{near}")
    for name in study.sampled:
        samples = evaluation.samples.get(name) if isinstance(evaluation.samples, dict) else evaluation.samples
        if samples is None:
            yield f"evaluation.samples.{name}: missing: each benchmark of evaluation needs its number"
        elif max(evaluation.pass_at) > samples:
            allowed = f"at most evaluation.samples, {samples} of {name}"
            yield line("evaluation.pass_at", max(evaluation.pass_at), allowed)


@_reads("analysis.endpoint.pass_at", "evaluation.pass_at")
def _endpoint(study: "Study") -> Iterator[str]:
    if study.analysis.endpoint.pass_at not in study.evaluation.pass_at:
        allowed = f"one of evaluation.pass_at, {', '.join(map(str, study.evaluation.pass_at))}"
        yield line("analysis.endpoint.pass_at", study.analysis.endpoint.pass_at, allowed)


@_reads("analysis.looks")
def _looks(study: "Study") -> Iterator[str]:
    looks = study.analysis.looks
    if looks is not None and looks != sorted(looks):
        yield line("analysis.looks", looks, "numbers of seeds in ascending order")


@_reads("analysis.policies", "rollout.group_size")
def _policies(study: "Study") -> Iterator[str]:
    yield from policy_faults(study)


@_reads("compute")
def _compute(study: "Study") -> Iterator[str]:
    compute = study.compute
    if compute.device == "cpu" and compute.gpus:
        yield line("compute.gpus", compute.gpus, "0 with device cpu")
    elif compute.device == "cuda" and not compute.gpus:
        yield line("compute.gpus", 0, "at least 1 with device cuda")
    elif compute.gpus and compute.processes not in (None, compute.gpus):
        yield line("compute.processes", compute.processes, f"{compute.gpus}, one per GPU")
    if compute.vllm.server is not None and not compute.vllm.server.startswith(("http://", "https://")):
        yield line("compute.vllm.server", compute.vllm.server, "an address: http://HOST:PORT")
    if compute.vllm.mode == "server" and compute.vllm.server is None:
        yield line("compute.vllm.server", None, "mode server needs the address of a running `vllm serve`")
    if compute.vllm.mode == "colocate" and compute.vllm.server is not None:
        yield line("compute.vllm.server", compute.vllm.server, "remove this key: it belongs to mode server")


@_reads(
    "compute", "rollout.top_p", "rollout.top_k", "rollout.temperature", "evaluation.temperature", "model.adapter",
    "arms",
)  # fmt: skip
def _vllm(study: "Study") -> Iterator[str]:
    if study.compute.engine != "vllm":
        return
    rollouts = {arm: study.resolved(arm).rollout for arm in study.arms}
    for top_p in {rollout.top_p for rollout in rollouts.values() if rollout.top_p < 1}:
        allowed = "1 with compute.engine vllm: its log-probabilities would be those within the nucleus"
        yield line("rollout.top_p", top_p, allowed)
    for top_k in {rollout.top_k for rollout in rollouts.values() if rollout.top_k is not None}:
        allowed = "none with compute.engine vllm: its log-probabilities would be those of the most likely tokens alone"
        yield line("rollout.top_k", top_k, allowed)
    temperatures = {("rollout.temperature", rollout.temperature) for rollout in rollouts.values()}
    for key, value in sorted({*temperatures, ("evaluation.temperature", study.evaluation.temperature)}):
        if value < _VLLM_COOLEST:
            yield line(key, value, f"at least {_VLLM_COOLEST} with compute.engine vllm, which raises what is below")
    adapter = study.model.adapter
    if adapter is not None and adapter.rank > _VLLM_RANK:
        yield line("model.adapter.rank", adapter.rank, f"at most {_VLLM_RANK} with compute.engine vllm")


@_reads("compute.keep")
def _keep(study: "Study") -> Iterator[str]:
    keep = study.compute.keep
    if keep.state == "last" and not keep.checkpoints:
        yield line(
            "compute.keep.state", "last", "none with keep.checkpoints: false: no run goes on without its weights"
        )


@_reads("training.steps", "training.checkpoints", "rollout.minibatches", "rollout.epochs")
def _steps(study: "Study") -> Iterator[str]:
    yield from step_faults("", study.training, study.rollout.updates_per_batch)


@_reads("rollout", "compute.gpus", "compute.processes")
def _batch(study: "Study") -> Iterator[str]:
    yield from batch_faults("", study.rollout, study.compute)


@_reads("training.schedule", "training.warmup_steps")
def _warmup(study: "Study") -> Iterator[str]:
    yield from warmup_faults("", study.training)


@_reads("training.reward", "training.success_threshold")
def _reward(study: "Study") -> Iterator[str]:
    yield from reward_faults("", study.training)


@_reads("training.trl")
def _trl(study: "Study") -> Iterator[str]:
    yield from trl_faults("training.trl", study.training.trl)
