"""Whether two answers are equal.

Values without variables are compared exactly or by five hundred digits (`numbers`), those with variables so at five
points. math-verify decides where there are no digits; alone it rounds to six decimals, chops differences below 1e-15,
and joins letters to names.
"""

import re
from itertools import combinations
from typing import Any

import sympy
from math_verify import verify

from workflow_scripts.grading._answer_text.latex import plain_number
from workflow_scripts.grading._answer_text.units import compatible
from workflow_scripts.grading.math_answer.answers import (
    Choice,
    Contradiction,
    Items,
    Named,
    Relation,
    Scalar,
    Span,
    Words,
    distinct,
    is_name,
    span,
    values_by_name,
)
from workflow_scripts.grading.math_answer.calendar import on_the_clock
from workflow_scripts.grading.math_answer.expression import Unreadable, expression
from workflow_scripts.grading.math_answer.numbers import agree, number
from workflow_scripts.grading.math_answer.quantity import TIME_OF_DAY

_IN_ORDER = ("xyz", "abcdef", "mn", "pqrs", "uvw", "hk", "ijk")  # letters of pairs that need no names
_LETTERS_OF_CHOICES = {"A", "B", "C", "D", "E"}
_ROUNDING = sympy.Rational(1, 10**40)
_POINTS = tuple(tuple(sympy.Rational(p, q) for p, q in pairs) for pairs in (
    ((17, 13), (29, 11), (41, 37), (53, 19), (71, 67), (83, 31), (97, 89), (107, 43)),
    ((113, 23), (7, 59), (131, 97), (11, 61), (151, 29), (167, 101), (19, 73), (181, 47)),
    ((-5, 83), (-199, 103), (-23, 109), (-211, 53), (-31, 127), (-227, 139), (-233, 149), (-37, 71)),
    ((-10007, 7), (61, 9), (-3, 1009), (877, 13), (-47, 19), (5, 1013), (-401, 3), (29, 17)),
    ((12007, 5), (-13, 8), (2, 997), (-709, 11), (37, 5), (-1, 787), (503, 7), (-19, 23)),
))  # fmt: skip
_AT_STEPS = tuple(  # where floor and ceiling jump, and just below
    tuple(sympy.Rational(n) - below for n in (6, -4, 9, 15, -8, 21, 2, -10)) for below in (0, sympy.Rational(1, 10**6))
)


def equal(gold: Any, said: Any) -> bool:
    """Whether what was said is the reference answer."""
    if isinstance(gold, Contradiction) or isinstance(said, Contradiction):
        return False
    if gold == said:
        return True
    if isinstance(gold, Choice) or isinstance(said, Choice):
        return _choices(gold, said)
    by_name = values_by_name(gold), values_by_name(said)
    if any(by_name) and (together := _with_names(gold, said, *by_name)) is not None:
        return together
    if isinstance(gold, Named) or isinstance(said, Named):
        return _named(gold, said)
    if isinstance(gold, Words) or isinstance(said, Words):
        return _wordings(gold, said)
    if isinstance(gold, Relation) or isinstance(said, Relation):
        return isinstance(gold, Relation) and isinstance(said, Relation) and _relations(gold, said)
    if isinstance(gold, Span) or isinstance(said, Span):
        return _spans(gold, said)
    if isinstance(gold, Scalar) and isinstance(said, Items) and not said.brackets:
        return all(equal(gold, item) for item in said.items)  # 1/2 or 0.5
    if isinstance(gold, Items) or isinstance(said, Items):
        alone = [
            a.items[0] if isinstance(a, Items) and a.brackets == "{}" and len(a.items) == 1 else a for a in (gold, said)
        ]
        return _items(gold, said) if alone == [gold, said] else equal(*alone)
    return _scalars(gold, said)


def _choices(gold: Any, said: Any) -> bool:
    letters = [a.letter if isinstance(a, Choice) else a.text if isinstance(a, Scalar) else None for a in (gold, said)]
    if letters[0] == letters[1] or (isinstance(gold, Choice) and letters[1] and letters[0] == letters[1].upper()):
        return True
    return not isinstance(gold, Choice) and said.rest is not None and equal(gold, said.rest)


def _wordings(gold: Any, said: Any) -> bool:
    other = [a.expr if isinstance(a, Scalar) else a.value if isinstance(a, Words) else None for a in (gold, said)]
    if isinstance(gold, Scalar) != isinstance(said, Scalar) and None not in other:
        values = [a if isinstance(a, Scalar) else Scalar(sympy.Rational(str(a.value)), str(a.value), a.unit)
                  for a in (gold, said)]  # fmt: skip
        return _scalars(*values)
    texts = [
        a.words if isinstance(a, Words) else a.text.lower() if isinstance(a, Scalar) else None for a in (gold, said)
    ]
    return texts[0] is not None and texts[0] == texts[1]


def _with_names(gold: Any, said: Any, golds: dict[str, Any], saids: dict[str, Any]) -> bool | None:
    """Whether y = 2, x = 1 is (1, 2), or x = 1, y = 2; None where names do not decide."""
    if golds and saids:
        return golds.keys() == saids.keys() and all(equal(golds[name], saids[name]) for name in golds)
    other = said if golds else gold
    named = golds or saids
    if not isinstance(other, Items) or other.brackets not in ("", "()") or len(named) != len(other.items):
        return None
    if any(isinstance(item, Named) for item in other.items):
        return None
    ordered = any(set(named) <= set(letters) for letters in _IN_ORDER)
    values = [named[name] for name in (sorted(named) if ordered else named)]
    pairs = zip(values, other.items, strict=True) if golds else zip(other.items, values, strict=True)
    return all(equal(a, b) for a, b in pairs)


def _same_name(gold: str, said: str) -> bool:
    """Whether two names may stand for one quantity: equal ones, y and f(x), P and P(x)."""
    short, long = sorted((gold, said), key=len)
    called = re.fullmatch(r"([A-Za-z])\(([A-Za-z])\)", long)
    return gold == said or bool(called and len(short) == 1 and (short == called[1] or (short, called[2]) == ("y", "x")))


def _named(gold: Any, said: Any) -> bool:
    if isinstance(gold, Named) and isinstance(said, Named):
        worded = is_name(gold.name) and re.fullmatch("[A-Za-z]{4,}", said.name)  # Area = 7 for A = 7
        if (_same_name(gold.name, said.name) or worded) and equal(gold.value, said.value):
            return True
        return _relations(gold, said)
    if isinstance(gold, Named):
        if isinstance(said, Relation):
            return _relations(gold, said)
        if isinstance(said, Span) and said.name and not _same_name(gold.name, said.name):
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
    first: list[Any] = []
    for point in _POINTS:
        values = [d.subs(dict(zip(names, point, strict=False))) for d in difference]
        digits = [number(value) for value in values]
        if None in digits or not digits[1] or not digits[0]:
            return False
        if not first:
            first = values
            ratio = digits[0] / digits[1]
            if gold[0] in ("<", "\\le") and not (ratio.is_real and ratio > 0):
                return False
        elif agree(values[0] * first[1], first[0] * values[1], at_point=True) is False:
            return False
    return bool(names)


def _spans(gold: Any, said: Any) -> bool:
    names = [a.name if isinstance(a, Span) else "" for a in (gold, said)]
    sets = span(gold), span(said)
    if sets[0] is None and _has_open_ends(gold):
        sets = _union(gold), sets[1]
    elif sets[1] is None and isinstance(gold, Span):
        sets = sets[0], _union(said)
    if None in sets or (names[0] and names[1] and not _same_name(*names)):
        return False
    if sets[0] == sets[1]:
        return True
    if isinstance(sets[0], sympy.FiniteSet) and isinstance(sets[1], sympy.FiniteSet):
        return _matched(sets[0].args, sets[1].args, same_value)
    return (
        bool(verify(sets[0], sets[1], timeout_seconds=None)) and sets[0].symmetric_difference(sets[1]).is_empty is True
    )


def _union(answer: Any) -> Any:
    """The union of intervals that stand as a list and do not overlap; None for any other answer."""
    if not isinstance(answer, Items) or answer.brackets:
        return None
    parts = [span(item) for item in answer.items]
    if None in parts or any(not a.intersect(b).is_empty for a, b in combinations(parts, 2)):
        return None
    return sympy.Union(*parts)


def _has_open_ends(answer: Any) -> bool:
    """Whether a list holds intervals, not points: [1, 2), (3, \\infty)."""
    return isinstance(answer, Items) and any(
        isinstance(item, Items)
        and (item.brackets in ("[)", "(]") or any(end.text.endswith("infty") for end in item.items))
        for item in answer.items
        if not isinstance(item, Items) or all(isinstance(end, Scalar) for end in item.items)
    )


def _array(answer: Any) -> bool:
    """Whether square brackets hold a list, as they do in programs, not an interval."""
    return isinstance(answer, Items) and answer.brackets == "[]" and span(answer) is None


def _items(gold: Any, said: Any) -> bool:
    if isinstance(gold, Scalar) or isinstance(said, Scalar):
        return _vector(gold, said)
    if _array(said) and gold.brackets in ("", "{}"):
        return _matched(gold.items, said.items, equal)
    gold, said = (Items(a.items, "()") if _array(a) else a for a in (gold, said))
    kinds = {gold.brackets, said.brackets}
    if "{}" in kinds and kinds <= {"", "{}"}:
        if not gold.brackets and len(said.items) > len(gold.items):
            return False
        return _covers(gold.items, said.items) and _covers(said.items, gold.items)
    named = distinct(gold), distinct(said)
    if kinds == {""} and named[0] == named[1]:
        return _matched(gold.items, said.items, equal)
    if len(kinds) > 1 and kinds != {"", "()"}:
        return False
    return len(gold.items) == len(said.items) and all(map(equal, gold.items, said.items))


def _covers(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return all(any(equal(a, b) for b in others) for a in some)


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
    if not isinstance(matrix.expr, sympy.MatrixBase) or other.brackets not in ("()", "[]"):
        return False
    if all(isinstance(row, Items) and row.brackets == "[]" for row in other.items):
        rows = [list(matrix.expr.row(i)) for i in range(matrix.expr.rows)]
        if [len(row) for row in rows] != [len(row.items) for row in other.items]:
            return False
        other = Items(tuple(entry for row in other.items for entry in row.items))
    elif 1 not in matrix.expr.shape:
        return False
    entries = list(matrix.expr)
    return len(entries) == len(other.items) and all(
        isinstance(item, Scalar) and same_value(entry, item.expr)
        for entry, item in zip(entries, other.items, strict=True)
    )


def _times(gold: Scalar, said: Scalar) -> bool:
    if gold.unit == said.unit:
        return bool(gold.expr == said.expr)
    time, other = (gold, said) if gold.unit == TIME_OF_DAY else (said, gold)
    return not other.unit and not other.percent and on_the_clock(int(time.expr), other.text)


def _scalars(gold: Scalar, said: Scalar) -> bool:
    if TIME_OF_DAY in (gold.unit, said.unit):
        return _times(gold, said)
    if not compatible(gold.unit, said.unit):
        return False
    if gold.text in _LETTERS_OF_CHOICES and said.text == gold.text.lower():
        return True
    ratios = [":" in side.text for side in (gold, said)]
    if ratios[0] != ratios[1] and not re.search(r"/|\\frac", (said if ratios[0] else gold).text):
        return False  # 5:1 is not 5; 1:2 is 1/2
    if gold.base or said.base:
        return bool(gold.base) and gold.text == said.text and said.base in ("", gold.base)
    if gold.tolerance is not None:
        return _within(gold, said)
    if gold.percent != said.percent and (gold.unit or said.unit):
        return False
    if gold.percent != said.percent:
        hundredth = sympy.Rational(1, 100)
        scaled = (gold.expr * hundredth, said.expr) if gold.percent else (gold.expr, said.expr * hundredth)
        if same_value(*scaled):
            return True
    if gold.undegreed is not None and said.undegreed is None and same_value(gold.undegreed, said.expr):
        return True
    return same_value(gold.expr, said.expr) or _rounded(gold, said) or _rounded(said, gold)


def rounds(exact: Any, approximate: Any) -> bool:
    """Whether what stands after a sign of approximation is near what stands before it: 0.67 for 2/3, not 6 for 5."""
    exact, approximate = (a.value if isinstance(a, Named) else a for a in (exact, approximate))
    if isinstance(exact, Items) and isinstance(approximate, Items):
        return len(exact.items) == len(approximate.items) and all(map(rounds, exact.items, approximate.items))
    if not (isinstance(exact, Scalar) and isinstance(approximate, Scalar)):
        return False
    if any(isinstance(a.expr, sympy.MatrixBase) or a.base for a in (exact, approximate)):
        return False
    scales = [sympy.Rational(1, 100) if a.percent else sympy.Integer(1) for a in (exact, approximate)]
    value, near = (number(a.expr * (scale if scales[0] != scales[1] else 1)) for a, scale in
                   zip((exact, approximate), scales, strict=True))  # fmt: skip
    if value is None or near is None or not (value.is_real and near.is_real):
        return False
    last = sympy.Rational(1, 100) * abs(value)
    if plain_number(approximate.text) is not None:
        whole, _, places = approximate.text.partition(".")
        zeros = len(whole) - len(whole.rstrip("0"))
        last = max(sympy.Rational(1, 10 ** len(places)) if places else sympy.Integer(10) ** zeros, abs(value) / 10**6)
        last *= scales[1] if scales[0] != scales[1] else 1
    return bool(abs(value - near) <= last / 2 or 0 <= abs(value) - abs(near) < last)


def _within(gold: Scalar, said: Scalar) -> bool:
    """Whether a number is no further from the reference answer than its tolerance, a missing percent sign aside."""
    if isinstance(gold.expr, sympy.MatrixBase) or isinstance(said.expr, sympy.MatrixBase):
        return False
    scales = {1, *((sympy.Rational(1, 100) if said.percent else 100,) if said.percent != gold.percent else ())}
    differences = [number(gold.expr - said.expr * scale) for scale in scales]
    return any(
        difference is not None and difference.is_real and abs(difference) <= gold.tolerance * (1 + _ROUNDING)
        for difference in differences
    )


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
    value = number(exact.expr)
    if value is None or not value.is_real:
        return False
    last = sympy.Rational(1, 10 ** len(places))
    return bool(abs(value - decimal.expr) <= last / 2 or 0 <= abs(value) - abs(decimal.expr) < last)


def _agreed(gold: Any, said: Any) -> bool | None:
    """False if numbers tell two values apart, True if they agree, None if no number can be had."""
    names = sorted(gold.free_symbols | said.free_symbols, key=str)
    agreed = 0
    steps = any(side.has(sympy.floor, sympy.ceiling) for side in (gold, said))
    for point in (*_POINTS, *(_AT_STEPS if steps else ())) if names else _POINTS[:1]:
        at = dict(zip(names, (v for v in point * (1 + len(names) // len(point))), strict=False))
        same = agree(gold.subs(at), said.subs(at), at_point=bool(names))
        if same is False:
            return False
        agreed += same is True
    return True if agreed else None


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
    agreed = _agreed(gold, said)
    return bool(verify(gold, said, timeout_seconds=None)) if agreed is None else agreed
