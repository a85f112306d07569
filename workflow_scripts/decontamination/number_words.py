"""English number words as digits: "twelve", "twenty-five" and "two hundred and five" become 12, 25 and 205.

Only what is one number is joined: "five three" stays two numbers, and so does "two and five".
"""

import re

_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_VALUES = {word: value for value, word in enumerate(_SMALL)} | {word: 20 + 10 * i for i, word in enumerate(_TENS)}
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
NUMBER_WORDS = frozenset((*_VALUES, *_SCALES))

_DIGITS = r"[0-9]+(?:\.[0-9]+)?"
_ONE = f"(?:{'|'.join(sorted(NUMBER_WORDS, key=len, reverse=True))})"
# part of another word next to a letter, unless of a script without spaces; part of a LaTeX command after a backslash
_LETTER = r"[a-z\u00df-\u00f6\u00f8-\u0dff]"
_FIRST = rf"(?:(?:a|{_DIGITS})\s+(?={'|'.join(_SCALES)}))?"
_RUN = re.compile(rf"(?<!{_LETTER})(?<!\\){_FIRST}{_ONE}(?:(?:-|\s+(?:and\s+)?){_ONE})*(?!{_LETTER})")
_WORD = re.compile(rf"[a-z]+|{_DIGITS}")


def in_words(number: int) -> str:
    """A number from 0 to 999 in words."""
    if number >= 100:
        rest = f" and {in_words(number % 100)}" if number % 100 else ""
        return f"{_SMALL[number // 100]} hundred{rest}"
    if number < 20:
        return _SMALL[number]
    return _TENS[number // 10 - 2] + (f"-{_SMALL[number % 10]}" if number % 10 else "")


def with_digits(text: str) -> str:
    """The text, in lower case, with digits instead of number words."""
    return _RUN.sub(_digits, text)


def _digits(run: re.Match[str]) -> str:
    words: list[str] = _WORD.findall(run[0])
    numbers, at = [], 0
    while at < len(words):
        number, at = _leading_number(words, at)
        numbers.append(number)
    return f" {' '.join(numbers)} "


def _leading_number(words: list[str], at: int) -> tuple[str, int]:
    """The number that begins at a place of a run of number words, as digits, and where it ends; "and" is kept between
    two numbers."""
    if words[at] == "and":
        return "and", at + 1
    if words[at][0].isdigit():
        scale, end = 1, at + 1
        while end < len(words) and words[end] in _SCALES:
            scale, end = scale * _SCALES[words[end]], end + 1
        return _scaled(words[at], scale), end
    total, largest = 0, 10**15
    while (part := _below_thousand(words, at)) is not None:
        value, end = part
        scale = _SCALES.get(words[end], 1) if end < len(words) else 1
        if scale >= largest:
            break
        total, at, largest = total + value * scale, end + (scale > 1), scale
        following = at + 1 if words[at : at + 1] == ["and"] else at
        if scale == 1 or not _begins_number(words, following):
            break
        at = following
    return str(total), at


def _scaled(digits: str, scale: int) -> str:
    """2.5 and a million as 2500000; what stays no whole number keeps its digits after the point."""
    whole, _, rest = digits.partition(".")
    zeros = len(str(scale)) - 1
    moved, rest = whole + rest[:zeros].ljust(zeros, "0"), rest[zeros:].rstrip("0")
    return (moved.lstrip("0") or "0") + (f".{rest}" if rest else "")


def _begins_number(words: list[str], at: int) -> bool:
    return at < len(words) and (words[at] in _VALUES or words[at] == "hundred")


def _below_hundred(words: list[str], at: int) -> tuple[int, int] | None:
    if at >= len(words) or words[at] not in _VALUES:
        return None
    value = _VALUES[words[at]]
    unit = _VALUES.get(words[at + 1], 0) if value >= 20 and at + 1 < len(words) else 0
    return (value + unit, at + 2) if 0 < unit < 10 else (value, at + 1)


def _below_thousand(words: list[str], at: int) -> tuple[int, int] | None:
    """A number below 1000, or in hundreds as in "twelve hundred"; a scale word alone stands for one of it."""
    if at >= len(words):
        return None
    if words[at] == "a":
        value, end = 1, at + 1
    elif words[at] in _SCALES:
        value, end = 1, at
    else:
        below = _below_hundred(words, at)
        if below is None:
            return None
        value, end = below
    if words[end : end + 1] != ["hundred"] or value == 0:
        return value, end
    value, end = 100 * value, end + 1
    rest = _below_hundred(words, end + 1 if words[end : end + 1] == ["and"] else end)
    return (value + rest[0], rest[1]) if rest else (value, end)
