"""What an answer in tidy LaTeX is: a value, words, a choice, a list, a tuple, a set of reals, a relation.

Structure is read here, and what stands inside it in `_expression`. Needs sympy; runs in the workers.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import sympy

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
    squeezed,
)
from workflow_scripts.grading._equality import equal, same_value
from workflow_scripts.grading._expression import Unreadable, expression
from workflow_scripts.grading._units import MEASURES, NUMBER_WORDS, unit

MOST_ITEMS = 64


_OPEN, _CLOSE = "([{", ")]}"
_TOKEN = re.compile(r"\\text\{[^{}]*\}|\\begin\{\w+\*?\}|\\end\{\w+\*?\}|\\[A-Za-z]+|\\.|.", re.DOTALL)


def split(text: str, separators: set[str]) -> tuple[list[str], list[str]]:
    """Parts of a text between separators outside all brackets, and the separators."""
    parts, found, depth = [""], [], 0
    for token in _TOKEN.findall(text):
        if token.startswith("\\begin"):
            depth += 1
        elif token.startswith("\\end"):
            depth -= 1
        elif (token[-1] in _OPEN and len(token) <= 2) or token in ("\\langle", "\\lfloor", "\\lceil"):
            depth += 1
        elif (token[-1] in _CLOSE and len(token) <= 2) or token in ("\\rangle", "\\rfloor", "\\rceil"):
            depth -= 1
        if depth == 0 and token in separators:
            parts.append("")
            found.append(token)
        else:
            parts[-1] += token
    return [part.strip() for part in parts], found


_BRACKETS = {("(", ")"): "()", ("[", "]"): "[]", ("(", "]"): "(]", ("[", ")"): "[)", ("\\{", "\\}"): "{}",
             ("\\langle", "\\rangle"): "()"}  # fmt: skip
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
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_JOINER = re.compile(r"\\text\{\s*,?\s*(or|and)\s*,?\s*\}|(?<![A-Za-z\\])(or|and)(?![A-Za-z])")
_THOUSANDS = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])", re.ASCII)
_LETTER = re.compile(r"\(?\s*([A-Z])\s*\)?\s*[.:]?")
_LETTERED = re.compile(r"(?:\(\s*([A-Z])\s*\)|([A-Z])\s*(?:\)|\.(?=\s)))\s*(?:[:. ]\s*)(\S.*)")
_NAME = re.compile(
    r"(?:\\(?:text\{[^{}]*\}|angle|triangle|overline|overrightarrow|vec|mathrm|mathbf|sin|cos|tan|log|ln|frac|cdot|sqrt"
    r"|alpha|beta|gamma|delta|theta|lambda|mu|phi|omega|sigma|epsilon|rho|tau|Delta|ell|pi(?=[_(]))"
    r"|_\{?\\?\w+\s?\}?|\^\{?(?:-1|\\prime|')\}?(?=\()|[A-Za-z]\s*\([^()]*\)|[A-Za-z'°]|[ +\-*/|{}(),])++"
)


_NUMERIC = re.compile(r"\\(?:frac|sqrt|pi|cdot|binom|text\{[^{}]*\})|(?<=\d)e")


def _words(text: str) -> Words | Choice | Items | Span | None:
    bare = _TEXT.sub(r"\1", text).strip()
    wrapped = not _TEXT.sub("", text).strip(" .()")
    letter = _LETTER.fullmatch(bare)
    if letter and bare != letter[1]:
        return Choice(letter[1])
    if letter and wrapped:
        return Choice(letter[1])
    lettered = _LETTERED.fullmatch(bare)
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
    if not text:
        raise Unreadable
    if "\\tolerance" not in text:
        words = _words(text)
        if words is not None:
            return words
        if re.fullmatch(r"\s*\\text\{\s*-?[\d$\\][^{}]*\}\s*", text):
            text = _TEXT.sub(r"\1", text).strip()
    text = _JOINER.sub(lambda m: f"\\{m[1] or m[2]} ", text)
    if thousands:
        text = _THOUSANDS.sub(lambda m: m[0].replace(",", "") if _depth(text, m.start()) == 0 else m[0], text)
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
    return Items(tuple(_flat(found)))


def _flat(items: list[Any]) -> list[Any]:
    """A ± among several answers stands for two of them."""
    return [
        inner for item in items for inner in (item.items if isinstance(item, Items) and not item.brackets else (item,))
    ]


def _depth(text: str, at: int) -> int:
    return sum(1 if c in _OPEN else -1 for c in text[:at] if c in _OPEN + _CLOSE)


def _single(text: str, reference: bool) -> Any:
    inner = _inside(text)
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
    if signs[-1:] == ["\\approx"] and len(parts) > 1 and (len(parts) > 2 or not _NAME.fullmatch(parts[0])):
        return _single("=".join(parts[:-1]), reference)  # the exact value counts, not what it is about
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


def _inside(text: str) -> tuple[str, str] | None:
    """Brackets that enclose the whole text, and what is inside."""
    tokens = _TOKEN.findall(text)
    kind = _BRACKETS.get((tokens[0], tokens[-1])) if len(tokens) > 1 else None
    if kind is None:
        return None
    depth = 0
    for place, token in enumerate(tokens):
        if token.startswith(("\\text", "\\begin", "\\end")):
            continue
        if token[-1] in _OPEN or token == "\\langle":
            depth += 1
        elif token[-1] in _CLOSE or token == "\\rangle":
            depth -= 1
        if not depth and place < len(tokens) - 1:
            return None
    return kind, "".join(tokens[1:-1]).strip()


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
    if len(parts) != 2 and kind == "[]":
        kind = "()"
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
    return Span(found)


def _related(parts: list[str], signs: list[str]) -> Any:
    if "\\in" in signs:
        if len(signs) > 1 or not is_name(parts[0]):
            raise Unreadable
        value = _single(parts[1], False)
        reals = span(value)
        name = squeezed(parts[0])
        return Named(name, value, (parts[0], parts[1])) if reals is None else Span(reals, name)
    if any(sign != "=" for sign in signs):
        return _inequality(parts, signs)
    numbers = [i for i, part in enumerate(parts) if not re.search("[A-Za-z]", _NUMERIC.sub("", part))]
    named = _NAME.fullmatch(parts[0])
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
                return Span(found, name.name)
        except (MemoryError, RecursionError):
            raise
        except Exception:  # no solver for it: compared as it stands
            pass
    return Relation(tuple(links))


_BASE = re.compile(
    r"(?:\\text\{)?\(?\s*([0-9A-F]+)\s*\)?\}?\s*_\s*\{?\s*(?:\\text\{\s*)?(\d{1,2}|[a-z]+)\s*\}{0,2}", re.ASCII
)
_BASES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
          "ten": "10", "twelve": "12", "sixteen": "16"}  # fmt: skip
_TOLERANCE = re.compile(r"^(.*?)\s*\\tolerance\{([^{}]*)\}$")
_UNIT = re.compile(r"^(.*?\S)\s*((?:\\text\{[^{}]*+\}\s*+(?:\^\{?-?\d\}?\s*+)?(?:[/.]\s*+)?)++)$")
_BARE_UNIT = re.compile(r"^(.*[\d)}°])\s+([A-Za-z]{2,}\.?(?:[ /]+[A-Za-z]+\.?)*(?:\s*\^\s*\{?\d\}?)?)$")


def quantity(text: str, reference: bool = False) -> Any:
    """A value with what may stand around it: money, percent and degree signs, a unit, a base, a tolerance."""
    tolerance = None
    typed = text
    if reference and (named := _TOLERANCE.match(text)):
        text = named[1]
        if not re.fullmatch(r"\d*\.?\d+(?:[eE][-+]?\d{1,3})?", named[2]):
            raise Unreadable
        tolerance = sympy.Rational(str(Fraction(named[2])))
    elif "\\tolerance" in text:
        raise Unreadable
    base = _BASE.fullmatch(text)
    radix = _BASES.get(base[2], base[2]) if base else ""
    if base and radix.isdigit() and 2 <= int(radix) <= 36 and not base[1].isalpha():
        return Scalar(sympy.Symbol(f"digits_{base[1]}"), base[1], base=radix)
    measure, factor, percent = "", 1, False
    text, money = re.subn(r"^([-+]?)\s*(?:\\\$|[£€¥])\s*|\s*(?:\\\$|[£€¥])$", r"\1", text.strip())
    measure = "dollar" if money and "\\$" in typed else ""
    found = _UNIT.match(text)
    if not found and (bare := _BARE_UNIT.match(text)):
        word = re.split("[^A-Za-z]", bare[2])[0]
        found = bare if word.lower() in MEASURES or len(word) >= 4 else None
    if found:
        words = re.sub(r"\s+", " ", _TEXT.sub(r"\1", found[2])).strip().lower()
        if re.search(r"\d(?<!\^\d)(?<!\^\{\d)(?<!\^-\d)|\b(?:or|and|not|is|to)\b", words):
            return Words(_TEXT.sub(r"\1", text).lower())
        text = found[1]
        first = words.split(" ")[0] if words else ""
        if first in NUMBER_WORDS:
            factor, words = NUMBER_WORDS[first], words[len(first) :].strip()
        percent = words in ("percent", "percents", "per cent")
        measure = unit(words) or measure
    text = text.strip()
    if text.endswith("%"):
        text, percent = text[:-1], True
    if text.endswith("°"):
        text, measure = text[:-1], measure or "degree"
    inner = _inside(text)
    if inner and inner[0] == "()":
        text = inner[1]
    value = expression(text) * factor
    return Scalar(value, squeezed(text) if factor == 1 else str(value), measure, percent, tolerance=tolerance)
