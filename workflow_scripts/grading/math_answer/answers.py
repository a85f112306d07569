"""Kinds of answers, as `reading` finds them and `equality` compares them. Needs sympy; runs in the workers."""

import re
from dataclasses import dataclass
from typing import Any

import sympy


@dataclass(frozen=True)
class Words:
    """An answer in words, in lower case without punctuation. value: the number that they say, unit: of it."""

    words: str
    value: Any = None
    unit: str = ""


@dataclass(frozen=True)
class Choice:
    """A letter of a multiple choice, and the answer after it if there is one."""

    letter: str
    rest: Any = None


@dataclass(frozen=True)
class Scalar:
    """A value. text: as typed, without spaces; unit: a known unit of measure; tolerance: of a reference answer."""

    expr: Any
    text: str
    unit: str = ""
    percent: bool = False
    base: str = ""
    tolerance: Any = None
    undegreed: Any = None  # of sin 60°: sin 60, as who leaves the sign away types it


@dataclass(frozen=True)
class Named:
    """name = value."""

    name: str
    value: Any
    sides: tuple[str, str]


@dataclass(frozen=True)
class Items:
    r"""Several answers. brackets: () of a tuple, [) and the like of an interval, {} of a set, none around a list.

    "or" for values of different letters of which only one is said to hold: no tuple, no list.
    """

    items: tuple[Any, ...]
    brackets: str = ""


@dataclass(frozen=True)
class Span:
    """A set of real numbers, perhaps of the values of one variable."""

    reals: Any
    name: str = ""


@dataclass(frozen=True)
class Relation:
    """left (kind) right, kind one of =, <, \\le, \\ne; several in a chain."""

    links: tuple[tuple[str, Any, Any], ...]


@dataclass(frozen=True)
class Contradiction:
    """An equation that does not hold, such as 8 = 7: equal to nothing."""


_SIMPLE = re.compile(
    # a letter, a word, AB
    r"(?:\\(?:angle|triangle|overline\{?)\s*)?(?:\\?[A-Za-z]+|\\(?:text|mathbb|mathcal)\{[^{}]*\})'*"
    # its subscript, what it is a function of
    r"(?:_\{?\\?\w+\s?\}?)?\}?(?:\^\{-1\})?(?:\s*\([^()]*\)|\s*\[[^\[\]]*\])?"
    r"|\((?:\s*+[A-Za-z](?:_\{?\w+\}?)?\s*+,?)++\)"  # (x, y)
)


def is_name(name: str) -> bool:
    """Whether the left side of an equation is the name of one thing, not a sum such as a + b."""
    return bool(_SIMPLE.fullmatch(name))


def distinct(answer: Items) -> bool:
    """Whether an answer gives values to several letters: x = 1, y = 2, but not x = 1, x = 2, nor x_1 = 1, x_2 = 2."""
    return len({item.name.split("_")[0] for item in answer.items if isinstance(item, Named)}) > 1


def values_by_name(answer: Any) -> dict[str, Any]:
    """The values that an answer gives to several letters: x = 1, y = 2, or (x, y) = (1, 2); none for any other."""
    if isinstance(answer, Items) and not answer.brackets and distinct(answer):
        values = {item.name: item.value for item in answer.items if isinstance(item, Named)}
        return values if len(values) == len(answer.items) else {}  # x = 1, x = 2, y = 3 gives x no value
    if isinstance(answer, Named) and isinstance(answer.value, Items) and answer.value.brackets == "()":
        letters = re.fullmatch(r"\(((?:[A-Za-z],)+[A-Za-z])\)", answer.name)
        if letters and len(set(letters[1].split(","))) == len(answer.value.items) == len(letters[1].split(",")):
            return dict(zip(letters[1].split(","), answer.value.items, strict=True))
    return {}


def squeezed(text: str) -> str:
    return re.sub(r"[\s{}]|\\text(?![A-Za-z])|\\,", "", text)


def span(answer: Any) -> Any:
    """The set of real numbers that an answer is, or None."""
    if isinstance(answer, Span):
        return answer.reals
    if isinstance(answer, Named):
        return span(answer.value)
    if not isinstance(answer, Items) or not all(isinstance(item, Scalar) for item in answer.items):
        return None
    ends = [sympy.simplify(item.expr) if item.expr.has(sympy.sin) else item.expr for item in answer.items]
    if any(end.is_extended_real is not True for end in ends):
        return None
    if answer.brackets == "{}":
        return sympy.FiniteSet(*ends)
    if len(ends) != 2 or not answer.brackets or (ends[0] < ends[1]) is not sympy.true:
        return None
    return sympy.Interval(*ends, left_open=answer.brackets[0] == "(", right_open=answer.brackets[1] == ")")
