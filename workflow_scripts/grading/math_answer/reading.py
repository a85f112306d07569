"""What an answer in tidy LaTeX is: a value, words, a choice, a list, a tuple, a set of reals, a relation.

Structure is read here, and what stands inside it in `quantity` and `expression`. Needs sympy; runs in the workers.
"""

import re
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import sympy

from workflow_scripts.grading._answer_text.names import names_quantity
from workflow_scripts.grading._answer_text.number_words import number_in_words
from workflow_scripts.grading._answer_text.sentences import value_in
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
    squeezed,
)
from workflow_scripts.grading.math_answer.calendar import date
from workflow_scripts.grading.math_answer.equality import equal, rounds, same_value
from workflow_scripts.grading.math_answer.expression import Unreadable, expression
from workflow_scripts.grading.math_answer.quantity import TEXT, quantity
from workflow_scripts.grading.math_answer.structure import depth_at, inside, split

MOST_ITEMS = 64

_RELATIONS = {
    "=": "=",
    "\\approx": "=",
    "<": "<",
    ">": ">",
    "\\le": "\\le",
    "\\ge": "\\ge",
    "\\ne": "\\ne",
    "\\in": "\\in",
}
_MIRRORED = {">": "<", "\\ge": "\\le"}
_WORDED = {"all real numbers": sympy.S.Reals, "all reals": sympy.S.Reals, "real numbers": sympy.S.Reals,
           "no solution": sympy.S.EmptySet, "no solutions": sympy.S.EmptySet, "empty set": sympy.S.EmptySet,
           "no real solutions": sympy.S.EmptySet}  # fmt: skip
_IN_ENGLISH = {"oder": "or", "ou": "or", "или": "or", "und": "and", "et": "and", "и": "and"}
_JOINER = re.compile(r"\\text\{\s*,?\s*(or|and|oder|ou|или|und|et|и)\s*,?\s*\}|(?<![A-Za-z\\])(or|and)(?![A-Za-z])")
_THOUSANDS = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])", re.ASCII)
_LETTER = re.compile(r"\(?\s*([A-Z])\s*\)?\s*[.:]?")
_LETTERED = re.compile(r"(?:\(\s*([A-Z])\s*\)|([A-Z])\s*(?:\)|\.(?=\s)|(?=:\s+[\d\\(-])))\s*(?:[:. ]\s*)(\S.*)")
_LETTER_IN_TEXT = re.compile(r"\\text\{\s*[A-J]\s*\}\s+(?:\d|\\(?:frac|sqrt|text|pi)(?![A-Za-z]))")
_NUMERIC = re.compile(r"\\(?:frac|sqrt|pi|cdot|binom|text\{[^{}]*\})|(?<=\d)e")


_MATRIX_IN_BRACKETS = re.compile(r"^[(\[]\s*(\\begin\{matrix\}(?:(?!\\begin|\\end).)*\\end\{matrix\})\s*[)\]]$")
# After a choice: another letter, a conjunction, a doubt.
_UNDECIDED = re.compile(
    r"\(\s*[A-Z]\s*\)|^\W*[A-Z]?\W*$|^\W*[A-Z]\s*[.)]\s|^[/,&]|(?<![A-Za-z])(?:or|and|not|wrong|incorrect|false|no|maybe|perhaps|never|unless|except|if|nor|but|isn|neither|either)(?![A-Za-z])"
)
_ANSWER = re.compile(
    r"^(?:\\text\{\s*)?(?:[Tt]he\s+|[Mm]y\s+)?(?:(?:[Ff]inal|[Cc]orrect)\s+)?(?:[Aa]nswer|ANSWER)\s*(?:is|:|=)\s*:?\s*(\}\s*)?"
)
_OPTION = re.compile(r"^(\\text\{\s*)?(?:[Oo]ption|[Cc]hoice)\s+(?=\(?[A-Z](?![A-Za-z]))")
_IN_TEXT = re.compile(r"\\text\{\s*(-?[\d$\\(\[][^{}]*|[A-Za-z]\s*=[^{}]*)\}")


def _bare(text: str) -> str:
    r"""An answer without words that say it is one, and without a \text around all of it."""
    text = _OPTION.sub(lambda found: found[1] or "", text)
    if said := _ANSWER.match(text):
        opened = said[0].startswith("\\text") and not said[1]
        text = ("\\text{" if opened else "") + text[said.end() :].strip()
    if quoted := re.fullmatch(r'"([^"]*)"', text):
        text = quoted[1].strip()
    return value_in(text)


def _words(text: str) -> Words | Choice | Items | Span | None:
    bare = TEXT.sub(r"\1", text).strip()
    if named_day := date(bare):
        return Words(named_day)
    wrapped = not TEXT.sub("", text).strip(" .()")
    letter = _LETTER.fullmatch(bare)
    if letter and bare != letter[1]:
        return Choice(letter[1])
    if letter and wrapped:
        return Choice(letter[1])
    lettered = _LETTERED.fullmatch(bare) or (_LETTER_IN_TEXT.match(text) and re.fullmatch(r"([A-J])()\s+(\S.*)", bare))
    if lettered and _UNDECIDED.search(lettered[3]):
        return Words(" ".join(bare.lower().split()))
    if lettered:
        try:
            return Choice(lettered[1] or lettered[2], read(lettered[3]))
        except Unreadable:
            return Choice(lettered[1] or lettered[2])
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9' .,;()/&:?!\"-]*", bare):
        return None
    if not wrapped and (
        not re.search("[A-Za-z]{4,}", bare)
        or (re.search(r"(?<![A-Za-z])[A-Za-z]{1,2}(?![A-Za-z])", bare) and "," not in bare)
    ):
        return None
    number = number_in_words(bare)
    if number is not None:
        return Words(" ".join(re.findall(r"[a-z0-9']+", bare.lower())), *number)
    pieces = [piece.strip() for piece in re.split(r"[,;]|(?<![A-Za-z])(?:and|or)(?![A-Za-z])", bare) if piece.strip()]
    if len(pieces) > 1:
        return Items(tuple(_words(f"\\text{{{piece}}}") or Words(piece.lower()) for piece in pieces))
    words = " ".join(re.findall(r"[a-z0-9']+", bare.lower()))
    if words in _WORDED:
        return Span(_WORDED[words])
    return Words(words) if words else None


def read(text: str, reference: bool = False, thousands: bool = True) -> Any:
    """What an answer is. reference: it may name tolerances; thousands: 1,234 is one number, not two."""
    text = text.strip()
    while text[-1:] in (".", ",", ";", ":"):
        text = text[:-1].rstrip()
    text = _bare(text)
    if not text:
        raise Unreadable
    if "\\tolerance" not in text:
        words = _words(text)
        if words is not None:
            return words
        if wrapped := _IN_TEXT.fullmatch(text):
            text = wrapped[1].strip()
    text = _JOINER.sub(lambda m: f"\\{_IN_ENGLISH.get(m[1], m[1]) or m[2]} ", text)
    if thousands:
        text = _THOUSANDS.sub(lambda m: m[0].replace(",", "") if depth_at(text, m.start()) == 0 else m[0], text)
    parts, separators = split(text, {",", ";", "\\or", "\\and"})
    parts = [part for part in parts if part]
    if len(parts) == 1:
        return _single(parts[0], reference)
    if not parts or len(parts) > MOST_ITEMS:
        raise Unreadable
    found = [_single(part, reference) for part in parts]
    spans = [item for item in found if isinstance(item, Span)]
    if len(spans) == len(found) and len({item.name for item in spans}) == 1:
        joined = sympy.Intersection(*(item.reals for item in spans))
        if "\\or" in separators or ("\\and" not in separators and joined is sympy.S.EmptySet):
            joined = sympy.Union(*(item.reals for item in spans))
        return Span(joined, spans[0].name)
    items = Items(tuple(_flat(found)))
    return Items(items.items, "or") if "\\or" in separators and distinct(items) else items  # x = 1 or y = 2


def _flat(items: list[Any]) -> list[Any]:
    """A ± among several answers stands for two of them."""
    return [
        inner for item in items for inner in (item.items if isinstance(item, Items) and not item.brackets else (item,))
    ]


def _single(text: str, reference: bool) -> Any:
    text = _MATRIX_IN_BRACKETS.sub(r"\1", text)
    inner = inside(text)
    if inner is not None and not (inner[0] == "()" and _LETTER.fullmatch(text)):
        return _bracketed(*inner)
    signs = re.findall(r"\\(?:pm|mp)(?![A-Za-z])", text)
    if signs:
        if len(signs) > 4:
            raise Unreadable
        # signs are free of each other, unless one is upside down
        choices = ["+" * len(signs), "-" * len(signs)] if "\\mp" in signs else product("+-", repeat=len(signs))
        versions = [_signed(text, iter(choice)) for choice in choices]
        return Items(tuple(_flat([_single(version, reference) for version in versions])))
    text = re.sub(r"^\\approx\s*", "", text)
    parts, signs = split(text, set(_RELATIONS))
    if signs[-1:] == ["\\approx"] and len(parts) > 1 and (len(parts) > 2 or not names_quantity(parts[0])):
        exact = _single("=".join(parts[:-1]), reference)  # the exact value counts, not what it is about
        return exact if rounds(exact, _single(parts[-1], False)) else Contradiction()
    if signs:
        return _related(parts, [_RELATIONS[sign] for sign in signs])
    parts, signs = split(text, {"\\cup", "\\cap", "\\setminus"})
    if signs:
        return _combined(parts, signs)
    if text in ("\\emptyset", "\\mathbb{R}", "\\R"):
        return Span(sympy.S.EmptySet if text == "\\emptyset" else sympy.S.Reals)
    parts, signs = split(text, {":"})
    if len(signs) > 1:
        return Items(tuple(quantity(part) for part in parts), "()")
    return quantity(text, reference)


def _signed(text: str, choice: Iterator[str]) -> str:
    """The text with one sign for each ±, and the other for each ∓."""
    turned = {"+": "-", "-": "+"}

    def sign(found: re.Match[str]) -> str:
        chosen = next(choice)
        return chosen if found[1] == "pm" else turned[chosen]

    return re.sub(r"\\(pm|mp)(?![A-Za-z])", sign, text).removeprefix("+")


def _bracketed(kind: str, inner: str) -> Any:
    if kind == "{}":
        if not inner:
            return Span(sympy.S.EmptySet)
        builder, bars = split(inner, {"|", ":"})
        if len(bars) == 1 and is_name(re.sub(r"\\in.*", "", builder[0]).strip()):
            return read(builder[1])
        found = read(inner, thousands=False)
        return Items(found.items if isinstance(found, Items) and not found.brackets else (found,), "{}")
    parts, commas = split(inner, {",", ";"})
    if not commas:
        if kind != "()":
            raise Unreadable
        return _single(inner, False)
    if len(parts) > MOST_ITEMS:
        raise Unreadable
    if kind == "[]" and all(part.startswith("[") and part.endswith("]") for part in parts):
        rows = [Items(tuple(_single(entry, False) for entry in split(part[1:-1], {","})[0]), kind) for part in parts]
        return Items(tuple(rows), kind)
    items = tuple(_single(part, False) for part in parts)
    if any(isinstance(item, Items) and not item.brackets for item in items):  # ± inside
        versions = [item.items if isinstance(item, Items) and not item.brackets else (item,) for item in items]
        return Items(tuple(Items(version, kind) for version in product(*versions)))
    return Items(items, kind)


def _combined(parts: list[str], signs: list[str]) -> Any:
    """Unions, intersections and differences, from left to right."""
    sets = [span(_single(part, False)) for part in parts]
    if any(s is None for s in sets):
        raise Unreadable
    found = sets[0]
    for sign, other in zip(signs, sets[1:], strict=True):
        found = {"\\cup": sympy.Union, "\\cap": sympy.Intersection, "\\setminus": sympy.Complement}[sign](found, other)
    if isinstance(found, sympy.FiniteSet):
        return Items(tuple(Scalar(value, str(value)) for value in found.args), "{}")
    return Span(found)


def _related(parts: list[str], signs: list[str]) -> Any:
    if "\\in" in signs:
        if len(signs) > 1 or not is_name(parts[0]):
            raise Unreadable
        value = _single(parts[1], False)
        reals = None if isinstance(value, Items) and value.brackets == "{}" else span(value)
        name = squeezed(parts[0])
        return Named(name, value, (parts[0], parts[1])) if reals is None else Span(reals, name)
    if any(sign != "=" for sign in signs):
        return _inequality(parts, signs)
    numbers = [i for i, part in enumerate(parts) if not re.search("[A-Za-z]", _NUMERIC.sub("", part))]
    named = names_quantity(parts[0])
    values = parts[1:] if named else parts
    if not named and len(parts) == 2 and is_name(parts[1]) and numbers == [0]:
        return Named(squeezed(parts[1]), _single(parts[0], False), (parts[1], parts[0]))
    if named or len(numbers) == len(parts):
        found = [_single(part, False) for part in values]
        if not all(equal(found[-1], other) for other in found[:-1]):
            return Contradiction()
        return Named(squeezed(parts[0]), found[-1], (parts[0], parts[-1])) if named else found[-1]
    sides = [expression(part) for part in parts]
    if all(same_value(sides[-1], side) for side in sides[:-1]):  # x^2 - 1 = (x - 1)(x + 1) states either side
        return _single(parts[-1], False)
    return Relation(tuple(("=", a, b) for a, b in pairwise(sides)))


def _inequality(parts: list[str], signs: list[str]) -> Any:
    called = {squeezed(part) for part in parts if part.endswith(")") and names_quantity(part)}
    if len(called) == 1:  # -1 < f(x) < 1
        parts = ["\\zeta" if squeezed(part) in called else part for part in parts]
    quantities = [quantity(part) for part in parts]
    if not all(isinstance(found, Scalar) for found in quantities):
        raise Unreadable
    sides = [found.expr for found in quantities]
    links = []
    for sign, left, right in zip(signs, sides, sides[1:], strict=False):
        links.append((_MIRRORED[sign], right, left) if sign in _MIRRORED else (sign, left, right))
    names = set().union(*(side.free_symbols for side in sides))
    if len(names) == 1:
        name = names.pop()
        real = sympy.Symbol(name.name, real=True)
        kinds = {"<": sympy.Lt, "\\le": sympy.Le, "=": sympy.Eq, "\\ne": sympy.Ne}
        try:
            relations = [kinds[sign](a.subs(name, real), b.subs(name, real)) for sign, a, b in links]
            found = sympy.Intersection(*(sympy.solveset(relation, real, sympy.S.Reals) for relation in relations))
            if isinstance(found, (sympy.Interval, sympy.Union, sympy.FiniteSet, sympy.Complement)) or (
                found in (sympy.S.Reals, sympy.S.EmptySet)
            ):
                return Span(found, called.pop() if len(called) == 1 else name.name)
        except (MemoryError, RecursionError):
            raise
        except Exception:  # no solver for it: compared as it stands
            pass
    return Relation(tuple(links))
