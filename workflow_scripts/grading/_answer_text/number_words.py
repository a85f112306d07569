"""Numbers in English words: eighteen, twenty-one, one hundred and five, negative three, one point five, two dozen."""

import re
from fractions import Fraction
from itertools import takewhile

from workflow_scripts.grading._answer_text.units import NUMBER_WORDS, is_unit, unit

_ONES = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16,
    "seventeen": 17, "eighteen": 18, "nineteen": 19,
}  # fmt: skip
_TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
SMALL = (*_ONES, *_TENS)
MULTIPLIERS = NUMBER_WORDS | {"dozen": 12, "lakh": 10**5, "crore": 10**7}
_SCALES = {word: value for word, value in NUMBER_WORDS.items() if value > 100}


def _below_hundred(words: list[str], at: int) -> tuple[int, int] | None:
    """The value of the number below 100 that begins at a place in a list of words, and where it ends."""
    word = words[at] if at < len(words) else ""
    if word in _ONES:
        return _ONES[word], at + 1
    if word not in _TENS:
        return None
    after = _ONES.get(words[at + 1], 0) if at + 1 < len(words) else 0
    return (_TENS[word] + after, at + 2) if 0 < after < 10 else (_TENS[word], at + 1)


def _after_and(words: list[str], at: int) -> int:
    return at + 1 if words[at : at + 1] == ["and"] else at


def _below_thousand(words: list[str], at: int) -> tuple[int, int] | None:
    """Three hundred and five; also twelve hundred, and a hundred."""
    leading = (1, at + 1) if words[at : at + 1] in (["a"], ["one"]) else _below_hundred(words, at)
    if leading is None:
        return None
    value, end = leading
    if words[end : end + 1] == ["hundred"] and value:
        value, end = 100 * value, end + 1
        if rest := _below_hundred(words, _after_and(words, end)):
            value, end = value + rest[0], rest[1]
    elif words[at] == "a" and words[end : end + 1] not in [[word] for word in (*_SCALES, "dozen")]:
        return None
    return value, end


def leading_number(text: str) -> tuple[Fraction, str] | None:
    """The number that a text in words begins with, and the words after it; None if it does not begin with one."""
    words = re.findall(r"[a-z]+|[^\sa-z]", re.sub(r"(?<=[a-z])-(?=[a-z])", " ", text.lower()))
    negative = words[:1] in (["negative"], ["minus"])
    at, total, scale = int(negative), 0, 10**15
    for half in (["half"], ["a", "half"]):
        if words[at : at + len(half)] == half:
            return Fraction(-1 if negative else 1, 2), " ".join(words[at + len(half) :])
    part = _below_thousand(words, at)
    if part is None:
        return None
    while part:
        value, at = part
        size = _SCALES.get(words[at], 1) if at < len(words) else 1
        if size >= scale:
            return None  # two thousand three million
        total, scale = total + value * size, size
        if size == 1:
            break
        at += 1
        part = _below_thousand(words, _after_and(words, at))
    found, at = _fraction(Fraction(total), words, at)
    if words[at : at + 1] in (["dozen"], ["dozens"]):
        found, at = found * 12, at + 1
    return -found if negative else found, " ".join(words[at:])


def _fraction(whole: Fraction, words: list[str], at: int) -> tuple[Fraction, int]:
    """A whole number with what may follow it: point five, and a half; one half."""
    if words[at : at + 1] == ["point"]:
        digits = [str(_ONES[word]) for word in takewhile(lambda word: _ONES.get(word, 10) < 10, words[at + 1 :])]
        if digits:
            return whole + Fraction(int("".join(digits)), 10 ** len(digits)), at + 1 + len(digits)
    if words[at : at + 3] in (["and", "a", "half"], ["and", "one", "half"]):
        return whole + Fraction(1, 2), at + 3
    if whole == 1 and words[at : at + 1] == ["half"]:
        return Fraction(1, 2), at + 1
    return whole, at


_PARTS = {"half": 2, "halve": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
          "eighth": 8, "ninth": 9, "tenth": 10, "twelfth": 12}  # fmt: skip


def number_in_words(text: str) -> tuple[Fraction, str] | None:
    """The number that a whole text in words says, with the unit of measure or "" for what is counted.

    One half and two thirds are numbers too. None: the text is no number in words, or more than one.
    """
    found = leading_number(text) if text[:1].isalpha() else None
    if found is None:
        return None
    value, after = found
    if after.removesuffix("s") in _PARTS and value:
        return value / _PARTS[after.removesuffix("s")], ""
    if after.startswith(("of ", "point", "and ", "or ")) or not is_unit(after):
        return None
    return value, unit(after)
