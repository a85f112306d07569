"""What was changed in a study after it was put on record: the plan, read for the report, said with dates.

The plan (tables.PLAN) is a row per key and time, added when a run of the study starts. What it said before the first
start that found a run begun is what the study is held to; all that was added later is a deviation from it, except a
seed count that the study had named as a look.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from workflow_scripts import tables

# What decides verdicts stands before them; the rest (reward version, repeats of the base, code) in a section.
DECISIVE = (
    "question", "endpoint", "margin", "alpha", "looks", "seeds", "baseline", "roles", "arms", "pass_at", "selection",
    "evaluation", "model", "decontaminate_against", "remove_template_twins", "train_set", "holdouts",
)  # fmt: skip
BY_ARM = {"arms": 1, "seeds": 1, "roles": 1, "code": 2}  # where in a path the arm stands
NAMED = 10  # deviations said one by one before the results
LONGEST = 100  # characters of one value
LOST = (
    "put back a copy of it. Without one, move it away: the next run records a new plan, and the report says that it "
    "was recorded after training began"
)

Place = tuple[str, ...]  # keys from the top of the plan down
Chain = tuple[tuple[str, str], ...]  # (time, value as JSON): what was so when training began, then each change


@dataclass
class Plan:
    """What the report says of the plan. changes: all of them; warnings: those that decide verdicts and still stand."""

    recorded: str
    commit: str
    before_training: bool | None  # None: a plan of an older version does not say
    warnings: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)


def read(path: str | Path) -> list[dict[str, str]]:
    """Rows of a plan in the order in which they were added; none without a file. Raises TableError if it is damaged."""
    if not Path(path).exists():
        return []
    try:
        rows: list[dict[str, str]] = tables.read(path, tables.PLAN).to_pylist()
        for row in rows:
            json.loads(row["value"])
    except (tables.TableError, TypeError, ValueError) as error:
        why = str(error).removeprefix(f"{path}: ").removesuffix("; delete it and run again")
        raise tables.TableError(f"{path}: the plan cannot be read ({why}); {LOST}") from None
    return rows


def _batches(rows: Sequence[dict[str, str]]) -> list[tuple[str, dict[str, Any]]]:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        found.setdefault(row["recorded"], {})[row["key"]] = json.loads(row["value"])
    return list(found.items())


def _differences(one: Any, other: Any, path: Place) -> Iterator[Place]:
    """Paths at which two values differ, as deep as both are mappings."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            yield from _differences(one.get(key), other.get(key), (*path, key))
    elif one != other:
        yield path


def _at(value: Any, path: Place) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _chains(key: str, versions: list[tuple[str, Any]]) -> dict[Place, Chain]:
    """path -> its chain, of all that ever differed from the first version."""
    first = versions[0][1]
    paths = {path for _, value in versions[1:] for path in _differences(first, value, (key,))}
    found = {}
    for path in sorted(paths):
        if any(path[:n] in paths for n in range(1, len(path))):
            continue  # the whole of it was taken out once: said as a whole
        chain: list[tuple[str, str]] = []
        for time, value in versions:
            text = json.dumps(_at(value, path[1:]), sort_keys=True)
            if not chain or chain[-1][1] != text:
                chain.append((time, text))
        found[path] = tuple(chain)
    return found


def _even(seeds: Any) -> bool:
    """Whether all arms have as many seeds: a look at some arms alone is no planned one."""
    return isinstance(seeds, dict) and len({len(s) for s in seeds.values() if isinstance(s, list)}) == 1


def _planned(path: Place, chain: Chain, looks: Any) -> bool:
    """Whether an arm's seeds were only added to, each time up to a number that the study had named as a look."""
    seeds = [json.loads(text) for _, text in chain]
    if path[0] != "seeds" or len(path) != 2 or not all(isinstance(s, list) for s in seeds):
        return False
    return all(set(s) < set(t) and len(t) in (looks or []) for s, t in pairwise(seeds))


def _shown(text: str) -> str:
    value = json.loads(text)
    if isinstance(value, list) and not any(isinstance(part, dict | list) for part in value):
        said = ", ".join(str(part) for part in value) or "none"
    elif isinstance(value, str):
        said = f"“{value}”" if " " in value else value or "empty"
    else:
        said = "not set" if value is None else text
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}…"


def _days(times: Sequence[str]) -> list[str]:
    """Dates; with the time of day where two of them are the same."""
    days = [time[:10] for time in times]
    return days if len({*days}) == len(days) else [f"{time[:16].replace('T', ' ')} UTC" for time in times]


def _name(path: Place, arms: Sequence[str]) -> str:
    """The path as the study file has it, with all arms that changed alike: arms.{fixed, gapo}.training.steps."""
    place = BY_ARM.get(path[0])
    parts = list(path)
    if arms and place is not None:
        parts[place] = arms[0] if len(arms) == 1 else f"{{{', '.join(arms)}}}"
    return ".".join(part for part in parts if part != "objective")


def _sentence(path: Place, arms: Sequence[str], chain: Chain, when: str) -> str:
    """`margin was 0.05 when training began (plan of 2026-11-30); 0.03 since 2026-12-01`. when: up to the date."""
    days = _days([time for time, _ in chain])
    values = [_shown(text) for _, text in chain]
    name = _name(path, arms)
    if path[0] == "arms" and len(path) == 2:
        values = ["not part of the study" if text == "null" else "part of the study" for _, text in chain]
    said = f"{name} was {values[0]} {when}{days[0]})"
    for value, day, end in zip(values[1:], days[1:], [*days[2:], None], strict=True):
        said += f"; {value} " + (f"from {day} to {end}" if end else f"since {day}")
    return said


def _split(batches: list[tuple[str, dict[str, Any]]]) -> int:
    """How many of the batches came before training began; at least the first."""
    first = batches[0][1].get(tables.TRAINING_BEGUN)
    if first != 0:  # recorded late, or by a version that did not look: nothing after the first can be told from before
        return 1
    return next((n for n, (_, values) in enumerate(batches) if values.get(tables.TRAINING_BEGUN, 0) > 0), len(batches))


def judge(rows: Sequence[dict[str, str]]) -> Plan | None:
    """What to say of a plan with these rows (of tables.PLAN, in their order); None where there is none."""
    batches = _batches(rows)
    if not batches:
        return None
    split = _split(batches)
    first = batches[0][1].get(tables.TRAINING_BEGUN)
    plan = Plan(batches[0][0][:10], rows[0]["commit"] or "", None if first is None else first == 0)
    when = "when training began (plan of " if plan.before_training else "when the plan was recorded ("
    versions: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    later: dict[str, list[str]] = defaultdict(list)  # keys that a newer version of the pipeline records
    for place, (time, values) in enumerate(batches):
        for key, value in values.items():
            if place < split:
                versions[key] = [(batches[split - 1][0], value)]
            elif key != tables.TRAINING_BEGUN:
                if key not in versions:
                    later[time[:10]].append(key)
                versions[key].append((time, value))
    plan.later = [f"since {day}: {', '.join(keys)}" for day, keys in later.items()]
    versions.pop(tables.TRAINING_BEGUN, None)
    chains = {path: chain for key, found in versions.items() for path, chain in _chains(key, found).items()}
    even = "looks" in versions and "seeds" in versions and _even(versions["seeds"][-1][1])
    _say(plan, chains, versions["looks"][0][1] if even else None, when)
    if plan.before_training is False:
        plan.warnings.insert(
            0,
            f"The plan was recorded on {plan.recorded}, after training had begun: nothing shows that the question, the "
            "endpoint, the margin and the looks were fixed before the results.",
        )
    return plan


def _say(plan: Plan, chains: dict[Place, Chain], looks: Any, when: str) -> None:
    """Put the chains into words; arms that changed alike share a sentence."""
    whole = {path[1] for path in chains if path[0] == "arms" and len(path) == 2}
    groups: dict[tuple[Place, Chain], list[str]] = defaultdict(list)
    for path, chain in chains.items():
        place = BY_ARM.get(path[0])
        if place is None or place >= len(path):
            groups[path, chain] = []
            continue
        arm = path[place]
        if arm in whole and path[:2] != ("arms", arm):
            continue  # its seeds, role and code came and went with it
        groups[(*path[:place], "", *path[place + 1 :]), chain].append(arm)
    standing = []
    for (path, chain), arms in groups.items():
        said = _sentence(path, arms, chain, when)
        if _planned(path, chain, looks):
            plan.planned.append(said)
            continue
        plan.changes.append(said)
        if path[0] in DECISIVE and chain[0][1] != chain[-1][1]:
            standing.append(f"Deviation from the plan: {said}.")
    plan.warnings += standing[:NAMED]
    if len(standing) > NAMED:
        plan.warnings.append(f"{len(standing) - NAMED} more deviations from the plan are listed under Plan.")
