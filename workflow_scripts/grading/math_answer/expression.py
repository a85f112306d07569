r"""Text without structure to a sympy expression: TeX arguments braced, decimals as fractions, then latex2sympy.

latex2sympy alone reads `3 4` and 3(4) as 7, `R` as `r`, \gamma as Euler's constant, \gcd(m, n) as 1, and drops
primes. Needs sympy; runs in the workers.
"""

import re
from fractions import Fraction
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy


class Unreadable(Exception):
    """The text is no answer of a known form."""


def _group(text: str, at: int) -> tuple[str, int]:
    """The argument of a TeX command at a place, and where it ends."""
    while at < len(text) and text[at] == " ":
        at += 1
    if at == len(text):
        raise Unreadable
    if text[at] != "{":
        found = re.compile(r"\\[A-Za-z]+|.").match(text, at)
        assert found
        end = found.end()
        arguments = {"\\frac": 2, "\\sqrt": 1}.get(found[0], 0)
        spelled = found[0]
        for _ in range(arguments):
            inner, end = _group(text, end)
            spelled += f"{{{inner}}}"
        return spelled, end
    depth, end = 0, at
    while True:
        depth += {"{": 1, "}": -1}.get(text[end], 0) if text[end - 1] != "\\" else 0
        end += 1
        if not depth:
            return text[at + 1 : end - 1], end
        if end == len(text):
            raise Unreadable


_ARGUMENTS = re.compile(r"\\frac(?![A-Za-z])|\\binom(?![A-Za-z])|\\sqrt(?![A-Za-z])\s*(\[[^\[\]]*\])?|[\^_]")


def _braced(text: str) -> str:
    r"""Braces around every argument: \frac12, \sqrt2, x^10 (which means x^{10} to who types it), x^\frac12."""
    spelled, at = "", 0
    for _ in range(200):
        found = _ARGUMENTS.search(text, at)
        if not found:
            break
        spelled += text[at : found.start()] + found[0].replace(" ", "")
        at = found.end()
        if found[0] in "^_":
            digits = re.compile(r"\s*(-?\d+(?:\.\d+)?|-[A-Za-z](?![A-Za-z]))").match(text, at)
            if digits:
                spelled, at = f"{spelled}{{{digits[1]}}}", digits.end()
                continue
        if (found[0].startswith("\\sqrt") or found[0] == "^") and re.compile(r"\s*\(").match(text, at):
            close = _matching(text, text.index("(", at))
            spelled, at = f"{spelled}{{{_braced(text[text.index('(', at) + 1 : close])}}}", close + 1
            continue
        for _ in range(1 if found[0] in "^_" or found[0].startswith("\\sqrt") else 2):
            inner, at = _group(text, at)
            named = found[0] == "_" and not re.search(r"\\(?:log|sum|prod|int|lim|max|min)\s*_$", spelled)
            spelled += f"{{{_subscript(inner) if named else _braced(inner)}}}"
    return spelled + text[at:]


def _matching(text: str, at: int) -> int:
    depth = 0
    for place in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return place
    raise Unreadable


_REPEATING = re.compile(r"(?<![\d.])(\d{0,30})\.(\d{0,30})\\(?:overline|bar)\s*\{?\s*(\d{1,30})\s*\}?", re.ASCII)
_SCIENTIFIC = re.compile(
    r"(?<![A-Za-z\\_{\d.])(\d{1,100}(?:\.\d{1,100})?|\.\d{1,100})[eE]([-+]?\d{1,4})(?![\d.])", re.ASCII
)
_DECIMAL = re.compile(r"\d*\.\d+|\d+\.(?!\d)", re.ASCII)
_MIXED = re.compile(r"(?<![\d.}])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d.])", re.ASCII)
_MIXED_TEX = re.compile(r"(?<![\d.^_])(\d+)\s*\\frac\{(\d+)\}\{(\d+)\}", re.ASCII)
# x(y+1) is a product, x(0) and f(t) are not; f, g, h, u, p, P and the like may always be functions.
_CALLS = re.compile(r"((?<![A-Za-z\\])[A-Za-eijk-oq-tv-z](?=\s*\((?!\s*-?\d+\s*\)))|\\pi)\s*\(")
_ADJOINING = re.compile(r"(?<=[\d)])\s*(?=\()|(?<=\))\s*(?=\d)")
_NAMES = re.compile(r"_\{[^{}]*\}|\\[A-Za-z]+|[IE]|e(?=_)|d")
# Names that latex2sympy keeps for something of its own; whoever uses one of the right side means nothing else by it.
_RENAMED = {
    "I": "\\Xi ",
    "E": "\\Upsilon ",
    "e": "\\omicron ",
    "\\gamma": "\\varsigma ",
    "\\Gamma": "\\nabla ",
    "d": "\\upsilon ",
}
_REFUSED = re.compile(
    r"\d\s+\.?\d|\.\.|!!|[?@\"#&](?!.*\\end)|(?:^|[^\\A-Za-z}\]^_])\{\d+\}\s*\{"
    r"|\\(?:ldots|cdots|dots|text|gcd|lcm)(?![A-Za-z])"
)
_RATIONAL = re.compile(r"([-+]?)(?:\\frac\{(-?\d+)\}\{(\d+)\}|(\d+)(?:/(\d+))?)", re.ASCII)
_TRANSPOSED = re.compile(r"\^\s*(?:\{\s*(?:T|\\top|\\text\{\s*T\s*\})\s*\}|T|\\top|\\text\{\s*T\s*\})")
_SYMBOL_I, _CONFIG = sympy.Symbol("i"), ConversionConfig(lowercase_symbols=False)


def _mixed(found: re.Match[str]) -> str:
    whole, over, under = map(int, found.groups())
    return (
        f"\\frac{{{whole * under + over}}}{{{under}}}"
        if over < under
        else f"{whole} \\cdot \\frac{{{over}}}{{{under}}}"
    )


def _subscript(text: str) -> str:
    """A subscript as part of a name: m_{\\max}, x_{\text{red}}."""
    return re.sub(r"\\text|[^A-Za-z0-9+]", "", text)


def _exact(text: str) -> str:
    """Decimals as fractions, so that nothing is ever compared as a float."""

    def fraction(value: Fraction, after: str) -> str:
        spelled = (
            f"\\frac{{{value.numerator}}}{{{value.denominator}}}" if value.denominator > 1 else f"{value.numerator}"
        )
        return f"({spelled})" if after[:1] in ("^", "!") else spelled

    def repeating(found: re.Match[str]) -> str:
        whole, head, tail = found.groups()
        value = Fraction(
            int(whole + head + tail or 0) - int(whole + head or 0), 10 ** len(head) * (10 ** len(tail) - 1)
        )
        return fraction(value, text[found.end() :])

    def scientific(found: re.Match[str]) -> str:
        value = Fraction(found[1])
        return f"(\\frac{{{value.numerator}}}{{{value.denominator}}} \\cdot 10^{{{int(found[2])}}})"

    text = _SCIENTIFIC.sub(scientific, _REPEATING.sub(repeating, text))
    return _DECIMAL.sub(lambda m: fraction(Fraction(m[0].rstrip(".")), text[m.end() :]), text)


_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_DEGREES = re.compile(r"(\d+(?:\.\d+)?|\\frac\s*\{\d+\}\s*\{\d+\})\s*°")


def with_degrees(text: str) -> str | None:
    """The angles of trigonometric functions in radians; None if there is no angle in degrees in one."""
    if "°" not in text or not _TRIGONOMETRIC.search(text):
        return None
    return _DEGREES.sub(r"{(\1 \\cdot \\frac{\\pi}{180})}", text).replace("°", r" \cdot \frac{\pi}{180}")


# dy/dx is a name; latex2sympy differentiates y with respect to x, which is 0.
_LETTER = r"[A-Za-z]|\\[A-Za-z]+"
_QUOTIENT = re.compile(
    rf"\\frac\s*\{{\s*(?:d|\\partial)\s*(?P<order>\^\{{?[2-9]\}}?)?\s*(?P<over>{_LETTER})\s*(?:\(\s*[A-Za-z]\s*\))?\s*\}}"
    rf"\s*\{{\s*(?:d|\\partial)\s*(?P<under>{_LETTER})\s*(?:\^\{{?[2-9]\}}?)?\s*\}}"
    r"|(?<![A-Za-z\\])d(?P<above>[A-Za-z])\s*/\s*d(?P<below>[A-Za-z])(?![A-Za-z])"
)
_DERIVATIVE = re.compile(
    r"\\frac\s*\{\s*(?:d|\\partial)[^{}]*(?:\{\d\}[^{}]*)?\}\s*\{\s*(?:d\s*[A-Za-z\\]|\\partial)|\\partial"
)


# A subscript, prime or second percent sign of a number, which latex2sympy drops; x_1' and \int^1_0 have none.
_MARKED_NUMBER = re.compile(r"\d\s*[})\]|°]*\s*['_]|%")
_OWN_DIGITS = re.compile(r"_\s*(?:\{\s*\d+\s*\}|\d+)|\^\s*(?:\{\s*\d+\s*\}|\d)(?=\s*_)")


def _quotients(text: str) -> str:
    def name(found: re.Match[str]) -> str:
        order = re.sub(r"\D", "", found["order"] or "1")
        under = (found["under"] or found["below"]).lstrip("\\")
        return f" {found['over'] or found['above']}_{{by{under}{order}}} "

    text = _QUOTIENT.sub(name, text)
    if _DERIVATIVE.search(text):
        raise Unreadable
    return text


def expression(text: str) -> Any:
    """The sympy expression that a text without structure is. Unreadable: it is none, or no number (1/0)."""
    if _MARKED_NUMBER.search(_OWN_DIGITS.sub("_k", text)):
        raise Unreadable
    text = _quotients(text)
    text = _MIXED.sub(r"\1\\frac{\2}{\3}", text.replace("°", " ")).strip()
    text = re.sub(r"'+", lambda m: f"_{{{'prime' * len(m[0])}}}", _TRANSPOSED.sub("_{turned}", text))
    text = _braced(_exact(text))
    rational = _RATIONAL.fullmatch(text.replace(" ", "") if "frac" in text else text)
    if rational:
        over, under = int(rational[2] or rational[4]), int(rational[3] or rational[5] or 1)
        if not under:
            raise Unreadable
        return sympy.Rational(-over if rational[1] == "-" else over, under)
    if not text or _REFUSED.search(text):
        raise Unreadable
    text = _CALLS.sub(r"\1 \\cdot (", _ADJOINING.sub(r" \\cdot ", _MIXED_TEX.sub(_mixed, text)))
    if "\\int" not in text:
        text = _NAMES.sub(lambda m: _RENAMED.get(m[0], m[0]), text)
    try:
        found = latex2sympy(
            text, is_real=None, convert_degrees=False, normalization_config=None, conversion_config=_CONFIG
        )
    except (MemoryError, RecursionError):
        raise
    except Exception:
        raise Unreadable from None
    if isinstance(found, sympy.MatrixBase):
        return sympy.ImmutableMatrix(found).subs(_SYMBOL_I, sympy.I)
    if not isinstance(found, sympy.Expr) or isinstance(found, sympy.Float):
        raise Unreadable
    found = found.subs(_SYMBOL_I, sympy.I) if _SYMBOL_I in found.free_symbols else found
    if found.has(sympy.zoo, sympy.nan):
        raise Unreadable
    return found
