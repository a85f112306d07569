"""What of the arms does not fit together: each arm alone, its branch, and the arms beside each other."""

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any

from workflow_scripts import digest
from workflow_scripts.objectives.presets import PRESETS
from workflow_scripts.study import own_code
from workflow_scripts.study.faults import Path, line, nearest, overlap
from workflow_scripts.study.keys import NEEDS_FOCAL, POLICIES, POLICY_KEYS, UNCLIPPED, keys_of_function, required_keys
from workflow_scripts.study.schedule import batch_faults, reward_faults, step_faults, warmup_faults
from workflow_scripts.study.static_gate import gate_faults
from workflow_scripts.study.trl_fields import trl_faults

if TYPE_CHECKING:
    from workflow_scripts.study import ResolvedArm, Study

GROUP = digest.members("objectives.bounds", "Group")
_AXES = ("ratio", "bounds", "surrogate", "advantage", "aggregation")
# An arm that sets none of these has the objective of the arm it is the same as, whose faults are said there.
_OBJECTIVE = ("preset", *_AXES, *POLICY_KEYS)
_ORDERED = (("eps_low", "eps_high"), ("eps_low", "eps_high_max"), ("eps_low", "eps_low_max"))
_BELOW_ONE = ("eps_low", "eps_low_max", "eps_2", "eps_4")  # widths of lower bounds; with 1 nothing is clipped


def _unknown_arm(study: "Study", path: str, name: str, unsound: set[str]) -> Iterator[str]:
    """At most one line: the study has no arm of that name, not even a broken one."""
    if name not in study.arms and name not in unsound:
        near = nearest(name, study.arms, f"; allowed: {', '.join(study.arms)}")
        yield line(path, name, f"no arm of that name{near}")


def arm_faults(study: "Study", broken: list[Path]) -> Iterator[str]:
    """All faults of the arms; one that is broken, or the same as a broken one, is left out of what follows from it."""
    if ("arms",) in broken:
        return
    unsound = {str(path[1]) for path in broken if path[0] == "arms"}
    if not overlap(("baseline",), broken):
        yield from _unknown_arm(study, "baseline", study.baseline, unsound)
    for name in study.only_arms or ():
        yield from _unknown_arm(study, "only_arms", name, unsound)
    for name in study.arms:
        found = list(_link_faults(study, name, unsound))
        yield from found
        if found or _broken_chain(study, name, unsound):
            unsound.add(name)
    for name in study.arms:
        if name not in unsound:
            found = list(_objective_faults(study, name))
            yield from found
            unsound |= {name} if found else set()
    if any(overlap((section,), broken) for section in ("training", "rollout", "seeds")):
        return
    for name in study.arms:
        if name not in unsound:
            yield from _branch_faults(study, name, unsound)
            yield from _arm_schedule_faults(study, name)
    sound = [study.resolved(name) for name in study.arms if name not in unsound]
    yield from _twins(sound)
    if not overlap(("analysis", "endpoint"), broken):
        yield from _endpoint(study, sound)
    if study.baseline in {arm.name for arm in sound}:
        yield from _against_baseline(study, sound)


def _link_faults(study: "Study", name: str, unsound: set[str]) -> Iterator[str]:
    arm = study.arms[name]
    if arm.same_as is None:
        return
    if arm.preset is not None:
        yield line(f"arms.{name}.same_as", arm.same_as, "nothing beside a preset: an arm has one or the other")
    yield from _unknown_arm(study, f"arms.{name}.same_as", arm.same_as, unsound)
    chain = [name]
    while (target := study.arms[chain[-1]].same_as) in study.arms and target not in chain:
        chain.append(str(target))
    if target == name:
        yield line(f"arms.{name}.same_as", arm.same_as, f"an arm outside this circle: {' → '.join([*chain, name])}")


def _broken_chain(study: "Study", name: str, unsound: set[str]) -> bool:
    seen: list[str] = []
    at: str | None = name
    while at is not None:
        if at in unsound or at in seen or at not in study.arms:
            return True
        seen.append(at)
        at = study.arms[at].same_as
    return False


def _objective_faults(study: "Study", name: str) -> Iterator[str]:
    own = study.arms[name].model_dump(exclude_none=True)
    keys, path = study.keys_of(name), f"arms.{name}"
    if "optimizer" in own and "branch_from" not in keys:
        yield line(
            f"{path}.optimizer",
            own["optimizer"],
            "remove this key: only a branch has a state to carry",
        )
    if "kl" in own and not {**study.training.model_dump(), **keys.get("training", {})}["beta"]:
        yield line(f"{path}.kl", own["kl"], "remove this key: without training.beta above 0 there is no KL")
    if not any(key in own for key in _OBJECTIVE) and "same_as" in own:
        return
    clipped = keys.get("surrogate", "clipped") == "clipped"
    missing = [axis for axis in _AXES if axis not in keys and (clipped or axis != "bounds")]
    if "advantage" in keys and "scale" not in keys["advantage"]:
        missing.append("advantage.scale")
    if missing:
        yield f"{path}: {', '.join(missing)} missing: name a preset (or same_as), or say each axis"
        return
    lost = [
        line(f"{path}.{key}", name, why)
        for key, name in _own_functions(keys).items()
        if (why := own_code.missing(name)) is not None
    ]
    if lost:
        yield from lost
        return
    if "bounds" in own and keys["surrogate"] in UNCLIPPED:
        yield line(f"{path}.bounds", own["bounds"], f"remove this key: surrogate {keys['surrogate']} uses no bounds")
        return
    yield from _policy_faults(path, own, keys)
    yield from _value_faults(study, path, own, keys)


def _policy_faults(path: str, own: dict[str, Any], keys: dict[str, Any]) -> Iterator[str]:
    """Keys that the chosen policy does not use, and those it needs and lacks."""
    chosen = keys["bounds"] if keys["surrogate"] == "clipped" else keys["surrogate"]
    functions = dict.fromkeys(keys[axis] for axis in ("bounds", "surrogate") if axis in keys)
    if chosen in POLICIES and (lacking := _read_in_vain(chosen)):
        allowed = f"it reads {lacking}, which a Group does not hold; a Group holds {', '.join(GROUP)}"
        yield line(f"{path}.bounds", chosen, allowed)
    used = tuple(dict.fromkeys(key for name in functions for key in keys_of_function(name)))
    users = " or ".join(name for name in functions if keys_of_function(name)) or chosen
    for key, value in own.get("own", {}).items():
        if key in POLICY_KEYS:
            yield line(f"{path}.own.{key}", value, f"write it as {path}.{key}: a clip policy of ours has this key too")
        elif key not in used:
            near = nearest(key, used, f"; it uses {', '.join(used) or 'none: keys are keyword-only arguments'}")
            yield line(f"{path}.own.{key}", value, f"not a key of {users}{near}")
    for key in own:
        if key in POLICY_KEYS and key not in used:
            near = nearest(key, used, f"; it uses {', '.join(used) or 'none: keys are keyword-only arguments'}")
            yield line(f"{path}.{key}", own[key], f"not a key of {users}{near}")
    for name in functions:
        for key in required_keys(name):
            if key not in keys and key not in keys.get("own", {}):
                place = key if key in POLICY_KEYS else f"own.{key}"
                yield f"{path}.{place}: missing: {name} needs it"
    if own.get("preset") in NEEDS_FOCAL and "focal_gamma" not in keys["advantage"]:
        yield f"{path}.advantage.focal_gamma: missing: preset {own['preset']} needs it"
    elif own.get("preset") in NEEDS_FOCAL and not keys["advantage"]["focal_gamma"]:
        yield line(f"{path}.advantage.focal_gamma", 0, f"above 0: with 0, {own['preset']} has no focal weight")
    preset = PRESETS.get(own.get("preset", ""), {})
    taken = [key for key in used if key in preset and key not in own]
    if "ratio" in own and own["ratio"] != preset.get("ratio", own["ratio"]) and taken:
        allowed = f"{preset['ratio']}, or {', '.join(taken)} said beside it: those of the preset are made for its ratio"
        yield line(f"{path}.ratio", own["ratio"], allowed)


def _own_functions(keys: dict[str, Any]) -> dict[str, str]:
    """Key → name, of the functions of the user's own that an arm names."""
    named: dict[str, str] = {key: keys[key] for key in ("bounds", "surrogate") if key in keys}
    named["advantage.scale"] = keys.get("advantage", {}).get("scale", "")
    return {key: name for key, name in named.items() if own_code.is_own(name)}


def _read_in_vain(policy: str) -> str:
    """What a clip policy reads of its Group that no Group holds."""
    read = digest.attributes_read("objectives.bounds", policy, "Group")
    return ", ".join(f"group.{name}" for name in read if name not in GROUP)


def _value_faults(study: "Study", path: str, own: dict[str, Any], keys: dict[str, Any]) -> Iterator[str]:
    """Values that cannot stand beside each other."""
    for key in POLICY_KEYS:
        if key in own and isinstance(own[key], list) != (key == "sapo_tau"):
            yield line(f"{path}.{key}", own[key], "a list of two numbers" if key == "sapo_tau" else "a number")
            return
    for key in _BELOW_ONE:
        if key in own and own[key] > 1:
            yield line(f"{path}.{key}", own[key], "at most 1: the ratio is never below 0")
    if keys.get("cispo_upper", 1) < 1:
        yield line(f"{path}.cispo_upper", keys["cispo_upper"], "at least 1: it is the cap itself, not its width")
    for low, high in _ORDERED:
        if low in keys and high in keys and keys[high] < keys[low]:
            yield line(f"{path}.{high}", keys[high], f"at least {low}, {keys[low]}")
    if "dual_clip_bound" in keys and "eps_high" in keys and keys["dual_clip_bound"] <= 1 + keys["eps_high"]:
        yield line(
            f"{path}.dual_clip_bound", keys["dual_clip_bound"], f"more than 1 + eps_high, {1 + keys['eps_high']:g}"
        )
    group_size = keys.get("rollout", {}).get("group_size", study.rollout.group_size)
    if "mean_correct" in keys and not 1 <= keys["mean_correct"] <= group_size:
        yield line(f"{path}.mean_correct", keys["mean_correct"], f"from 1 to rollout.group_size, {group_size}")
    if str(keys.get("bounds")).startswith("gapo") and group_size == 2:
        allowed = "more than 2 with gapo: of two rollouts at most one is correct where there is an advantage"
        own_size = own.get("rollout", {}).get("group_size")
        yield line(f"{path}.rollout.group_size" if own_size else "rollout.group_size", group_size, allowed)
    yield from _mirrored_faults(path, keys, group_size)
    if keys.get("bounds") == "dcpo" and keys["ratio"] != "token":
        yield line(f"{path}.ratio", keys["ratio"], "token: dcpo's bounds follow the probability of each token")


def _mirrored_faults(path: str, keys: dict[str, Any], group_size: int) -> Iterator[str]:
    """gapo_mirrored's narrowest width is twice the mean less the widest; below 0 it would clip at ratio 1."""
    if keys.get("bounds") != "gapo_mirrored" or not {"eps_low", "eps_high_max"} <= keys.keys():
        return
    share = (group_size - keys.get("mean_correct", (2 * group_size - 1) / 3)) / (group_size - 1)
    narrow, wide = keys["eps_low"], keys["eps_high_max"]
    if 2 * (narrow + (wide - narrow) * share) < wide:
        most = 2 * narrow * (1 - share) / (1 - 2 * share)
        allowed = (
            f"at most {most:.4g}: mirrored about the mean width, the bound of a group with 1 correct would be below 1"
        )
        yield line(f"{path}.eps_high_max", wide, allowed)


def policy_faults(study: "Study") -> Iterator[str]:
    """Faults of the clip policies that finished runs are asked about: those that an arm with them would have."""
    for name, policy in study.analysis.policies.items():
        own, path = policy.model_dump(exclude_none=True), f"analysis.policies.{name}"
        if name in study.arms:
            yield line(path, policy.bounds, "another name: an arm has this one, and its clip policy is asked about too")
        keys = {"ratio": "token", "surrogate": "clipped"} | own
        if (why := own_code.missing(policy.bounds)) is not None:
            yield line(f"{path}.bounds", policy.bounds, why)
            continue
        yield from _policy_faults(path, own, keys)
        yield from _value_faults(study, path, own, keys)


def _branch_faults(study: "Study", name: str, unsound: set[str]) -> Iterator[str]:
    arm, path = study.resolved(name), f"arms.{name}.branch_from"
    if arm.branch_from is None:
        return
    parent = arm.branch_from.arm
    yield from _unknown_arm(study, f"{path}.arm", parent, unsound)
    chain = [name]
    while parent in study.arms and parent not in unsound and parent not in chain:
        chain.append(parent)
        branch = study.resolved(parent).branch_from
        parent = branch.arm if branch else ""
    if parent == name:
        yield line(f"{path}.arm", arm.branch_from.arm, f"an arm outside this circle: {' → '.join([*chain, name])}")
    if parent in chain or arm.branch_from.arm not in study.arms or arm.branch_from.arm in unsound:
        return
    root = study.resolved(arm.branch_from.arm)
    if arm.branch_from.step not in root.checkpoints:
        allowed = f"a checkpoint of {root.name}: {', '.join(map(str, root.checkpoints))}"
        yield line(f"{path}.step", arm.branch_from.step, allowed)
    if arm.optimizer == "carry":
        for key in ("learning_rate", "schedule", "warmup_steps", "trl"):
            own, before = getattr(arm.training, key), getattr(root.training, key)
            if own != before:
                allowed = f"{before}, as {root.name}: the carried optimizer goes on with it; or optimizer: reset"
                yield line(f"arms.{name}.training.{key}", own, allowed)
    lacking = [seed for seed in arm.seeds if seed not in root.seeds]
    if lacking:
        yield line(f"arms.{name}.seeds", lacking, f"seeds of {root.name}, from which it branches: {root.seeds}")


def _schedule_faults(study: "Study", prefix: str, arm: "ResolvedArm | Study", start: int = 0) -> Iterator[str]:
    yield from step_faults(prefix, arm.training, arm.rollout.updates_per_batch, start)
    yield from batch_faults(prefix, arm.rollout, study.compute)
    yield from warmup_faults(prefix, arm.training)
    yield from reward_faults(prefix, arm.training)
    yield from trl_faults(f"{prefix}training.trl", arm.training.trl)


def _arm_schedule_faults(study: "Study", name: str) -> Iterator[str]:
    """Those that the arm's own overrides bring; what is wrong for all arms is said once, without an arm."""
    own, arm, path = study.arms[name], study.resolved(name), f"arms.{name}."
    if own.rollout is not None and own.rollout.max_prompt is not None:
        allowed = "remove this key: it is rollout.max_prompt, as all arms are trained on the same problems"
        yield line(f"{path}rollout.max_prompt", own.rollout.max_prompt, allowed)
    if own.training is None and own.rollout is None and own.branch_from is None:
        return
    common = {_key_and_value(fault) for fault in _schedule_faults(study, "", study)}
    for fault in _schedule_faults(study, path, arm, arm.branch_from.step if arm.branch_from else 0):
        if _key_and_value(fault.removeprefix(path)) not in common:
            yield fault


def _key_and_value(fault: str) -> str:
    return fault.rpartition(": ")[0]


def _twins(arms: list["ResolvedArm"]) -> Iterator[str]:
    for one, other in combinations(arms, 2):
        shared = [seed for seed in other.seeds if seed in one.seeds]
        if shared and one.identity == other.identity:
            allowed = f"other seeds than {one.name}'s: with equal settings, an equal seed is the same run"
            yield line(f"arms.{other.name}.seeds", shared, allowed)


def _endpoint(study: "Study", arms: list["ResolvedArm"]) -> Iterator[str]:
    step = study.analysis.endpoint.checkpoint
    lacking = [arm.name for arm in arms if step != "last" and step not in arm.checkpoints]
    if lacking:
        yield line(
            "analysis.endpoint.checkpoint", step, f"last, or a checkpoint of every arm; not of {', '.join(lacking)}"
        )


def _against_baseline(study: "Study", arms: list["ResolvedArm"]) -> Iterator[str]:
    baseline = study.resolved(study.baseline)
    for arm in arms:
        if arm.role == "placebo" and arm.identity != baseline.identity:
            parts = [key for key, value in arm.identity.items() if value != baseline.identity[key]]
            allowed = f"comparison or sensitivity: a placebo is the baseline under other seeds, this differs in {parts}"
            yield line(f"arms.{arm.name}.role", arm.role, allowed.replace("[", "").replace("]", ""))
    yield from gate_faults(study, arms)
