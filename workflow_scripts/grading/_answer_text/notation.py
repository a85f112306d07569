"""Ways to write a number or a conclusion that the rest of the grader reads in one spelling. Text in, text out.

Doubled backslashes, digits in groups, repeating decimals, signs of a conclusion, cis, quotients of units.
"""

import re

_RUNS = re.compile(r"\\+")


def unescaped(text: str) -> str:
    r"""Text in which every backslash is doubled, as in a JSON file, with single ones; a line break alone stays."""
    runs = _RUNS.findall(text)
    if not runs or any(len(run) % 2 for run in runs) or not re.search(r"\\\\(?:[A-Za-z]{2}|[{}()\[\]$%,])", text):
        return text
    return _RUNS.sub(lambda run: run[0][: len(run[0]) // 2], text)


_GROUPS = re.compile(r"(?<![\d.,/}^_\\A-Za-z])(?<!\d )(\d{1,3}(?: \d{3})++)(?! ?\d| ?/| ?\\frac)", re.ASCII)
_DECIMAL_GROUPS = re.compile(r"(?<=\d)(\.\d{3}(?: \d{3})++)(?! ?\d| ?/)", re.ASCII)
_OVERLINED = re.compile("((?:\\d[\u0304\u0305])+)")


def joined_digits(text: str) -> str:
    """1 000 000 as 1000000; other numbers side by side stay apart."""
    if " " not in text:
        return text
    for groups in (_DECIMAL_GROUPS, _GROUPS):
        text = groups.sub(lambda found: found[1].replace(" ", ""), text)
    return text


_DOTTED = re.compile(
    r"(?<![\d.])(\d*\.\d*)\\dot\s*(?:\{\s*(\d+)\s*\}|(\d))(?:(\d*)\s*\\dot\s*(?:\{\s*(\d)\s*\}|(\d)))?(?!\d)", re.ASCII
)
_IN_PARENTHESES = re.compile(r"^(-?\d+\.\d*|.*?(?<![\d.])\d*\.)\((\d{1,30})\)(?=\s*(?:\\?%|$))", re.ASCII)
_GOES_ON = re.compile(r"(?<![\d.])(\d*)\.(\d+)\s*(?:\\[lcd]?dots(?![A-Za-z])|\.{3,})", re.ASCII)
_MOST_DIGITS, _LEAST_FIGURES = 100, 6


def _continued(found: re.Match[str]) -> str:
    """0.1666... with its period overlined. Six figures and more without a period are a number that is cut there."""
    whole, digits = found.groups()
    for size in range(1, min(len(digits), _MOST_DIGITS) // 2 + 1):
        for start in range(len(digits) - max(3, 2 * size) + 1):
            if all(digits[i] == digits[i - size] for i in range(start + size, len(digits))):
                return f"{whole}.{digits[:start]}\\overline{{{digits[start : start + size]}}}"
    figures = (whole + digits).lstrip("0")
    return f"{whole}.{digits}" if len(figures) >= _LEAST_FIGURES else f"{whole}.{digits} \\ldots "


def repeating(text: str) -> str:
    r"""0.\dot{3}, 0.(3), 0.333... as 0.\overline{3}."""
    if "." not in text:
        return text
    text = _DOTTED.sub(lambda m: f"{m[1]}\\overline{{{m[2] or m[3]}{m[4] or ''}{m[5] or m[6] or ''}}}", text)
    return _GOES_ON.sub(_continued, _IN_PARENTHESES.sub(r"\1\\overline{\2}", text))


def combined(text: str) -> str:
    """Digits under a combining line or dot, as TeX."""
    if "\u0304" in text or "\u0305" in text:
        text = _OVERLINED.sub(lambda m: f"\\overline{{{re.sub('[^0-9]', '', m[1])}}}", text)
    return re.sub("(\\d)\u0307", r"\\dot{\1}", text) if "\u0307" in text else text


_GROUP = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_CIS = re.compile(
    r"(?:\\cis(?![A-Za-z])|\\text\{\s*cis\s*\}|(?<![A-Za-z\\])cis(?![A-Za-z]))\s*"
    rf"(\((?:[^()]|\([^()]*\))*\)°?|{_GROUP}|\\frac\s*{_GROUP}\s*{_GROUP}°?|-?\d*(?:\.\d+)?\s*(?:\\[A-Za-z]+|[A-Za-z])?°?)"
)
_SEGMENT = re.compile(r"^\\overline\s*\{\s*([A-Z]{2})\s*\}$")
_SET_MEMBERS = re.compile(r"(\\in\s*)\{([^{}\\]*)\}$")


def written_out(text: str) -> str:
    r"""cis x as \cos x + i \sin x, a segment by its ends, members of a set in braces that TeX shows."""
    if "cis" in text:
        text = _CIS.sub(lambda m: f"(\\cos {m[1]}+i \\sin {m[1]})" if m[1] else m[0], text)
    return _SEGMENT.sub(r"\1", _SET_MEMBERS.sub(r"\1\\{\2\\}", text))
