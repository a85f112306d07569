r"""Answers that are copied from the question: the expressions a question shows, and whether an answer is one as text.

Problems that ask to evaluate or simplify show an expression that equals the answer, so a grader that compares values
pays whoever repeats it.
"""

import re
from functools import lru_cache

from workflow_scripts.grading._alternatives import alternatives
from workflow_scripts.grading._answer_text.latex import tidy, without_tolerance

_FORMULA = re.compile(
    r"(?<!\\)\$\$(?P<display>.+?)(?<!\\)\$\$|(?<!\\)\$(?P<inline>(?:[^$\\]|\\.)+)\$|\\\((?P<round>.+?)\\\)"
    r"|(?<!\\)\\\[(?P<square>.+?)\\\]|\\begin\{(?P<name>(?:align|equation|gather|multline)\*?)\}(?P<lines>.+?)"
    r"\\end\{(?P=name)\}",
    re.DOTALL,
)
_GROUPS = ("display", "inline", "round", "square", "lines")
_WORDS = re.compile(r"\\(?:text|mbox|mathrm|mathbf|mathit)\s*\{([^{}]*)\}")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_NAMES = re.compile(r"(?:[A-Za-z\s(),.;:'{}]|\\(?:triangle|angle|overline|overrightarrow|odot|ell)(?![A-Za-z]))*")
_UNIT = re.compile(r"(?<=[\d})°])\s*\\text\s*\{[^{}]*\}(?:\^\{?-?\d\}?)?$")
_SINGLE = re.compile(r"(?<!\\)\{([^{}\\])\}")
_FRACTION = re.compile(r"\\[dt]?frac(?:\{([^{}]+)\}|(\w))(?:\{([^{}]+)\}|(\w))")
_EQUALS = re.compile(r"(?<![<>!:])=(?!=)|\\approx(?![A-Za-z])")
_OPTION = re.compile(r"\(\s*([A-Z])\s*\)(.*)", re.DOTALL)
_GAP = re.compile(r"\\q?quad(?![A-Za-z])")
_NAME = re.compile(r"\\?[A-Za-z]+(?:_\w+)?(?:\([A-Za-z,]+\))?")
_ORDINAL = re.compile(r"(?<=\d)\^?\{?(?:st|nd|rd|th)\}?$")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_MOST_KNOWN = 1 << 14


def expressions(question: str) -> list[str]:
    r"""What a question has between ``$``, ``$$``, ``\(``, ``\[`` or in ``align`` and the like, each once, in order."""
    found = []
    for formula in _FORMULA.finditer(question):
        text = next(formula[name] for name in _GROUPS if formula[name] is not None)
        found += re.split(r"\\\\", text) if formula["lines"] is not None else [text]
    return list(dict.fromkeys(text.strip() for text in found if text.strip()))


def may_equal(expression: str, reference: str) -> bool:
    """Whether an expression is worth comparing with a reference answer, which takes milliseconds of sympy.

    Names alone, such as ``x``, ``f(x)`` or ``\\triangle ABC``, equal only an answer that has their letters.
    """
    if not _NAMES.fullmatch(expression):
        return True
    letters = set(re.findall("[a-z]", _COMMAND.sub("", expression).lower()))
    return letters <= set(reference.lower())


def _bare(text: str) -> str:
    """A text without what only sets type: spaces, braces, a unit, money and percent signs, brackets around it all."""
    text = _UNIT.sub("", text.strip(" .,;:?"))
    text = re.sub(r"\\?[$%]|°|\\,|&|\s", "", _WORDS.sub(r"\1", text))
    text = _SINGLE.sub(r"\1", text.replace(r"\{", "(").replace(r"\}", ")"))
    text = _FRACTION.sub(lambda found: "/".join(_operand(found[i] or found[i + 1]) for i in (1, 3)), text)
    text = _THOUSANDS.sub("", _ORDINAL.sub("", text))
    while text.startswith("(") and text.endswith(")") and _encloses(text):
        text = text[1:-1]
    return text.strip(".,;:?")


def _operand(text: str) -> str:
    return text if text.isalnum() else f"({text})"


def _encloses(text: str) -> bool:
    """Whether the first bracket of a text closes with its last."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return place == len(text) - 1
    return False


def _forms(text: str) -> tuple[str, str]:
    """A text without what only sets type, and the last side of it if it is an equation."""
    spelled = tidy(text) or text
    return _bare(spelled), _bare(_EQUALS.split(spelled)[-1])


@lru_cache(_MOST_KNOWN)
def _shown(question: str) -> frozenset[str]:
    """Forms of all expressions of a question, of sides of equations, and of the letter and text of options (A) 12."""
    texts = expressions(question)
    spelled = [tidy(text) or text for text in texts]
    pieces = [_WORDS.sub(r"\1", tidy(piece) or "").strip() for text in texts for piece in _GAP.split(text)]
    options = [part for piece in pieces if (option := _OPTION.match(piece)) for part in (option[0], *option.groups())]
    sides = [side for text in spelled for side in _EQUALS.split(text)]
    return frozenset(form for text in (*spelled, *sides, *options) if (form := _bare(text)))


def copied(answer: str, reference: str, question: str) -> bool:
    """Whether an answer is, as text, an expression of the question, while the reference answer is none.

    Spaces, brackets around the whole, a unit, and a name with an equals sign before it make no difference. An answer
    that states anything else beside the expression (``3 + 4 = 7``) is no copy, and neither is the letter of a choice.
    """
    shown = _shown(question)
    for right in map(_forms, map(without_tolerance, alternatives(reference))):
        if re.fullmatch("[A-Z]", right[0]) or shown.intersection(right):
            return False
    spelled = tidy(answer) or answer
    sides = [_bare(side) for side in _EQUALS.split(spelled)]
    return _bare(spelled) in shown or all(side in shown or (_NAME.fullmatch(side) and len(sides) > 1) for side in sides)
