"""A value with what may stand around it: money, percent and degree signs, a unit, a base, a modulus, a tolerance.

Needs sympy; runs in the workers.
"""

import re
from fractions import Fraction
from typing import Any

import sympy

from workflow_scripts.grading._answer_text.units import NUMBER_WORDS, is_unit, measure, unit
from workflow_scripts.grading.math_answer.answers import Scalar, Words, squeezed
from workflow_scripts.grading.math_answer.calendar import time_of_day
from workflow_scripts.grading.math_answer.expression import Unreadable, expression, with_degrees
from workflow_scripts.grading.math_answer.numbers import number
from workflow_scripts.grading.math_answer.structure import inside

TEXT = re.compile(r"\\text\{([^{}]*)\}")
_DIGITS = r"(?:\\text\{)?\(?\s*(-?[0-9A-Fa-f]+(?:\.[0-9A-Fa-f]+)?)\s*\)?\}?"
_BASE = re.compile(
    rf"{_DIGITS}\s*_\s*\{{?\s*\(?(?:\\text\{{)?\s*(?:base[\s}}]*)?\(?(\d{{1,2}}|[a-z]+)\s*\)?[\s}}]*"
    rf"|{_DIGITS}\s*(?:\\text\{{)?\s*\(?(?:in )?base[\s}}]*(\d{{1,2}}|[a-z]+)\s*\)?\}}?",
    re.ASCII,
)
_BASES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
          "ten": "10", "twelve": "12", "sixteen": "16"}  # fmt: skip
_TOLERANCE = re.compile(r"^(.*?)\s*\\tolerance\{([^{}]*)\}$")
_POWER = r"(?:\^\s*(?:\{\s*-?\d\s*\}|-?\d)\s*+)?"
_PIECE = rf"(?:\\text\{{[^{{}}]*+\}}|\\(?:Omega|AA|mu(?=\s*\\(?:text|Omega)))(?![A-Za-z]))\s*+{_POWER}"
_UNIT = re.compile(rf"^(.*?\S)\s*((?:°\s*)?(?:/\s*\(?)?(?:{_PIECE}(?:\)?[/.]\s*\(?|\\cdot(?![A-Za-z])|\))?\s*+)++)$")
_UNIT_FRACTION = re.compile(
    rf"(?<=[\d)}}°])(\s*)\\frac\s*\{{\s*({_PIECE})\}}\s*\{{\s*((?:{_PIECE}(?:\\cdot(?![A-Za-z])\s*)?)+)\}}$"
)
_UNIT_IN_BRACKETS = re.compile(rf"(\d)\s*[(\[]\s*((?:{_PIECE})++)[)\]]$")
_BARE_UNIT = re.compile(
    r"^(.*[\d)}°])(?:"
    rf"\s+([A-Za-z]{{2,}}\.?(?:[ /]+[A-Za-z]+\.?)*\s*{_POWER}|\\mu\s*[mgsFCAVWJL](?![A-Za-z]))"
    rf"|\s*((?:(?:cm|mm|km|kg|ml|mph|ft)(?:/(?:s|h|min))?|m/s|g/(?:cm|m[lL]|mol|L))\s*{_POWER}|[A-Za-z]{{4,}}))$"
)
_SCALE = re.compile(r"°\s*([CFK])$")  # 20° C
TIME_OF_DAY = "time of day"
_SIDE = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_QUOTIENT = re.compile(rf"^([-+]?)\\frac\s*{_SIDE}\s*{_SIDE}$")
_MEASURED = re.compile(rf"^(.*?)\s*((?:{_PIECE}(?:\\cdot(?![A-Za-z]))?\s*+)*+)$")
_MACROS = [("\\mu\\s*", "μ"), ("\\Omega\\s*", "Ω"), ("\\AA\\s*", "Å"), ("\\cdot(?![A-Za-z])", "·")]
_SPACED = {"A", "C", "F", "K", "T"}  # 5 K is five kelvins, 5K is five thousand, and 5A a multiple of A
_ORDINAL = re.compile(r"\s*\^?\s*(?:\{\s*)?\\text\{\s*(?:st|nd|rd|th)\s*\}\s*\}?$")
_MODULUS = re.compile(r"\s*(?:\\pmod|\(?\s*\\(?:bmod|mod|text\{\s*mod\s*\}))\s*\{?\s*(\d{1,40})\s*\}?\s*\)?$")
_CURRENCIES = {"\\$": "dollar", "€": "euro", "£": "gbp", "¥": "yen"}
_CODE = re.compile(r"^(?:\\text\{\s*)?(USD|EUR|GBP|JPY|Rs)(?:\.?\s*\}|\.?\s)\s*(?=[\d.])")


def _money(text: str) -> tuple[str, str]:
    """The text without a currency before or after it, and the currency."""
    if code := _CODE.match(text):
        return text[code.end() :], measure(code[1]) or ""
    found = re.match(r"^([-+]?)\s*(\\\$|[£€¥])\s*(.*)$|^()(.*?)\s*(\\\$|[£€¥])$", text)
    if not found:
        return text, ""
    return (found[1] or "") + (found[3] or found[5] or ""), _CURRENCIES[found[2] or found[6]]


def _unit_words(text: str) -> str:
    r"""What a unit in tidy LaTeX says: kΩ of \text{k}\Omega, m s^-1 of \text{m}\text{s}^{-1}."""
    words = re.sub(r"\^\s*(?:\{\s*(-?\d)\s*\}|(-?\d))", r"^\1\2", text)
    words = re.sub(r"\}\s*\\text(?=\{)", "} \\\\text", words)
    for macro, symbol in _MACROS:
        words = re.sub(rf"\{macro}", symbol, words)
    words = TEXT.sub(r"\1", words)
    return re.sub(r"\s+", " ", words).strip(" ·")


def _units_outside(text: str) -> str:
    r"""\frac{12\text{ m}}{5\text{ s}} as \frac{12}{5}\text{m/(s)}."""
    found = _QUOTIENT.match(text) if "\\text" in text else None
    if not found:
        return text
    sides = [_MEASURED.match(side.strip()) for side in found.groups()[1:]]
    if None in sides:
        return text
    (over, above), (under, below) = ((side[1], _unit_words(side[2])) for side in sides if side)
    if not (above or below) or not all(unit(words) for words in (above, below) if words):
        return text
    value = f"\\frac{{{over or 1}}}{{{under}}}" if under not in ("", "1") else over or "1"
    return (
        f"{found[1]}{value}"
        + (f"\\text{{ {above}" if above else "\\text{/")
        + (f"{'/' if above else ''}({below})}}" if below else "}")
    )


def _worded(text: str, typed: str) -> tuple[str, int, bool, str] | Words:
    """A text without the words after it, and their factor, whether they say percent, and their unit.

    Words: those after the number are no unit (5 minus six), so that it is not the answer.
    """
    text = _UNIT_IN_BRACKETS.sub(r"\1 \2", _units_outside(text))
    text = _SCALE.sub(r"°\\text{\1}", _UNIT_FRACTION.sub(r"\1\2/(\3)", text))
    found = _UNIT.match(text)
    value, words = "", ""
    if found:
        value, words = found[1], _unit_words(found[2])
    elif bare := _BARE_UNIT.match(text):
        words = _unit_words(bare[2] or bare[3])
        word = re.split("[^A-Za-zμ]", words)[0]
        found = bare if measure(word) or (len(word) >= 4 and (bare[2] or is_unit(word))) else None
        value = bare[1]
    if not found:
        return text, 1, False, ""
    if words.startswith("°") and not unit(words):
        value, words = value + "°", words[1:].strip()  # 30° counterclockwise
    if words.startswith("/") and not unit(words):
        return text, 1, False, ""
    spaced = text[len(value) :].startswith((" ", "\\text{ "))
    is_symbol = measure(words) and (spaced or words not in _SPACED) and value[-1] not in "^_+-*/=("
    if re.fullmatch("[A-Za-z]", words) and not is_symbol:
        return f"{value} {words}", 1, False, ""  # 5\text{x} is 5x
    if re.search(r"\d(?<!\^\d)(?<!\^\{\d)(?<!\^-\d)(?<!\^\{-\d)", words):
        return Words(" ".join(TEXT.sub(r" \1 ", typed).lower().split()))
    first, factor = words.split(" ")[0].lower() if words else "", 1
    if first in NUMBER_WORDS:
        factor, words = NUMBER_WORDS[first], words[len(first) :].strip()
    percent = words.lower() in ("percent", "percents", "per cent")
    if not percent and not is_unit(words):
        return Words(" ".join(TEXT.sub(r" \1 ", typed).lower().split()))
    return value, factor, percent, "" if percent else unit(words)


def _based(text: str) -> Scalar | None:
    """A number with its base, or None for a text that names none."""
    found = _BASE.fullmatch(text)
    if not found:
        return None
    digits, radix = found[1] or found[3], _BASES.get(found[2] or found[4], found[2] or found[4])
    if not radix.isdigit() or not 2 <= int(radix) <= 36 or not re.search(r"\d", digits):
        return None
    if re.search("[a-f]", digits) and int(radix) <= 10:
        return None  # 2a_3 is a product
    digits = digits.upper()
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    if int(radix) == 10 and not re.search("[A-F]", digits):
        return Scalar(sympy.Integer(0), digits, base=radix)
    return Scalar(sympy.Symbol(f"digits_{digits}"), digits, base=radix if int(radix) != 10 else "ten")


def _modulus(text: str) -> tuple[str, str]:
    r"""3 \pmod 7 is 3 with the unit mod 7; what is not below its modulus has another value."""
    found = _MODULUS.search(text)
    if not found:
        return text, ""
    text = text[: found.start()].strip()
    if not re.fullmatch(r"\d{1,40}", text) or int(text) >= int(found[1]):
        raise Unreadable
    return text, f"mod {int(found[1])}"


def _share(value: Any, percent: Any) -> Any:
    """That many percent of the size of a number."""
    size = number(value)
    if size is None or not size.is_real:
        raise Unreadable
    return abs(size) * percent / 100


def quantity(text: str, reference: bool = False) -> Any:
    """A Scalar; Words where words after a number are no unit. reference: it may name a tolerance."""
    tolerance, relative = None, False
    if reference and (named := _TOLERANCE.match(text)):
        text = named[1]
        width, relative = named[2].removesuffix("%"), named[2].endswith("%")
        if not re.fullmatch(r"\d*\.?\d+(?:[eE][-+]?\d{1,3})?", width):
            raise Unreadable
        tolerance = sympy.Rational(str(Fraction(width)))
    elif "\\tolerance" in text:
        raise Unreadable
    time = time_of_day(text)
    if time is not None:
        return Scalar(sympy.Integer(time), text, TIME_OF_DAY)
    if based := _based(text):
        if based.base != "10":
            return based
        text = based.text
    text, modulus = _modulus(text.strip())
    text, currency = _money(text)
    if ordinal := _ORDINAL.search(text):
        text, currency = text[: ordinal.start()], "th"
    found = _worded(text, text)
    if isinstance(found, Words):
        return found
    text, factor, percent, named_unit = found
    kind = named_unit or currency or modulus
    text = text.strip()
    if text.endswith("%"):
        text, percent = text[:-1], True
    angle = with_degrees(text)
    if text.endswith("°") and angle is None:
        text, kind = text[:-1], kind or "degree"
    if grouped := re.fullmatch(r"\{([^{}]*)\}", text):
        text = grouped[1].strip()
    inner = inside(text)
    if inner and inner[0] == "()":
        text = inner[1]
    value = expression(angle or text) * factor
    if relative:
        tolerance = _share(value, tolerance)
    return Scalar(
        value,
        squeezed(text) if factor == 1 else str(value),
        kind,
        percent,
        tolerance=tolerance,
        undegreed=None if angle is None else expression(text.replace("°", " ")) * factor,
    )
