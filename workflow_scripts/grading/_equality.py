"""Whether two answers are equal. A verdict "equal" never rests on floats alone, nor on math-verify alone.

math-verify compares two values; before it, sixty digits of both (at a few points, where there are variables) refute
what it would pass: it rounds to six decimals, chops differences below 1e-15, and joins letters to names.
"""

import re
from typing import Any

import sympy
from math_verify import verify

from workflow_scripts.grading._answers import (
    Choice,
    Contradiction,
    Items,
    Named,
    Relation,
    Scalar,
    Span,
    Words,
    is_name,
    span,
)
from workflow_scripts.grading._expression import Unreadable, expression
from workflow_scripts.grading._latex import plain_number

_DIGITS, _AGREED = 60, sympy.Rational(1, 10**40)
_POINTS = tuple(tuple(sympy.Rational(p, q) for p, q in pairs) for pairs in (
    ((17, 13), (29, 11), (41, 37), (53, 19), (71, 67), (83, 31), (97, 89), (107, 43)),
    ((113, 23), (7, 59), (131, 97), (11, 61), (151, 29), (167, 101), (19, 73), (181, 47)),
    ((-5, 83), (-199, 103), (-23, 109), (-211, 53), (-31, 127), (-227, 139), (-233, 149), (-37, 71)),
))  # fmt: skip


def equal(gold: Any, said: Any) -> bool:
    """Whether what was said is the reference answer."""
    if isinstance(gold, Contradiction) or isinstance(said, Contradiction):
        return False
    if gold == said:
        return True
    if isinstance(gold, Choice) or isinstance(said, Choice):
        return _choices(gold, said)
    if isinstance(gold, Named) or isinstance(said, Named):
        return _named(gold, said)
    if isinstance(gold, Words) or isinstance(said, Words):
        return _wordings(gold, said)
    if isinstance(gold, Relation) or isinstance(said, Relation):
        return isinstance(gold, Relation) and isinstance(said, Relation) and _relations(gold, said)
    if isinstance(gold, Span) or isinstance(said, Span):
        return _spans(gold, said)
    if isinstance(gold, Items) or isinstance(said, Items):
        alone = [
            a.items[0] if isinstance(a, Items) and a.brackets == "{}" and len(a.items) == 1 else a for a in (gold, said)
        ]
        return _items(gold, said) if alone == [gold, said] else equal(*alone)
    return _scalars(gold, said)


def _choices(gold: Any, said: Any) -> bool:
    letters = [a.letter if isinstance(a, Choice) else a.text if isinstance(a, Scalar) else None for a in (gold, said)]
    if isinstance(gold, Choice):
        return letters[0] == letters[1]
    if said.rest is not None:
        return equal(gold, said.rest)
    return letters[0] == letters[1]


def _wordings(gold: Any, said: Any) -> bool:
    texts = [
        a.words if isinstance(a, Words) else a.text.lower() if isinstance(a, Scalar) else None for a in (gold, said)
    ]
    return texts[0] is not None and texts[0] == texts[1]


def _named(gold: Any, said: Any) -> bool:
    if isinstance(gold, Named) and isinstance(said, Named):
        worded = is_name(gold.name) and re.fullmatch("[A-Za-z]{4,}", said.name)  # Area = 7 for A = 7
        if (gold.name == said.name or worded) and equal(gold.value, said.value):
            return True
        return _relations(gold, said)
    if isinstance(gold, Named):
        if isinstance(said, Relation):
            return _relations(gold, said)
        if isinstance(said, Span) and said.name and said.name != gold.name:
            return False
        return is_name(gold.name) and equal(gold.value, said)
    return _relations(gold, said) if isinstance(gold, Relation) else equal(gold, said.value)


def _links(answer: Any) -> Any:
    if isinstance(answer, Relation):
        return answer.links
    try:
        return (("=", *map(expression, answer.sides)),)
    except Unreadable:
        return None


def _relations(gold: Any, said: Any) -> bool:
    """Equal chains: link by link the same kind, and the differences of both sides proportional."""
    links = _links(gold), _links(said)
    if None in links or len(links[0]) != len(links[1]):
        return False
    return all(_same_link(g, s) for g, s in zip(*links, strict=True)) or (
        len(links[0]) > 1 and all(_same_link(g, s) for g, s in zip(links[0], links[1][::-1], strict=True))
    )


def _same_link(gold: tuple[str, Any, Any], said: tuple[str, Any, Any]) -> bool:
    if gold[0] != said[0]:
        return False
    difference = gold[1] - gold[2], said[1] - said[2]
    if (
        any(isinstance(side, sympy.MatrixBase) for side in difference)
        or difference[0].free_symbols != difference[1].free_symbols
    ):
        return False
    names = sorted(difference[0].free_symbols, key=str)
    ratios = []
    for point in _POINTS:
        values = [_number(d.subs(dict(zip(names, point, strict=False)))) for d in difference]
        if None in values or not values[1] or not values[0]:
            return False
        ratios.append(values[0] / values[1])
    if gold[0] in ("<", "\\le") and not (ratios[0].is_real and ratios[0] > 0):
        return False
    return all(_close(ratios[0], ratio) for ratio in ratios[1:]) if names else False


def _spans(gold: Any, said: Any) -> bool:
    names = [a.name if isinstance(a, Span) else "" for a in (gold, said)]
    sets = span(gold), span(said)
    if None in sets or (names[0] and names[1] and names[0] != names[1]):
        return False
    if sets[0] == sets[1]:
        return True
    if isinstance(sets[0], sympy.FiniteSet) and isinstance(sets[1], sympy.FiniteSet):
        return _matched(sets[0].args, sets[1].args, same_value)
    return (
        bool(verify(sets[0], sets[1], timeout_seconds=None)) and sets[0].symmetric_difference(sets[1]).is_empty is True
    )


def _items(gold: Any, said: Any) -> bool:
    if isinstance(gold, Scalar) or isinstance(said, Scalar):
        return _vector(gold, said)
    kinds = {gold.brackets, said.brackets}
    if "{}" in kinds and kinds <= {"", "{}"}:
        return _covers(gold.items, said.items) and _covers(said.items, gold.items)
    named = _distinct(gold), _distinct(said)
    if kinds == {""} and named[0] == named[1]:
        return _matched(gold.items, said.items, equal)
    if len(kinds) > 1 and kinds != {"", "()"}:
        return False
    return len(gold.items) == len(said.items) and all(map(equal, gold.items, said.items))


def _covers(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return all(any(equal(a, b) for b in others) for a in some)


def _distinct(answer: Items) -> bool:
    """Whether an answer gives values to several letters: x = 1, y = 2, but not x = 1, x = 2, nor x_1 = 1, x_2 = 2."""
    return len({item.name.split("_")[0] for item in answer.items if isinstance(item, Named)}) > 1


def _matched(golds: Any, said: Any, same: Any) -> bool:
    """Each of one side with its own of the other, in any order."""
    left = list(said)
    if len(golds) != len(left):
        return False
    for gold in golds:
        place = next((i for i, other in enumerate(left) if same(gold, other)), None)
        if place is None:
            return False
        del left[place]
    return True


def _vector(gold: Any, said: Any) -> bool:
    """A matrix of one column against a tuple."""
    matrix, other = (gold, said) if isinstance(gold, Scalar) else (said, gold)
    if not isinstance(matrix.expr, sympy.MatrixBase) or 1 not in matrix.expr.shape or other.brackets != "()":
        return False
    entries = list(matrix.expr)
    return len(entries) == len(other.items) and all(
        isinstance(item, Scalar) and same_value(entry, item.expr)
        for entry, item in zip(entries, other.items, strict=True)
    )


def _scalars(gold: Scalar, said: Scalar) -> bool:
    if gold.unit and said.unit and gold.unit != said.unit:
        return False
    if gold.base or said.base:
        return bool(gold.base) and gold.text == said.text and said.base in ("", gold.base)
    if gold.tolerance is not None:
        return _within(gold.expr, said.expr, gold.tolerance)
    if gold.percent != said.percent and (gold.unit or said.unit):
        return False
    if gold.percent != said.percent:
        hundredth = sympy.Rational(1, 100)
        scaled = (gold.expr * hundredth, said.expr) if gold.percent else (gold.expr, said.expr * hundredth)
        if same_value(*scaled):
            return True
    return same_value(gold.expr, said.expr) or _rounded(gold, said) or _rounded(said, gold)


def _within(gold: Any, said: Any, tolerance: Any) -> bool:
    if isinstance(gold, sympy.MatrixBase) or isinstance(said, sympy.MatrixBase):
        return False
    difference = _number(gold - said)
    return difference is not None and difference.is_real and abs(difference) <= tolerance * (1 + _AGREED)


def _rounded(exact: Scalar, decimal: Scalar) -> bool:
    """A decimal of six figures or more stands for what it rounds, or cuts: 0.333333 for 1/3, not 1.0000001 for 1."""
    digits = decimal.text.lstrip("+-0.")
    _, point, places = decimal.text.partition(".")
    if plain_number(decimal.text) is None or not point or len(digits.replace(".", "")) < 6:
        return False
    if exact.percent != decimal.percent or isinstance(exact.expr, sympy.MatrixBase) or exact.expr.free_symbols:
        return False
    if exact.expr.is_Rational and not set(sympy.factorint(exact.expr.q, limit=10**4)) - {2, 5}:
        return False
    value = _number(exact.expr)
    if value is None or not value.is_real:
        return False
    last = sympy.Rational(1, 10 ** len(places))
    return bool(abs(value - decimal.expr) <= last / 2 or 0 <= abs(value) - abs(decimal.expr) < last)


def _number(expr: Any) -> Any:
    """Sixty digits of a value, or None if it has none."""
    if expr.is_Rational:
        return expr
    value = expr.evalf(_DIGITS, maxn=400)
    value = value.n(_DIGITS) if value.is_number else value
    parts = value.as_real_imag() if value.is_number else ()
    if not parts or not all(part.is_Float or part.is_Rational for part in parts):
        return None
    return value


def _close(a: Any, b: Any) -> bool:
    return bool(abs(a - b) <= _AGREED * max(abs(a), abs(b)))


def _refuted(gold: Any, said: Any) -> bool | None:
    """True if numbers tell two values apart, False if they agree, None if no number can be had."""
    names = sorted(gold.free_symbols | said.free_symbols, key=str)
    agreed = 0
    for point in _POINTS[: 3 if names else 1]:
        at = dict(zip(names, (v for v in point * (1 + len(names) // len(point))), strict=False))
        a, b = _number(gold.subs(at)), _number(said.subs(at))
        if a is None or b is None:
            continue
        if not _close(a, b):
            return True
        agreed += 1
    return False if agreed else None


def same_value(gold: Any, said: Any) -> bool:
    """Equality of two expressions or matrices."""
    if isinstance(gold, sympy.MatrixBase) or isinstance(said, sympy.MatrixBase):
        if not (isinstance(gold, sympy.MatrixBase) and isinstance(said, sympy.MatrixBase) and gold.shape == said.shape):
            return False
        return all(same_value(a, b) for a, b in zip(gold, said, strict=True))
    if gold == said:
        return True
    if gold.is_Rational and said.is_Rational:
        return False
    refuted = _refuted(gold, said)
    if refuted:
        return False
    return bool(verify(gold, said, timeout_seconds=None)) or refuted is False
