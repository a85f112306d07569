"""Where a completion states its answer, and one spelling for the many ways to type the same mathematics.

Text in, text out: every step is a linear pass, and what is too long or too deep to be an answer is refused here.
"""

import re
import unicodedata
from fractions import Fraction

from workflow_scripts.grading._answer_text.notation import combined, joined_digits, repeating, unescaped, written_out
from workflow_scripts.grading._answer_text.place import (
    FULL_STOPS,
    MOST_CHARACTERS,
    after_markers,
    after_thinking,
    announced,
    ends_open,
    first_line,
    goes_on,
    in_boxes,
)
from workflow_scripts.grading._answer_text.typesetting import plain

MOST_NESTED = 24


def stated_answer(completion: str) -> tuple[str | None, bool]:
    """The text in the answer's place (None if there is no such place), and whether a cut leaves it no answer.

    A cut may have shortened the answer, or have come before it: a box is an answer in a completion that was cut where
    it stands after the end of the thinking, or at the end of the text. (Where the prompt opened the thinking, a
    completion that was cut inside shows no tag, and its boxes are tries.)
    """
    said, closed = after_thinking(completion)
    if said is None:
        return None, True
    if found := in_boxes(said):
        return found[0], ends_open(said, found[1]) or (not closed and goes_on(said[found[1] :]))
    for place in after_markers(said):
        line = first_line(said[place : place + 2 * MOST_CHARACTERS])
        if not re.match(r"[A-Za-z]{2,}\s+\d", line):  # "#### Step 2" is a heading
            return line, said.rstrip(" ").endswith(line)
    sentence = announced(said)
    return sentence, sentence is None or said.endswith(sentence)


_NUMBER = re.compile(r"\s*\$?([-+]?)(\d{1,3}(?:,\d{3})+|\d{1,100})(\.\d{1,100})?\$?\s*", re.ASCII)


def plain_number(text: str) -> Fraction | None:
    """The value of a text that is a whole number or a decimal, perhaps with thousands commas; else None."""
    found = _NUMBER.fullmatch(text)
    return Fraction(found[1] + found[2].replace(",", "") + (found[3] or "")) if found else None


_GREEK = {
    chr(code): "\\" + name
    for names, start in (
        ("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho", 0x3B1),
        ("sigma tau upsilon phi chi psi omega", 0x3C3),
    )
    for code, name in enumerate(names.split(), start)
} | {"Δ": "\\Delta", "Γ": "\\Gamma", "Θ": "\\Theta", "Λ": "\\Lambda", "Σ": "\\Sigma", "Φ": "\\Phi", "Ω": "\\Omega"}
_SYMBOLS = {name: f"{command} " for name, command in _GREEK.items()} | {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "⁄": "/", "∕": "/", "÷": "/", "×": "\\cdot ", "·": "\\cdot ",
    "⋅": "\\cdot ", "∙": "\\cdot ", "∗": "\\cdot ", "≤": "\\le ", "≥": "\\ge ", "⩽": "\\le ", "⩾": "\\ge ",
    "≠": "\\ne ", "≈": "\\approx ", "∞": "\\infty ", "±": "\\pm ", "∓": "\\mp ", "∪": "\\cup ", "∩": "\\cap ",
    "∈": "\\in ", "∅": "\\emptyset ", "ℝ": "\\mathbb{R}", "∖": "\\setminus ", "⟨": "\\langle ", "⟩": "\\rangle ",
    "〈": "\\langle ", "〉": "\\rangle ", "√": "\\sqrt ", "°": "^\\circ ", "º": "^\\circ ", "∠": "\\angle ",
    "⌊": "\\lfloor ", "⌋": "\\rfloor ", "⌈": "\\lceil ", "⌉": "\\rceil ", "∨": "\\lor ", "∧": "\\land ", "′": "'",
    "’": "'", "‘": "'", "“": '"', "”": '"', "Å": "\\AA ", "∴": "\\therefore ", "⇒": "\\Rightarrow ", "→": "\\to ",
    "或": " or ", "和": " and ", "且": " and ", "、": ", ",
}  # fmt: skip


def _ascii(text: str) -> str:
    """LaTeX for characters that have a LaTeX name; superscripts stay exponents (10² is not 102)."""
    spelled: list[str] = []
    level = ""
    for character in re.sub(r"√\s?(\d{1,40})", r"\\sqrt{\1}", text):
        if character < "\x7f" or character in _SYMBOLS:
            spelled.append(_SYMBOLS.get(character, character if character >= " " else " "))
            level = ""
            continue
        kind = unicodedata.decomposition(character)
        normal = unicodedata.normalize("NFKC", character)
        normal = "".join(_SYMBOLS.get(c, c) for c in normal)
        if kind.startswith("<fraction>"):
            spelled.append(f" {normal}")
        elif kind.startswith(("<super>", "<sub>")):
            sign = "^" if kind.startswith("<super>") else "_"
            joined = level == sign  # x¹² is one exponent
            spelled[-1:] = [f"{spelled[-1][:-1]}{normal}}}"] if joined else [*spelled[-1:], f"{sign}{{{normal}}}"]
            level = sign
            continue
        elif unicodedata.category(character) not in ("Cc", "Cf"):
            spelled.append(normal if normal.strip() else "\\,")
        level = ""
    return "".join(spelled)


_WORDING = (
    r"\\(?:text(?:bf|it|rm|normal|sf|tt|up)?|mbox|hbox|mathrm|mathsf|mathit|mathtt|mathbf|boldsymbol|bm|operatorname\*?|emph"
    r"|underline)\s{0,4}"
)
_REWRITES = [
    (re.compile(pattern), spelling)
    for pattern, spelling in (
        (r"\\\\\s*\[[^\[\]]{0,12}\]", r"\\\\"),  # row spacing
        (r"(?<!\\)\\(?:left|right|[bB]igg?[lrm]?)(?![A-Za-z])\s*\.?", ""),
        (r"(?<!\\)\\(?:[;:>]|(?:quad|qquad|medspace|enspace|hfill)(?![A-Za-z]))", " "),
        (r"(?<!\\)\\(?:!|(?:displaystyle|textstyle|limits|rm|it|bf|sf|tt)(?![A-Za-z])|phantom\s*(?:\{[^{}]*\}|-))", ""),
        (r"(?<!\\)\\(?:[lL]arge|LARGE|[hH]uge|small|normalsize)(?![A-Za-z])", ""),
        (r"\\begin\s*\{(?:aligned|align\*?|equation\*?|gathered|split)\}((?:(?!\\\\|\\begin|\\end).)*)"
         r"\\end\s*\{(?:aligned|align\*?|equation\*?|gathered|split)\}", r"\1"),
        (r"(?<!\\)&(?=\s*=)(?!.*\\end)", ""),
        (r"\\hspace\*?\s*\{[^{}]*\}", r"\\,"),
        (r"(?<!\\)\\[()\[\]]", " "),
        (r"(?<!\\)\$", " "),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
        (r"\\(?:operatorname\*?|mathrm)\s*\{\s*(arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|sinh|cosh|tanh|ln|log"
         r"|exp|lcm|gcd|max|min|det)\s*\}", r"\\\1 "),
        (r"\\(?:mathrm|mathit|mathsf)\s*\{\s*([eid])\s*\}(?![A-Za-z])", r"\1"),
        (r"\\(?:mathbf|boldsymbol|bm)\s*\{\s*([a-z])\s*\}", r"\\vec{\1}"),
        (r"^\s*\\(?:therefore|implies|(?:Long)?[rR]ightarrow|to)(?![A-Za-z])", ""),
        (r"\\(?:checkmark|qed|blacksquare|square)(?![A-Za-z])\s*$", ""),
        (r"\\(?:varnothing|O|empty)(?![A-Za-z])", r"\\emptyset"),
        (r"\\(?:leq(?:slant|q)?|leqq)(?![A-Za-z])", r"\\le"),
        (r"\\(?:geq(?:slant|q)?|geqq)(?![A-Za-z])", r"\\ge"),
        (r"\\(?:neq|not\s*=)(?![A-Za-z])", r"\\ne"),
        (r"\\lt(?![A-Za-z])|<(?!=)", " < "),
        (r"\\gt(?![A-Za-z])|>(?!=)", " > "),
        (r"<=", r"\\le "),
        (r">=", r"\\ge "),
        (r"!=(?!=)", r"\\ne "),
        (r"\\(?:simeq|doteq|triangleq|equiv|coloneqq)(?![A-Za-z])", "="),
        (r"\\(?:lvert|rvert|vert|mid)(?![A-Za-z])", "|"),
        (r"\\lbrace(?![A-Za-z])", r"\\{"),
        (r"\\rbrace(?![A-Za-z])", r"\\}"),
        (r"\\lbrack(?![A-Za-z])", "["),
        (r"\\rbrack(?![A-Za-z])", "]"),
        (r"\\(?:times|ast|star)(?![A-Za-z])|\*{1,2}(?=[\w\\(])(?<=[\w)}\s]\*)", r"\\cdot "),
        (r"\\div(?![A-Za-z])", "/"),
        (r"\\colon(?![A-Za-z])", ":"),
        (r"\\(?:backslash|smallsetminus)(?![A-Za-z])", r"\\setminus"),
        (r"\\varepsilon(?![A-Za-z])", r"\\epsilon"),
        (r"\\var(theta|phi|rho|sigma)(?![A-Za-z])", r"\\\1"),
        (r"\\(?:lor|vee)(?![A-Za-z])", r"\\text{ or }"),
        (r"\\(?:land|wedge)(?![A-Za-z])", r"\\text{ and }"),
        (r"\\(?:degree|textdegree)(?![A-Za-z])|\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))", "°"),
        (r"\\%", "%"),
        (r"\\(?:pounds|euro)(?![A-Za-z])", "\\$"),
        (r"\\(?:smallmatrix|[pbB]?matrix)(?=\s*\{)", ""),
        (r"(?<=\d)(?:\{,\}|\\,)(?=\d{3}(?!\d))", ""),  # thousands
        (r"(?<!text)\{([,:])\}", r"\1"),
        (r"(?<!\\)\\[, ]|~", " "),
    )
]  # fmt: skip
_THIN = re.compile(r"(?<=\d),\s*\\!\s*(?=\d{3}(?!\d))")
_WORD = re.compile(_WORDING + r"\{")
_MOST_FORMATS = 6
_NESTED = re.compile(r"\\text\{\s*(?:\\text)?\s*\{([^{}]*)\}\s*\}")
_POWER_IN_TEXT = re.compile(r"(\\text\{[^{}]*\^)\s*\{\s*(-?\d)\s*\}")
_NUMBER_IN_TEXT = re.compile(r"^\\text\{\s*(-?\d[\d.,]*)\}(?=\s*(?:°|\\text\{\s*[A-Za-z]))")
_QUANTITY_IN_TEXT = re.compile(r"^\\text\{\s*(-?\d[\d.,]*)\s+([A-Za-z]+)\}(?=\s*\^)")
_SIGN_IN_TEXT = re.compile(r"\\text\{\s*(\\?[$€£]|[,:])\s*\}")
_GROUP = re.compile(r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+)(?<!\\)\}")
_LAST_STOP = re.compile(rf"[{FULL_STOPS}](?=[\s}}$]*$)")
_FACTORIAL = re.compile(r"[\w)}]!$")
_FUNCTIONS = re.compile(r"(?<![\\A-Za-z])(sqrt|pi|sin|cos|tan|cot|sec|csc|ln|log|arcsin|arccos|arctan|infinity|theta)"
                        r"(?![a-z])")  # fmt: skip


def tidy(text: str) -> str | None:
    """One spelling of an answer, or None for what cannot be one: too long, too deep, or with unbalanced braces."""
    if len(text) > MOST_CHARACTERS:
        return None
    text = _ascii(combined(unescaped(text)))
    text = plain(_THIN.sub("", _LAST_STOP.sub(".", text)))
    text = _WORD.sub(lambda m: m[0] if "math" in m[0] or "operator" in m[0] else r"\text{", text)
    for pattern, spelling in _REWRITES:
        text = pattern.sub(spelling, text)
    text = _WORD.sub(r"\\text{", text)
    for _ in range(_MOST_FORMATS):
        text, powers = _POWER_IN_TEXT.subn(r"\1\2", text)
        text, changed = _NESTED.subn(r"\\text{\1}", text)
        if not changed and not powers:
            break
    text = _QUANTITY_IN_TEXT.sub(r"\1 \\text{\2}", _NUMBER_IN_TEXT.sub(r"\1", text))
    text = _SIGN_IN_TEXT.sub(r"\1", re.sub(r"\\text\{\s*\}", " ", text))
    outside = re.split(r"(\\text\{[^{}]*\})", text)
    outside[::2] = [
        _FUNCTIONS.sub(lambda m: "\\infty " if m[1] == "infinity" else f"\\{m[1]} ", part) for part in outside[::2]
    ]
    text = re.sub(r"\s+", " ", "".join(outside)).strip(" *")
    text = written_out(joined_digits(repeating(text)))
    for _ in range(_MOST_FORMATS):
        text = re.sub(r"(?:\s*\\\\)+$", "", text)
        whole = _GROUP.fullmatch(text)
        if not whole:
            break
        text = whole[1].strip()
    while text[-1:] in (".", ",", ";", ":") or (text[-1:] == "!" and not _FACTORIAL.search(text)):
        text = text[:-1].rstrip()
    return text if _balanced(text) else None


def _balanced(text: str) -> bool:
    depth = deepest = braces = 0
    for bracket in re.finditer(r"\\?[{}]|[()\[\]]", text):
        step = 1 if bracket[0][-1] in "{([" else -1
        depth += step
        deepest = max(deepest, depth)
        if bracket[0] in "{}":
            braces += step
            if braces < 0:
                return False
    return depth == braces == 0 and deepest <= MOST_NESTED


def without_tolerance(answer: str) -> str:
    """A reference answer as a completion would say it."""
    return re.sub(r"\s*\\tolerance\s*\{[^{}]*\}", "", answer)
