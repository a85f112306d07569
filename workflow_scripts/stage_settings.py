"""What each stage gets of the study: exactly the settings it uses, so that nothing else can invalidate its results.

Only rules and commands call this; stages get the outcome as canonical JSON. Where a key is not set it is left out,
never null, so that a key that joins the study later leaves old results valid.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from workflow_scripts import benchmarks
from workflow_scripts.grading import knows_copies
from workflow_scripts.grading import libraries as grader_libraries
from workflow_scripts.sampling import TEMPLATE_DATE
from workflow_scripts.study import Study, own_code
from workflow_scripts.study.compared import compared
from workflow_scripts.study.keys import PROMPTS, Fields, keys_of_function
from workflow_scripts.study.static_gate import functions

Settings = dict[str, Any]


def canonical(settings: Settings) -> str:
    """Sorted, compact JSON."""
    return json.dumps(settings, sort_keys=True, separators=(",", ":"))


def _set(**values: Any) -> Settings:
    return {key: value for key, value in values.items() if value is not None}


@lru_cache(None)
def _local_sha256(path: Path) -> str | None:
    from workflow_scripts.tables import file_sha256

    return file_sha256(path) if path.is_file() else None


def _recorded_set(result: Path) -> Settings:
    """What an existing result says it was read from: where the file itself is not here, its result stays valid."""
    from workflow_scripts.tables import TableError, provenance

    try:
        return provenance(result).get("settings", {}).get("set", {})
    except TableError:  # missing or damaged: it proves nothing
        return {}


def _local_file(study: Study, path: str | None, result: Path) -> Settings:
    assert path is not None  # the study checks it
    folder = Path(study.data_dir or "").expanduser()
    return _set(source="local", path=path, sha256=_local_sha256(folder / path) or _recorded_set(result).get("sha256"))


def problem_set(study: Study, name: str, result: Path) -> Settings:
    """Where one problem set comes from: generated, a local file (by its sha256), or a pinned revision on the hub."""
    own = study.sets.get(name)
    if own is not None:
        place = _local_file(study, own.path, result) if own.source == "local" else _set(source="hub", path=own.path)
        named = own.fields or (None if name in benchmarks.names() else Fields())
        fields = named.model_dump(exclude_none=True) if named else None
        gaps = "drop" if own.gaps == "drop" else None
        more = _set(config=own.config, split=own.split, fields=fields, gaps=gaps, unused=own.unused or None)
        return _set(name=name, **place, revision=own.revision) | more
    known = benchmarks.problem_set(name)
    if "generated" in known.sources:
        return _set(name=known.benchmark, split=known.split, source="generated")
    hub = known.hub
    # without data_dir a result that came from a local file stays what it is
    local = study.data_dir is not None or _recorded_set(result).get("source") == "local"
    if hub is None or (known.file is not None and local):
        place = _local_file(study, known.file, result)
    else:
        place = _set(source="hub", path=hub.path, config=hub.config, revision=hub.revision, hub_split=hub.split)
    return _set(name=known.benchmark, split=known.split, **place)


def benchmark_module(study: Study, name: str) -> str | None:
    """Module of `benchmarks` that reads a problem set; a set of the user's own has none."""
    return benchmarks.problem_set(name).benchmark if name in benchmarks.names() else None


def fetch_train_set(study: Study, result: Path) -> Settings:
    """The candidates for training."""
    train = study.data.train
    return {"set": problem_set(study, study.train_set, result) | _set(rows=train.rows, seed=train.seed)}


def fetch_benchmark(study: Study, benchmark: str, result: Path) -> Settings:
    """The whole benchmark; how many of its problems are sampled is said where they are sampled."""
    return {"set": problem_set(study, benchmark, result)}


def train_grader(study: Study) -> str:
    """Grader of the train set: the reward's, or the problem set's own where the reward is the user's function."""
    return study.grader_of(study.train_set) if ":" in study.training.reward else study.training.reward


def copied(study: Study, grader: str) -> Settings:
    """What the study says of answers that are copied from the question, for a grader that can tell; else nothing."""
    return {"copied": "refuse"} if study.grading.copied == "refuse" and knows_copies(grader) else {}


def audit_train_set(study: Study, reward_version: int) -> Settings:
    """The audit that decides which train rows are used, made under the pinned reward version."""
    grader = train_grader(study)
    return {"grader": grader, "reward_version": reward_version} | copied(study, grader)


def _model(study: Study, prompt_family: str) -> Settings:
    """What training and sampling need to know of the model; the weights themselves are an input."""
    model = study.model
    return _set(
        dtype=model.dtype,
        prompt_family=prompt_family,
        date=_template_date(study, prompt_family),
        adapter=model.adapter.model_dump() if model.adapter else None,
    )


def prepare_base(study: Study) -> Settings:
    """Which base model; what can change under the same name is told apart by a version or by its files."""
    model = study.model
    found = None
    if model.source == "pypi" and model.name:
        with suppress(PackageNotFoundError):
            found = version(model.name)
    elif model.source == "local" and model.name:
        found = _folder_digest(Path(model.name).expanduser())
    return {
        "model": _set(source=model.source, name=model.name, revision=model.revision, dtype=model.dtype, found=found)
    }


def _asked_of_the_tokenizer(family: str) -> int:
    """0: nothing; 1: a chat template; 2: one that takes a system prompt."""
    system = PROMPTS[family].get("system")
    return 0 if system is None else 1 + bool(system)


def _template_date(study: Study, family: str) -> str | None:
    """The date that a chat template is told; None for a family that uses none."""
    return (study.model.date or TEMPLATE_DATE) if _asked_of_the_tokenizer(family) else None


def fits(study: Study) -> Settings:
    """What the base must fit, looked at when it is made; no setting of it."""
    adapter = study.model.adapter
    family = max(study.model.prompt_family, _evaluated_with(study), key=_asked_of_the_tokenizer)
    return {
        "prompt_family": family,
        "date": _template_date(study, family),
        "adapter": adapter.model_dump() if adapter else None,
        "rollout.max_completion": max(study.resolved(arm).rollout.max_completion for arm in study.arms),
        "evaluation.max_completion": study.evaluation.max_completion,
    }


def _folder_digest(folder: Path) -> str | None:
    """Digest of a model folder: names and sizes of its files, and the content of the small ones (weights are not read
    on every call)."""
    from workflow_scripts.tables import text_digest

    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [
        f"{path.relative_to(folder)} {path.stat().st_size} {_local_sha256(path) if path.stat().st_size < 1e6 else ''}"
        for path in files
    ]
    return text_digest("\n".join(lines)) if files else None


def objective_sources(objectives: Iterable[Settings]) -> Settings:
    """Digests of the modules of the user's own functions in these objectives; nothing at all where there are none."""
    names = {name for objective in objectives for name in functions(objective)}
    found = own_code.sources(sorted(names))
    return {"objective_sources": found} if found else {}


def train(study: Study, arm: str, seed: int, reward_version: int) -> Settings:
    """One run: this arm's settings and the seed, and nothing of any other arm."""
    resolved = study.resolved(arm)
    training = resolved.training.model_dump(exclude_none=True) | {"checkpoints": resolved.checkpoints}
    branch = {"step": resolved.branch_from.step, "optimizer": resolved.optimizer} if resolved.branch_from else None
    return _set(
        seed=seed,
        model=_model(study, study.model.prompt_family),
        objective=resolved.objective,
        rollout=resolved.rollout.model_dump(exclude_none=True),
        training=training,
        reward_version=reward_version,
        reward_source=own_code.source(training["reward"]),
        branch=branch,
        **copied(study, training["reward"]),
        **objective_sources([resolved.objective]),
    )


def _evaluated_with(study: Study) -> str:
    return study.evaluation.prompt_family or study.model.prompt_family


def prompt_root(study: Study) -> str:
    """The one prompt family that sampling uses."""
    return f"sampling/prompts.json:{_evaluated_with(study)}"


def train_roots(study: Study, arm: str) -> tuple[str, ...]:
    """What training looks up by name: this arm's clip policy and surrogate, and its prompt family."""
    return (*objective_roots([study.resolved(arm).objective]), f"sampling/prompts.json:{study.model.prompt_family}")


def objective_roots(objectives: Iterable[Settings], axes: Sequence[str] = ("bounds", "surrogate")) -> tuple[str, ...]:
    """What of our objectives is looked up by name; the user's own functions are in the settings."""
    found = {(axis, objective[axis]) for objective in objectives for axis in axes if axis in objective}
    return tuple(sorted(f"objectives.{axis}:{name}" for axis, name in found if not own_code.is_own(name)))


def branch_states(study: Study) -> dict[str, list[int]]:
    """Arms that others branch off, and the steps at which they do."""
    runs = study.runs()
    branches = [study.resolved(arm).branch_from for arm in runs]
    steps: dict[str, set[int]] = {}
    for branch in branches:
        if branch is not None:
            steps.setdefault(branch.arm, set()).add(branch.step)
    return {arm: sorted(found) for arm, found in steps.items()}


def branches(study: Study) -> Settings:
    """branches: arm -> the arm and step it starts from; nothing at all in a study without any."""
    found = {arm: branch.model_dump() for arm in study.runs() if (branch := study.resolved(arm).branch_from)}
    return {"branches": found} if found else {}


def _sampling(study: Study, benchmark: str) -> Settings:
    evaluation = study.evaluation
    return _set(
        benchmark=benchmark,
        model=_model(study, _evaluated_with(study)),
        problems=evaluation.problems,
        samples=study.samples_of(benchmark),
        **evaluation.options,
    )


def sample_base(study: Study, repeat: int, benchmark: str) -> Settings:
    """One more evaluation of the untrained base."""
    return _sampling(study, benchmark) | {"repeat": repeat}


def sampled_on(study: Study) -> dict[str, int]:
    """Every benchmark that is sampled, and how many completions of each problem."""
    return {benchmark: study.samples_of(benchmark) for benchmark in study.sampled}


def sample_checkpoints(study: Study, arm: str, seed: int, benchmark: str) -> Settings:
    """All checkpoints of a run on one benchmark."""
    return _sampling(study, benchmark) | {"arm": arm, "seed": seed, "steps": study.resolved(arm).checkpoints}


def analysis(study: Study) -> Settings:
    """What the statistics need to know, the same for all of them.

    Roles are those of all declared arms, trained or not: the size of the family, and with it the verdicts, must not
    depend on which arms are looked at.
    """
    return _set(
        baseline=study.baseline,
        roles=study.roles(),
        runs=study.runs(),
        benchmarks=study.reported,
        selection=study.evaluation.selection,
        pass_at=study.evaluation.pass_at,
        endpoint=study.analysis.endpoint.model_dump(),
        margin=study.analysis.margin,
        alpha=study.analysis.alpha,
        looks=study.looks,
        last_steps={arm: study.resolved(arm).training.steps for arm in study.arms},
        checkpoints={arm: study.resolved(arm).checkpoints for arm in study.arms},
        base_repeats=list(range(study.evaluation.base_repeats)),
        allow_missing=study.allow_missing,
    )


def count(study: Study) -> Settings:
    """Which runs are counted, and whether some may be missing."""
    return {
        "runs": study.runs(),
        "base_repeats": list(range(study.evaluation.base_repeats)),
        "benchmarks": study.sampled,
        "decontaminated": study.data.decontaminate_against,
        "allow_missing": study.allow_missing,
    }


def records(study: Study, reward_version: int) -> Settings:
    """What the tables made from training's records need."""
    runs = study.runs()
    arms = {arm: study.resolved(arm) for arm in runs}
    return (
        {
            "runs": runs,
            "roles": {arm: resolved.role for arm, resolved in arms.items()},
            "baseline": study.baseline,
            "objectives": {arm: resolved.objective for arm, resolved in arms.items()},
            "updates_per_batch": {arm: resolved.updates_per_batch for arm, resolved in arms.items()},
            "steps": {arm: resolved.training.steps for arm, resolved in arms.items()},
            "reward_version": reward_version,
            "differs_only_in_bounds": [arm for arm in runs if study.differs_only_in_bounds(arm)],
            "allow_missing": study.allow_missing,
        }
        | branches(study)
        | objective_sources(resolved.objective for resolved in arms.values())
    )


def clip_policies(study: Study) -> Settings:
    """Every clip policy of the study: each arm's, named by the first arm that has it, and those only asked about."""
    found: Settings = {}
    for arm in study.arms:
        policy = _clip_policy(study, arm)
        if policy is not None and policy not in found.values():
            found[arm] = policy
    for name, asked in study.analysis.policies.items():
        keys = asked.model_dump(exclude_none=True)
        found[name] = keys | keys.pop("own", {})
    return found


def _clip_policy(study: Study, arm: str) -> Settings | None:
    objective = study.resolved(arm).objective
    if objective["surrogate"] != "clipped":
        return None
    return {key: objective[key] for key in ("bounds", *keys_of_function(objective["bounds"])) if key in objective}


def objectives(study: Study) -> Settings:
    """Objective and group size of each arm that is trained."""
    arms = {arm: study.resolved(arm) for arm in study.runs()}
    return {
        "objectives": {arm: resolved.objective for arm, resolved in arms.items()},
        "group_sizes": {arm: resolved.rollout.group_size for arm, resolved in arms.items()},
    } | objective_sources(resolved.objective for resolved in arms.values())


def ask_policies(study: Study) -> Settings:
    """What is asked of the records of each run: its ratio, its own clip policy if it clips, and all that are asked."""
    runs = study.runs()
    return {
        "runs": runs,
        "ratios": {arm: study.resolved(arm).objective["ratio"] for arm in runs},
        "own": _set(**{arm: _clip_policy(study, arm) for arm in runs}),
        "policies": clip_policies(study),
        "allow_missing": study.allow_missing,
    } | _policy_sources(clip_policies(study))


def _policy_sources(policies: Settings) -> Settings:
    found = own_code.sources(sorted({policy["bounds"] for policy in policies.values()}))
    return {"policy_sources": found} if found else {}


def rewards(study: Study, reward_version: int) -> Settings:
    """What grading the stored rollouts again needs: each arm's reward, and the versions of the graders' libraries."""
    runs = study.runs()
    by_arm = {arm: study.resolved(arm).training.reward for arm in runs}
    copies = {arm: said["copied"] for arm, name in by_arm.items() if (said := copied(study, name))}
    libraries = {name: found for name in {*by_arm.values()} if ":" not in name and (found := grader_libraries(name))}
    return {
        "runs": runs,
        "rewards": by_arm,
        "reward_version": reward_version,
        "allow_missing": study.allow_missing,
    } | _set(libraries=libraries or None, copied=copies or None)


def report(study: Study) -> Settings:
    """The page: the question, what was compared, and how it was to be answered."""
    asked = _set(question=study.question or "", max_prompt=study.rollout.max_prompt, compared=compared(study))
    return {"study": study.study, "arms": list(study.runs())} | asked | analysis(study)
