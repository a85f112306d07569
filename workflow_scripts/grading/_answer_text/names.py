r"""What the left side of an equation may be for its right side to be the answer: the name of a quantity.

x, a_{10}, f(3), P(A), E[X], AB, |AB|, \angle ABC, words; and what problems ask for, sums, products and quotients of
different names: m+n, xy, \frac{m}{n}. Not -x, x+x, \sqrt{x}, |x|, \log x, \sin x: their right side is no x.
"""

import re

from workflow_scripts.grading._answer_text.units import alters

_GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|phi|chi|psi|omega"
    "|Gamma|Delta|Theta|Lambda|Sigma|Phi|Omega|ell|pi(?=[_(])"
)
_SUFFIX = r"'*(?:_(?:\{(?:[^{}]|\{[^{}]*\})*\}|\\?\w+))?'*(?:\^\{?(?:-1|\\prime)\}?(?=\s*\())?"
_CALL = r"(?:\s*(?:\((?:[^()]|\([^()]*\))*\)|\[(?:[^\[\]]|\[[^\[\]]*\])*\]))?"
_ATOM = re.compile(
    r"(?:\\text\{(?P<text>[^{}]*)\}"
    r"|(?P<word>[A-Za-z]{4,}|[A-Z][a-z]{2,}|\\(?:max|min|deg|dim|det|Pr|gcd|lcm|rank)(?![A-Za-z]))"
    r"|m?\\(?:angle|triangle)\s*[A-Z]{1,4}"
    r"|\\(?:overline|overrightarrow|vec|hat|bar|tilde|mathbf)\s*\{?[A-Za-z]{1,3}\}?"
    r"|\|\s*(?:[A-Z]{2}|\\(?:overline|overrightarrow|vec)\s*\{[A-Za-z]{1,2}\})\s*\||\[[A-Z]{3,6}\]"
    rf"|(?P<letter>\\math(?:bb|cal|scr|frak)\s*\{{?\s*[A-Z]\s*\}}?|[A-Z]{{2,4}}(?![a-z])|[A-Za-z]|\\(?:{_GREEK})(?![A-Za-z])))"
    rf"(?P<suffix>{_SUFFIX})(?P<call>{_CALL})°?"
)
_BETWEEN = re.compile(r"\s*([+\-/*,]|\\cdot(?![A-Za-z]))?\s*")
_PART = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_QUOTIENT = re.compile(rf"\\frac\s*{_PART}\s*{_PART}")
_DERIVATIVE = re.compile(
    r"\\frac\s*\{\s*d(?:\^\{?\d\}?)?\s*[A-Za-z]\s*\}\s*\{\s*d[A-Za-z](?:\^\{?\d\}?)?\s*\}|d[A-Za-z]\s*/\s*d[A-Za-z]"
)
_ALWAYS_CALLED = set("fghpuvwFGHPQTVE\\")


def _is_call(letter: str, suffix: str, argument: str) -> bool:
    """f(x+1), x(0), a_n(t); not x(x-1), a(b+c)."""
    if letter[:1] in _ALWAYS_CALLED or suffix:
        return letter not in argument
    if re.search(r"\\c[au]p(?![A-Za-z])", argument):
        return True  # n(A \cup B)
    return bool(re.fullmatch(r"\s*(?:-?\d+|[A-Za-z])\s*", argument)) and letter != argument.strip()


def names_quantity(text: str) -> bool:
    """Whether the left side of an equation only names what its right side gives."""
    text = text.strip()
    if text.startswith("(") and text.endswith(")") and not re.search("[()]", text[1:-1]):
        text = text[1:-1].strip()  # (x, y)
    text = re.sub(r"^\(\s*([a-zA-Z])\s*(?:\\circ|°|[+\-]|\\cdot)\s*([a-zA-Z])\s*\)(?=\s*\()", "f", text)
    if _DERIVATIVE.fullmatch(text):
        return True
    text = _QUOTIENT.sub(r"\1/\2", text)
    named: list[str] = []
    at, operator = 0, ""
    while at < len(text):
        atom = _ATOM.match(text, at)
        if atom is None or alters(atom["text"] or atom["word"] or ""):
            return False
        if atom["word"] and not re.search(r"^\\|[aeiouyAEIOUY]", atom["word"]):
            return False
        if atom["call"] and atom["letter"] and not _is_call(atom["letter"], atom["suffix"], atom["call"].strip()[1:-1]):
            return False
        named.append(re.sub(r"\s", "", atom[0]))
        between = _BETWEEN.match(text, atom.end())
        at, operator = (between.end(), between[1] or "") if between else (atom.end(), "")
    return bool(named) and not operator and len(set(named)) == len(named)
