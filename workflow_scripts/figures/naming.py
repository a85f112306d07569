"""Names of arms, policies and benchmarks where there is room for few characters: cut, and never to the same."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence

BREAK = (
    "\u2063"  # between lines of one text: invisible, and unlike "\n" harmless in the expressions that Vega-Lite makes
)
LABEL = 28  # characters of a name in a figure
PIXELS = 12 * LABEL  # room for them in any letters: no limit in pixels cuts a label a second time


def short(name: str, limit: int = LABEL) -> str:
    """One name alone, with an ellipsis in its middle; names beside each other are cut by `labels`."""
    plain = " ".join(name.split())
    end = limit // 3
    return plain if len(plain) <= limit else f"{plain[: limit - 1 - end]}…{plain[-end:]}"


def _common(group: Sequence[str]) -> str:
    """What all of them begin with."""
    least, most = min(group), max(group)
    return least[: next((at for at, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), len(least))]


def _around_difference(group: Sequence[str], limit: int) -> dict[str, str]:
    """Names cut where they are the same: a part of what they begin with, what differs, and a part of their end."""
    head = _common(group)
    tail = _common([name[len(head) :][::-1] for name in group])[::-1]
    middle = {name: name[len(head) : len(name) - len(tail)] for name in group}
    room = limit - max(map(len, middle.values()))
    if room < 6:
        return {name: short(name, limit) for name in group}
    before = max(3, room - min(len(tail), room // 3))
    if len(head) > before:
        head = f"{head[: before // 2]}…{head[len(head) - (before - 1 - before // 2) :]}"
    after = room - len(head)
    if len(tail) > after:
        tail = f"…{tail[len(tail) - (after - 1) :]}" if after > 1 else "…"[:after]
    return {name: head + part + tail for name, part in middle.items()}


def labels(names: Iterable[str], limit: int = LABEL) -> dict[str, str]:
    """name → label of at most `limit` characters; distinct names have distinct labels, short names are their own.

    Long names are cut in their middle; those that would be the same then, around what differs; and where that is too
    long itself, they are numbered in the given order.
    """
    distinct = list(dict.fromkeys(names))
    long = {name: short(name, limit) for name in distinct if len(name) > limit}
    same = Counter(long.values())
    for label in [label for label, count in same.items() if count > 1]:
        long |= _around_difference([name for name, cut in long.items() if cut == label], limit)
    found = {name: name for name in distinct if name not in long}
    taken = set(found)
    for name, cut in long.items():
        label, number = cut, 1
        while label in taken or len(label) > limit:
            number += 1
            label = f"{name[: limit - 1 - len(str(number))]}…{number}"
        taken.add(label)
        found[name] = label
    return {name: found[name] for name in distinct}


def expression(names: Iterable[str]) -> str:
    """Vega's expression for the labels of an axis, a legend or a header over these names."""
    cut = {name: label for name, label in labels(names).items() if name != label}
    if not cut:
        return "datum.label"
    return f"length(datum.label) > {LABEL} ? ({json.dumps(cut)})[datum.label] : datum.label"


def first(names: Sequence[str], every: Iterable[str], most: int) -> str:
    """The first `most` of the names in a line of text, cut as among all names of the study."""
    cut = labels([*every, *names])
    return ", ".join(cut[name] for name in names[:most]) + (
        f" and {len(names) - most} more" if len(names) > most else ""
    )
