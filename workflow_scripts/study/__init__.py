"""The typed study, and what each of its arms comes to.

Rules and commands read a study through `load`; stages never do, they get their settings. All that is wrong with a study
is found at once (`checks`) and said in one line per fault (`faults`).
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import PrivateAttr, ValidationError

from workflow_scripts import benchmarks
from workflow_scripts.objectives.presets import PRESETS
from workflow_scripts.study import checks
from workflow_scripts.study.checks import machine_faults
from workflow_scripts.study.faults import Path, StudyFaults, overlap, path_of, said, shown
from workflow_scripts.study.keys import (
    POLICY_KEYS,
    UNCLIPPED,
    BranchFrom,
    Part,
    Rollout,
    StudyKeys,
    Training,
    keys_of_function,
)
from workflow_scripts.study.trl_fields import reaching_the_weights

__all__ = ["ResolvedArm", "Study", "StudyFaults", "load", "machine_faults"]

# What stands in for a required key that is missing or broken, so that the rest is still checked.
_STAND_INS: dict[Path, Any] = {
    ("study",): "unnamed",
    ("model",): {},
    ("model", "source"): "embedded",
    ("data",): {},
    ("data", "train"): {},
    ("data", "train", "benchmark"): "unnamed",
    ("rollout",): {},
    ("rollout", "max_completion"): 1,
    ("training",): {},
    ("training", "steps"): 1,
    ("training", "learning_rate"): 1.0,
    ("arms",): {"unnamed": {}},
    ("baseline",): "unnamed",
    ("evaluation",): {},
    ("evaluation", "benchmarks"): ["unnamed"],
    ("evaluation", "max_completion"): 1,
}


@dataclass(frozen=True)
class ResolvedArm:
    """An arm with its preset, `same_as` and the study's own settings worked in.

    objective: only what is set: ratio, bounds, surrogate, advantage {scale, focal_gamma}, aggregation, the keys of the
    clip policy or surrogate, and kl and beta where beta is above 0. optimizer: carry or reset, of a branch only.
    """

    name: str
    role: str
    seeds: list[int]
    branch_from: BranchFrom | None
    optimizer: str | None
    objective: dict[str, Any]
    training: Training
    rollout: Rollout

    @property
    def updates_per_batch(self) -> int:
        """Optimizer updates from one rollout batch."""
        return self.rollout.updates_per_batch

    @property
    def checkpoints(self) -> list[int]:
        """Steps at which weights are kept; a branch has only those after its start."""
        return self.training.checkpoints or [self.training.steps]

    @property
    def identity(self) -> dict[str, Any]:
        """What, with a seed, makes the run: two arms of equal identity are the same run under the same seed."""
        return {
            "objective": self.objective,
            "training": self.training.model_dump(exclude_none=True),
            "rollout": self.rollout.model_dump(),
            "branch_from": self.branch_from and self.branch_from.model_dump(),
            "optimizer": self.optimizer,
        }


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """One mapping laid over another, nested ones too."""
    nested = {
        k: _over(below[k], v) for k, v in above.items() if isinstance(v, Mapping) and isinstance(below.get(k), Mapping)
    }
    return {**below, **above, **nested}


class Study(StudyKeys):
    """A study whose faults are all found: every key of config.yaml, and what follows from them."""

    _arms: dict[str, ResolvedArm] = PrivateAttr(
        default_factory=dict
    )  # resolved once: rules ask for them with every job

    def keys_of(self, name: str) -> dict[str, Any]:
        """All that an arm sets itself or inherits, without what its own choice of policy leaves unused."""
        own = self.arms[name].model_dump(exclude_none=True)
        inherited = PRESETS[own["preset"]] if "preset" in own else {}
        if "same_as" in own:
            inherited = {key: value for key, value in self.keys_of(own["same_as"]).items() if key != "role"}
        keys = _over(inherited, own)
        if keys.get("surrogate", "clipped") in UNCLIPPED and "bounds" not in own:
            keys.pop("bounds", None)
        used = (*keys_of_function(keys.get("bounds", "")), *keys_of_function(keys.get("surrogate", "")))
        unused = [key for key in POLICY_KEYS if key in keys and key not in used and key not in own]
        if "own" in keys:
            keys["own"] = {k: v for k, v in keys["own"].items() if k in used or k in own.get("own", {})}
        return {key: value for key, value in keys.items() if key not in (*unused, "preset", "same_as")}

    def resolved(self, arm: str) -> ResolvedArm:
        """What an arm comes to."""
        if arm not in self._arms:
            self._arms[arm] = self._resolve(arm)
        return self._arms[arm]

    def _resolve(self, name: str) -> ResolvedArm:
        keys = self.keys_of(name)
        branch = BranchFrom(**keys["branch_from"]) if "branch_from" in keys else None
        training = _over(self.training.model_dump(exclude_none=True), keys.get("training", {}))
        if branch and "checkpoints" in training and "checkpoints" not in keys.get("training", {}):
            training["checkpoints"] = [step for step in training["checkpoints"] if step > branch.step] or None
        if ":" not in training["reward"]:  # a grader's 1 is a success, its 0 none, whatever lies between
            training["success_threshold"] = 1.0
        axes = ("ratio", "bounds", "surrogate", "advantage", "aggregation", *POLICY_KEYS)
        objective = {key: keys[key] for key in axes if key in keys} | keys.get("own", {})
        if training["beta"] > 0:
            objective |= {"kl": keys.get("kl", "k3"), "beta": training["beta"]}
        return ResolvedArm(
            name=name,
            role=keys.get("role", "comparison"),
            seeds=keys.get("seeds", self.seeds),
            branch_from=branch,
            optimizer=keys.get("optimizer", "carry") if branch else None,
            objective=objective,
            training=Training.model_validate(training),
            rollout=Rollout.model_validate(_over(self.rollout.model_dump(), keys.get("rollout", {}))),
        )

    def differs_only_in_bounds(self, arm: str) -> bool:
        """Whether an arm is the baseline with another clip policy or other bounds, and nothing else."""
        return self.only_bounds(arm, self.baseline)

    def only_bounds(self, arm: str, other: str) -> bool:
        """The same of any two arms. A branch that carries the optimizer is its parent but for what it changes."""
        one, two = (self.resolved(name) for name in (arm, other))
        branch = one.branch_from is not None and one.branch_from.arm == other and one.optimizer == "carry"
        same = ["training", "rollout"] if branch else ["training", "rollout", "branch_from", "optimizer"]
        policy = {
            "bounds",
            *POLICY_KEYS,
            *(key for each in (one, two) for key in self.keys_of(each.name).get("own", {})),
        }
        rest, objectives = [], [one.objective, two.objective]
        for each in (one, two):
            identity = {key: each.identity[key] for key in same}
            identity["training"].pop("checkpoints", None)  # which weights are kept changes no training
            identity["training"]["trl"] = reaching_the_weights(each.training.trl, self.compute.engine)
            rest.append((identity, {k: v for k, v in each.objective.items() if k not in policy}))
        clipped = all(objective["surrogate"] == "clipped" for objective in objectives)
        return clipped and rest[0] == rest[1] and objectives[0] != objectives[1]

    def runs(self) -> dict[str, list[int]]:
        """Seeds to train of each arm, in the study's order: all, or those of `only_arms` and what they branch from."""
        if self.only_arms is None:
            return {name: self.resolved(name).seeds for name in self.arms}
        wanted: dict[str, set[int]] = {}
        for name in self.only_arms:
            arm, seeds = self.resolved(name), set(self.resolved(name).seeds)
            wanted.setdefault(name, set()).update(seeds)
            while arm.branch_from:
                arm = self.resolved(arm.branch_from.arm)
                wanted.setdefault(arm.name, set()).update(seeds)
        return {
            name: [s for s in self.resolved(name).seeds if s in wanted[name]] for name in self.arms if name in wanted
        }

    def roles(self) -> dict[str, str]:
        """Role of each arm."""
        return {name: self.resolved(name).role for name in self.arms}

    @property
    def reported(self) -> list[str]:
        """Benchmarks whose scores are reported."""
        return self.evaluation.benchmarks

    @property
    def sampled(self) -> list[str]:
        """Benchmarks that are sampled: the reported ones and the one for selection."""
        return [*self.reported, *([self.evaluation.selection] if self.evaluation.selection else [])]

    @property
    def all_benchmarks(self) -> list[str]:
        """Holdouts: those that are sampled and those that only the train set is cleaned of."""
        return list(dict.fromkeys([*self.sampled, *self.data.decontaminate_against]))

    @property
    def train_set(self) -> str:
        """Full name of the problem set to train on."""
        train = self.data.train
        if train.benchmark in self.sets and train.benchmark not in benchmarks.names():
            return train.benchmark
        return benchmarks.problem_set(train.benchmark, train.split).name

    @property
    def looks(self) -> list[int]:
        """Seed counts at which the study is looked at: those it names, else the number of its seeds."""
        return self.analysis.looks or [len(self.resolved(self.baseline).seeds)]

    def samples_of(self, benchmark: str) -> int:
        """Completions sampled for each problem of a benchmark."""
        samples = self.evaluation.samples
        return samples[benchmark] if isinstance(samples, dict) else samples

    def grader_of(self, benchmark: str) -> str:
        """Grader of a holdout."""
        own = self.sets.get(benchmark)
        return own.grader if own and own.grader else benchmarks.problem_set(benchmark).grader


def _kinds(annotation: Any) -> list[Any]:
    """The types an annotation allows, without Annotated and unions around them."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for part in get_args(annotation) for kind in _kinds(part)]
    return [annotation]


def _parsed(text: str) -> Any:
    """What a text from the command line says, where a list or a mapping is meant."""
    try:
        return yaml.safe_load(text) if text.lstrip()[:1] in ("[", "{") else text
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def _plain(annotation: Any, value: Any) -> Any:
    """The value as YAML would have given it: from the command line even lists and mappings may arrive as text.

    Numbers and flags in texts are left to pydantic; a single text where a list belongs becomes a list of one.
    """
    kinds = _kinds(annotation)
    if isinstance(value, str):
        if type(None) in kinds and value in ("null", "~"):
            return None
        value = value if str in kinds else _parsed(value)
    only = kinds[0] if len([kind for kind in kinds if kind is not type(None)]) == 1 else None
    if get_origin(only) is list and isinstance(value, str) and value and not value.isdecimal():
        value = [value]
    for kind in kinds:
        arguments = get_args(kind)
        if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, Part):
            keys = kind.model_fields
            return {k: _plain(keys[k].annotation, v) if k in keys else v for k, v in value.items()}
        if isinstance(value, Mapping) and get_origin(kind) is dict:
            return {key: _plain(arguments[1], part) for key, part in value.items()}
        if isinstance(value, (list, tuple)) and get_origin(kind) is list:
            return [_plain(arguments[0], part) for part in value]
    return value


def _keys_at(path: tuple[Any, ...]) -> list[str]:
    """Names of the keys that may stand at a path of the study."""
    kinds: list[Any] = [StudyKeys]
    for step in path:
        found = []
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, Part):
                found += _kinds(kind.model_fields[step].annotation) if step in kind.model_fields else []
            elif get_origin(kind) is dict:
                found += _kinds(get_args(kind)[1])
        kinds = found
    return [k for kind in kinds if isinstance(kind, type) and issubclass(kind, Part) for k in kind.model_fields]


def _take_out(tree: dict[Any, Any], path: Path) -> Path:
    """Take a broken key out of the tree, or put its stand-in there; returns the path of what was taken out.

    What is broken within a list takes the whole list with it.
    """
    at: Any = tree
    for depth, step in enumerate(path):
        key = next((key for key in at if str(key) == str(step)), step)
        last = depth == len(path) - 1 or not isinstance(at.get(key), dict)
        if last:
            path = path[: depth + 1]
            at.pop(key, None)
            if path in _STAND_INS:
                at[key] = deepcopy(_STAND_INS[path])
            return path
        at = at[key]
    return path


def load(config: Mapping[str, Any]) -> Study:
    """The study that a configuration describes.

    Raises StudyFaults with every fault that can be found: what is broken is said and taken out, and the rest is checked
    for what does not fit together.
    """
    if not isinstance(config, Mapping) or not config:
        raise StudyFaults([f"study file: {shown(config)}: a mapping of keys to values; the file is empty or no study"])
    tree = _plain(StudyKeys, config)
    lines: list[str] = []
    broken: list[Path] = []
    for _ in range(len(_STAND_INS)):
        try:
            study = Study.model_validate(tree)
            break
        except ValidationError as error:
            found = [(path_of(fault), fault) for fault in error.errors(include_url=False)]
            lines += [said(path, fault, _keys_at(path[:-1])) for path, fault in found if not overlap(path, broken)]
            for path, fault in found:
                lost = fault["type"] == "missing" and path not in _STAND_INS
                broken.append(_take_out(tree, path[:-1] if lost else path))
    else:
        raise StudyFaults(list(dict.fromkeys(lines)))
    lines += checks.faults(study, broken)
    if lines:
        raise StudyFaults(list(dict.fromkeys(lines)))
    return study
