"""Arms whose comparison can show nothing, found before any job starts.

Two arms that differ only in their objectives train alike if the objectives have equal gradients wherever training can
take them: at ratio 1 with one update per rollout batch, at any ratio with more. `equal_gradients` evaluates both. It
imports torch, so it is called only if arithmetic on the keys does not show that the objectives differ.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from workflow_scripts import digest
from workflow_scripts.study.faults import line
from workflow_scripts.study.own_code import is_own
from workflow_scripts.study.trl_fields import reaching_the_weights

if TYPE_CHECKING:
    from workflow_scripts.study import ResolvedArm, Study

FARTHEST = 16.0  # a log ratio that no training reaches: the token's probability was 1e-7, or falls to that
RESOLUTION = 1.2e-7  # two bounds nearer to each other than float32 resolves are one
OF_NO_LENGTH = ("dcpo",)  # it reads the old log-probabilities, each for its own token
_SAPO_TAU = (1.0, 1.05)

Objective = dict[str, Any]


class Same(Enum):
    """Why two arms cannot differ."""

    SETTINGS = "nothing that reaches the weights differs"
    AT_RATIO_ONE = "equal gradients at ratio 1, and there is no other"
    GRADIENTS = "equal gradients at every ratio"


@dataclass(frozen=True)
class Setting:
    """The settings of an arm on which its objective depends."""

    group_size: int
    prompts: int
    minibatches: int
    updates: int
    max_completion: int
    binary_reward: bool
    engine: str


def reaching(arm: "ResolvedArm", engine: str) -> dict[str, Any]:
    """The settings of an arm that reach the weights, without its objective."""
    training = arm.training.model_dump(exclude_none=True)
    for key in ("checkpoints", "beta", "success_threshold"):  # the last two are part of the objective
        training.pop(key, None)
    if training["schedule"] == "constant_with_warmup" and not training["warmup_steps"]:
        training["schedule"] = "constant"
    training["trl"] = reaching_the_weights(training["trl"], engine)
    branch = arm.branch_from and arm.branch_from.model_dump()
    return {"training": training, "rollout": arm.rollout.model_dump(), "branch": (branch, arm.optimizer)}


def functions(objective: Objective) -> tuple[str, ...]:
    """Names of the functions of an objective: clip policy, if there is one, surrogate, and scale of the advantage."""
    policy = (objective["bounds"],) if "bounds" in objective else ()
    return (*policy, objective["surrogate"], objective["advantage"]["scale"])


def _normal(objective: Objective) -> Objective:
    """The objective without keys that have no effect."""
    advantage = {key: value for key, value in objective["advantage"].items() if value or key != "focal_gamma"}
    return objective | {"advantage": advantage}


def _plain_bounds(keys: Objective, correct: int, size: int) -> tuple[float, float, float, float] | None:
    """Bounds in plain numbers, for `correct` rollouts of `size` and old probability 1/2: lower and upper for A > 0,
    then for A < 0. None: a policy that is not known here, so its function has to be evaluated."""
    share = (size - correct) / (size - 1)
    mean = (size - keys.get("mean_correct", (2 * size - 1) / 3)) / (size - 1)
    low, wide = keys.get("eps_low", 0.0), keys.get("eps_high_max", 0.0)
    adaptive, matched = low + (wide - low) * share, low + (wide - low) * mean
    upper = {
        "ppo": keys.get("eps_high"),
        "dual_clip": keys.get("eps_high"),
        "gapo": adaptive,
        "gapo_lower": adaptive,
        "gapo_matched": matched,
        "gapo_mirrored": 2 * matched - adaptive,
        "gapo_proportional": wide * share,
    }
    policy = keys["bounds"]
    if policy == "abc":
        return 1 - keys["eps_2"], 1 + keys["eps_1"], 1 - keys["eps_4"], 1 + keys["eps_3"]
    if policy == "dcpo":
        rarer, likelier = math.sqrt(1 + 8 * keys["eps_high"]), math.sqrt(max(1 - 8 * low, 0.0))
        return 0.0, min(0.5 + 0.5 * rarer, 10.0), 0.5 + 0.5 * likelier, math.inf
    if policy not in upper:
        return None
    if policy == "gapo_lower":
        low += (keys["eps_low_max"] - low) * (1 - share)
    return 0.0, 1 + upper[policy], 1 - low, keys["dual_clip_bound"] if policy == "dual_clip" else math.inf


def _apart(one: Objective, other: Objective, size: int) -> bool:
    """Whether two clip policies are known to have different bounds within reach."""
    for correct in {1, size - 1}:
        pair = [_plain_bounds(keys, correct, size) for keys in (one, other)]
        if pair[0] is None or pair[1] is None:
            return False
        for bounds in zip(*pair, strict=True):
            first, second = (min(max(bound, math.exp(-FARTHEST)), math.exp(FARTHEST)) for bound in bounds)
            if abs(first - second) > RESOLUTION * max(first, second):
                return True
    return False


def certainly_differ(one: Objective, other: Objective, setting: Setting) -> bool:
    """Whether arithmetic on the keys alone shows that the gradients of two objectives differ somewhere."""
    several_tokens = setting.max_completion > 1
    if one["advantage"].get("focal_gamma") != other["advantage"].get("focal_gamma"):
        return True
    scales = {one["advantage"]["scale"], other["advantage"]["scale"]}
    if len(scales) > 1 and (setting.prompts > 1 or "none" in scales):
        return True
    means = {one["aggregation"], other["aggregation"]}
    whole_batch = setting.minibatches == 1 and means <= {"token-mean", "token-mean-step"}
    if len(means) > 1 and several_tokens and not whole_batch:
        return True
    if (one.get("beta"), one.get("kl")) != (other.get("beta"), other.get("kl")):
        return True
    if one["ratio"] != other["ratio"] and several_tokens:
        weighted = one.get("kl") == "k3_importance" or setting.engine == "vllm"
        return setting.updates > 1 or weighted
    return setting.updates > 1 and _surrogates_differ(one, other, setting)


def _surrogates_differ(one: Objective, other: Objective, setting: Setting) -> bool:
    surrogates = {one["surrogate"], other["surrogate"]}
    caps = [keys["cispo_upper"] for keys in (one, other) if keys["surrogate"] == "cispo"]
    if surrogates == {"clipped"}:
        return _apart(one, other, setting.group_size)
    if surrogates == {"sapo"}:
        first, second = (list(keys.get("sapo_tau", _SAPO_TAU)) for keys in (one, other))
        return first != second
    if surrogates == {"cispo"}:
        return len(set(caps)) > 1 and min(caps) < math.exp(FARTHEST)
    if surrogates == {"clipped", "cispo"}:
        return min(caps) < math.exp(FARTHEST)
    return surrogates <= {"clipped", "cispo", "sapo"}


def _follows_length(objective: Objective) -> bool:
    """Whether a clip policy may depend on the length of completions, of which only a few are tried.

    The old log-probabilities tell the length too: they are 0 behind the end of a completion.
    """
    if "bounds" not in objective or objective["bounds"] in OF_NO_LENGTH:
        return False
    if is_own(objective["bounds"]):
        return True
    read = digest.attributes_read("objectives.bounds", objective["bounds"], "Group")
    return not {"mask", "completion_tokens", "position", "old_log_prob"}.isdisjoint(read)


def _why_same(
    study: "Study", arm: "ResolvedArm", other: "ResolvedArm", reached: dict[str, dict[str, Any]]
) -> Same | None:
    """Why an arm cannot differ from another one; None if it can, as far as the settings show. reached:
    `reaching` of each arm."""
    branch = arm.branch_from is not None and arm.branch_from.arm == other.name and arm.optimizer == "carry"
    parts = ["training", "rollout"] if branch else ["training", "rollout", "branch"]  # it goes on as its parent
    if any(reached[arm.name][part] != reached[other.name][part] for part in parts):
        return None
    objectives = _normal(arm.objective), _normal(other.objective)
    thresholds = arm.training.success_threshold, other.training.success_threshold
    if objectives[0] == objectives[1] and thresholds[0] == thresholds[1]:
        return Same.SETTINGS
    setting = Setting(
        group_size=arm.rollout.group_size,
        prompts=arm.rollout.prompts,
        minibatches=arm.rollout.minibatches,
        updates=arm.updates_per_batch,
        max_completion=arm.rollout.max_completion,
        binary_reward=":" not in arm.training.reward,
        engine=study.compute.engine,
    )
    if any(is_own(name) for objective in objectives for name in functions(objective)):
        return None  # nothing of the user's own modules is run before a job is
    if certainly_differ(*objectives, setting) or (setting.updates > 1 and any(map(_follows_length, objectives))):
        return None
    from workflow_scripts.study.equal_gradients import equal

    if not equal(*objectives, setting, (thresholds[0] or 0.0, thresholds[1] or 0.0)):
        return None
    return Same.AT_RATIO_ONE if setting.updates == 1 else Same.GRADIENTS


def _flat(arm: "ResolvedArm") -> dict[str, Any]:
    """The keys of an arm's objective and training, as a study writes them. The objective comes first."""
    advantage = {f"advantage.{key}": value for key, value in arm.objective["advantage"].items()}
    found = {key: value for key, value in arm.objective.items() if key not in ("advantage", "beta")} | advantage
    training = arm.training.model_dump(exclude_none=True)
    found |= {f"training.trl.{key}": value for key, value in training.pop("trl").items()}
    return found | {f"training.{key}": value for key, value in training.items()}


def gate_faults(study: "Study", arms: list["ResolvedArm"]) -> Iterator[str]:
    """A line for each arm that cannot differ from the baseline, from the parent it branches off, or, other than by its
    seeds, from an arm before it."""
    if study.analysis.allow_unreachable:
        return
    by_name = {arm.name: arm for arm in arms}
    reached = {arm.name: reaching(arm, study.compute.engine) for arm in arms}
    for place, arm in enumerate(arms):
        if arm.name == study.baseline or arm.role == "placebo":
            continue
        first = [study.baseline, *([arm.branch_from.arm] if arm.branch_from else [])]
        before = [one.name for one in arms[:place]]
        for name in dict.fromkeys([*first, *before]):
            if name not in by_name:
                continue
            other = by_name[name]
            same = _why_same(study, arm, other, reached)
            if same is Same.SETTINGS and set(arm.seeds) & set(other.seeds) and arm.identity == other.identity:
                break  # one run under two names, which is a fault of its own
            if same and (name in first or same is not Same.SETTINGS):
                yield _fault(arm, other, same)
                break


def _fault(arm: "ResolvedArm", other: "ResolvedArm", same: Same) -> str:
    own, theirs = _flat(arm), _flat(other)
    keys = [key for key in dict.fromkeys([*own, *theirs]) if own.get(key) != theirs.get(key)]
    if arm.branch_from is not None and "training.checkpoints" in keys:
        keys.remove("training.checkpoints")  # a branch has those of its parent that are left
    listed = ", ".join([key for key in keys if not key.startswith("training.")] or keys)
    named = next((key for key in keys if key in own), None)
    path, value = (f"arms.{arm.name}.{named}", own[named]) if named else (f"arms.{arm.name}.role", arm.role)
    unless = "set analysis.allow_unreachable: true"
    if same is Same.AT_RATIO_ONE:
        allowed = (
            "with 1 update per rollout batch the ratio is always 1, where no gradient depends on "
            f"{listed}; raise rollout.minibatches or rollout.epochs, or {unless}"
        )
    elif same is Same.GRADIENTS:
        allowed = f"its gradients are equal at every ratio, although {listed} differ; change them, or {unless}"
    elif keys:
        allowed = f"the settings that differ ({listed}) never reach the weights; change what is trained, or {unless}"
    elif arm.branch_from is not None and arm.branch_from.arm == other.name:
        allowed = f"the branch repeats its parent; change its objective or training, or {unless}"
    else:
        allowed = f"only the seeds differ; use role: placebo, change what is trained, or {unless}"
    return line(path, value, f"this arm cannot differ from {other.name}: {allowed}")
