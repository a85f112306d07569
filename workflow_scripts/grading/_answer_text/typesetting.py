r"""TeX that only sets type, or sets it in an old way, in the plain spelling that the rest of the grader reads.

Fonts and colours around mathematics, formulas inside \text, units of siunitx, infix \over and \choose, matrices in an
array. Text in, text out.
"""

import re

_INNER = r"(?:\\[\s\S]|[^{}\\]|\{(?:\\[\s\S]|[^{}\\]|\{(?:\\[\s\S]|[^{}\\]|\{(?:\\[\s\S]|[^{}\\])*+\})*+\})*+\})*+"
_FONT = re.compile(
    r"\\(mathbf|boldsymbol|bm|pmb|bold|mathit|mathnormal|ensuremath|underline|emph|textbf|textit|text|textrm|textnormal"
    rf"|mathrm|mathsf|mathtt|mbox|hbox)\s*\{{({_INNER})\}}"
)
_FONTS_OF_LETTERS = {"mathbf", "boldsymbol", "bm", "pmb", "mathit", "mathnormal", "ensuremath"}  # not of units or words
_FORMULA = re.compile(r"\\[A-Za-z{]|[\^_+=]")
_OPERATION = re.compile(r"\\[A-Za-z{]|[\^_+=*/!-]")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}|(?<![A-Za-z])or(?![A-Za-z])")
_TEXT = re.compile(rf"\\(?:text(?:bf|it|rm|normal|sf|tt|up)?|mbox|hbox)\s*\{{((?=[^{{}}]*\$){_INNER})\}}")
_MOST_WRAPPERS = 12


def _has_words(text: str) -> bool:
    return bool(_WORD.search(re.sub(r"\\(?:text|begin|end|color|textcolor)\s*\{[^{}]*\}", "", text)))


def _unwrapped(found: re.Match[str]) -> str:
    """A formula without the font around it; words, letters and units keep theirs."""
    font, inner = found[1], found[2]
    whole = not found.string[: found.start()].strip(" $") and not found.string[found.end() :].strip(" $.")
    of_letters = font in _FONTS_OF_LETTERS
    if not (whole or of_letters) or _has_words(inner) or not (_OPERATION if of_letters else _FORMULA).search(inner):
        return found[0]
    return inner if whole else f"{{{inner}}}"


def _formulas(found: re.Match[str]) -> str:
    r"""\text{$x$ or $y$} as x \text{ or } y."""
    pieces = re.split(r"(?<!\\)\$", found[1])
    if len(pieces) % 2 == 0 or any(_has_words(piece) for piece in pieces[1::2]):
        return found[0]  # signs of money
    return "".join(
        f" {piece} " if place % 2 or not piece.strip() else f"\\text{{{piece}}}" for place, piece in enumerate(pieces)
    )


def _enclosing(text: str, at: int) -> tuple[int, int]:
    """Where the group around a place begins and ends, its brackets left out."""
    start, end, depth = at, at, 0
    while start > 0 and not (text[start - 1] in "$&" or text[:start].endswith("\\\\")):
        depth += (text[start - 1] in "}])") - (text[start - 1] in "{[(")
        if depth < 0:
            break
        start -= 1
    depth = 0
    while end < len(text) and not (text[end] in "$&" or text.startswith(("\\\\", "\\}"), end)):
        depth += (text[end] in "{[(") - (text[end] in "}])")
        if depth < 0:
            break
        end += 1
    return start, end


_INFIX = re.compile(r"\\(over|choose)(?![A-Za-z])\s*")


def infix(text: str) -> str:
    r"""{1 \over 2} as \frac{1}{2}, {7 \choose 3} as \binom{7}{3}."""
    for _ in range(_MOST_WRAPPERS):
        found = _INFIX.search(text)
        if not found:
            break
        start, end = _enclosing(text, found.start())
        end = max(end, found.end())
        name = "frac" if found[1] == "over" else "binom"
        spelled = f"\\{name}{{{text[start : found.start()].strip()}}}{{{text[found.end() : end].strip()}}}"
        before, after = text[:start], text[end:]
        if before.endswith("{") and after.startswith("}") and re.search(r"(?:^|[\d\s(\[{=,$+\-])$", before[:-1]):
            before, after = before[:-1], after[1:]  # 2{1 \over 2} is a mixed number
        text = before + spelled + after
    return text


_REWRITES = [
    (re.compile(pattern), spelling)
    for pattern, spelling in (
        # siunitx
        (r"\\(?:SI|qty)\s*(?:\[[^\[\]]*\])?\s*\{([^{}]*)\}\s*\{((?:[^{}]|\{[^{}]*\})*)\}", r"\1 \\si{\2}"),
        (r"\\(?:celsius|degreeCelsius)(?![A-Za-z])", r"°\\text{C}"),
        (r"\\ohm(?![A-Za-z])", r"\\Omega "),
        (r"(?<=.)\\(?:mathrm|text)\s*\{\s*\\[dt]?frac\s*\{([A-Za-z ]+)\}\s*\{([A-Za-z ^0-9]+)\}\s*\}",
         r"\\text{\1/(\2)}"),
        # fonts and colours
        (r"\\fcolorbox\s*\{[^{}]*\}\s*\{[^{}]*\}", ""),
        (r"\\(?:text|math)?color(?:box)?\s*(?:\[[^\[\]]*\])?\s*\{[^{}]*\}", ""),
        (r"\{\s*\\(?:rm|sf|tt)(?![A-Za-z])\s*([A-Za-z][A-Za-z ./^0-9-]*)\}", r"\\text{\1}"),
        (r"\\(?:scriptstyle|scriptscriptstyle|bfseries|itshape|boldmath|normalfont|sl|em|strut|mathstrut|relax|allowbreak"
         r"|nolimits|nobreak|tiny|footnotesize|scriptsize)(?![A-Za-z])", ""),
        (r"(?<=.)\\(?:mathbf|boldsymbol|bm|pmb|mathit)\s*\{\s*([A-Z])\s*\}"
         r"|\\(?:mathbf|boldsymbol|bm|pmb|mathit)\s*\{\s*([A-Z])\s*\}(?=\s*(?:[-+=^_*/(]|\\(?:mathbf|boldsymbol|bm|cdot|times)))",
         r"\1\2"),
        (r"\\(?:nice|s|x|flat)frac(?![A-Za-z])", r"\\frac"),
        # matrices
        (r"\\(?:hline|smallskip|medskip)(?![A-Za-z])", ""),
        (r"\\(?:cr|tabularnewline|newline)(?![A-Za-z])", r"\\\\"),
        (r"\\begin\s*\{([pbvBV]?(?:small)?matrix)\*\}(?:\[[a-z]\])?", r"\\begin{\1}"),
        (r"\\end\s*\{([pbvBV]?(?:small)?matrix)\*\}", r"\\end{\1}"),
        (r"\\(begin|end)\s*\{(?:B|small|[pbB]small)matrix\}", r"\\\1{matrix}"),
        (r"\\(?:pmatrix|bmatrix|matrix)\s*\{(" + _INNER + r")\}", r"\\begin{pmatrix}\1\\end{pmatrix}"),
        (r"\\begin\s*\{array\}\s*(?:\[[a-z]\])?\s*\{(?:[^{}]|\{[^{}]*\})*\}", r"\\begin{matrix}"),
        (r"\\end\s*\{array\}", r"\\end{matrix}"),
        (r"(?:\\left\s*)?(?:\||\\[lr]?vert(?![A-Za-z]))\s*\\begin\s*\{matrix\}((?:(?!\\begin|\\end).)*)"
         r"\\end\s*\{matrix\}\s*(?:\\right\s*)?(?:\||\\[lr]?vert(?![A-Za-z]))", r"\\begin{vmatrix}\1\\end{vmatrix}"),
        # a power, an option letter without its opening parenthesis, nothing as the base of an exponent
        (r"(?<=[\w)\]}])(\s?)\*\*\1(?=[-\w\\({])", "^"),
        (r"^((?:\\text(?:bf)?\s*\{)?\s*)([A-J])\s*\)", r"\1(\2)"),
        (r"\\(?:text|mathrm)\s*\{\s*\}(?=\s*[\^°])|(?<!\\)\{\s*\}(?=\s*[\^°])|(?<=[\d}])(?<!\\)\{\s*\}", ""),
    )
]  # fmt: skip
_SI = re.compile(r"\\(?:si|unit)\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_SI_MACROS = {"per": "/", "squared": "^2", "cubed": "^3", "percent": "percent"}


def _si_unit(found: re.Match[str]) -> str:
    r"""\meter\per\second as \text{meter / second}."""
    words = re.sub(r"\\([A-Za-z]+)", lambda macro: f" {_SI_MACROS.get(macro[1], macro[1])} ", found[1])
    words = re.sub(r"\b(square|cubic|kilo|mega|giga|milli|micro|nano|centi)\s+", r"\1", words)
    words = re.sub(r"square(?=[a-z])", "square ", re.sub(r"cubic(?=[a-z])", "cubic ", words))
    return f" \\text{{{words.replace('.', ' ').replace('{', '').replace('}', '')}}}"


def plain(text: str) -> str:
    """A text without its fonts and colours, in today's commands."""
    for _ in range(_MOST_WRAPPERS):
        changed = _FONT.sub(_unwrapped, _TEXT.sub(_formulas, text))
        if changed == text:
            break
        text = changed
    for pattern, spelling in _REWRITES:
        text = pattern.sub(spelling, text)
    return infix(_SI.sub(_si_unit, text))
