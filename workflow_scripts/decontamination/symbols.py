"""Words, numbers and mathematical symbols of a text: what tells short formulas apart that differ in an operator."""

import re
import unicodedata
from functools import cache

from workflow_scripts.decontamination.normalise import GREEK_SYMBOL, folded, token_pattern
from workflow_scripts.decontamination.number_words import with_digits

_DEGREE = re.compile(r"\^\{?\\circ(?![a-z])\}?")
_STYLED = re.compile(r"\\(?:text|math|operatorname)[a-z]*\s*\{([^{}]*)\}")
_COMMAND = re.compile(r"\\([a-z]+)")
_ESCAPED = re.compile(r"\\([^a-z])")
_BRACED = re.compile(r"\{\s*(\w+)\s*\}")
_HYPHEN = re.compile(r"(?<=[^\W\d_]{2})-(?=[^\W\d_]{2})")
_FACTORIAL = re.compile(r"(?<=[\d)}\]])!|(?<=\b[^\W\d_])!")
_ONE_FORM = str.maketrans("×·∙⋅∗÷∕⁄−–—‐‑{}", "*****///-----()")
_PUNCTUATION = r".,;:?!\"'`´‘’‚“”„«»‹›。、「」『』【】《》・¡¿…،؛؟।॥$&~\\_"
_LAYOUT = {
    "left", "right", "middle", "big", "bigl", "bigr", "bigg", "biggl", "biggr", "displaystyle", "textstyle",
    "limits", "quad", "qquad", "dots", "ldots", "cdots", "begin", "end", "hline", "text", "textbf", "textrm",
    "mathrm", "mathbf", "mathbb", "mathit", "boxed",
}  # fmt: skip
_SIGNS = {
    "times": "*", "cdot": "*", "ast": "*", "div": "/", "frac": "/", "dfrac": "/", "tfrac": "/", "cfrac": "/",
    "over": "/", "le": "≤", "leq": "≤", "leqslant": "≤", "ge": "≥", "geq": "≥", "geqslant": "≥", "ne": "≠", "neq": "≠",
    "lt": "<", "gt": ">", "pm": "±", "sqrt": "√", "infty": "∞",
}  # fmt: skip
_GROUPING = frozenset("()[]|")


@cache
def _part() -> re.Pattern[str]:
    return re.compile(rf"\\[a-z]+|{token_pattern()}|[^\w\s{_PUNCTUATION}]")


def _command(command: re.Match[str]) -> str:
    name = command[1]
    return ";" if name in _LAYOUT else f" {_SIGNS.get(name, command[0])} "


def _greek(letter: re.Match[str]) -> str:
    return f" \\{unicodedata.name(letter[0], 'greek').rsplit(' ', 1)[-1].lower()} "


def with_symbols(text: str) -> list[str]:
    r"""The text's tokens (see `normalise.tokens`) and between them its symbols: signs, brackets, LaTeX commands.

    Punctuation and layout are left out, and LaTeX and Unicode give the same: `\times`, `\cdot` and `×` are *.
    """
    plain = _STYLED.sub(r";\1;", _DEGREE.sub("°", folded(text)))
    plain = with_digits(GREEK_SYMBOL.sub(_greek, _COMMAND.sub(_command, plain)))
    plain = _FACTORIAL.sub(r" \\factorial ", _ESCAPED.sub(r";\1", plain))
    return _part().findall(_HYPHEN.sub(" ", _BRACED.sub(r";\1;", plain).translate(_ONE_FORM)))


def is_symbol(part: str) -> bool:
    """Whether a part of `with_symbols` is no token."""
    return not part[0].isalnum()


def with_operators(text: str) -> list[str]:
    """The same without brackets, which typesetting adds and drops."""
    return [part for part in with_symbols(text) if part not in _GROUPING]
