"""Grader for answers that are one number: compared exactly, as fractions, never as floats.

Where the answer is looked for: after the last ``####``; if there is none, in the last balanced ``\\boxed{}``; if there
is none, after the last "answer is". The first of these that occurs decides; a number elsewhere is no answer.
A unit in words may follow the number, money and percent signs do not count (50% is 50), a final full stop neither.
Every step is linear in the length of the completion, and a number has at most 100 digits and a two-digit exponent.
"""

import re
import unicodedata
from fractions import Fraction

from workflow_scripts.grading import Verdict
from workflow_scripts.grading._latex import last_box

_MOST_CHARACTERS = 240  # of the stated answer, unit included; what is longer is text, not a number
_MARKER = re.compile(r"(?<!#)####(?!#)")
_PHRASE = re.compile(r"\banswer\s{1,4}is\b", re.IGNORECASE)
_BRACES = re.compile(r"\\boxed\s{0,4}\{|\\[{}]|[{}]")
_THOUSANDS = re.compile(r"(?<=\d)(?:\\,|\{,\}|[\u00a0\u2009\u202f])(?=\d{3}(?!\d))", re.ASCII)
_FRACTION = re.compile(r"\\[dt]?frac\s?\{(-?\d+)\}\s?\{(\d+)\}", re.ASCII)
_WORDING = re.compile(r"\\(?:text|mathrm|mbox)\s?\{([^{}]*)\}")
_SIGNS = re.compile(r"\\[$%()\[\]!,;: ]|[$%*€£¥]|\\(?:quad|displaystyle)\b")
_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,100}(?!\d))(?:\.\d{1,100}(?!\d))?|\.\d{1,100}(?!\d)"
_NUMBER = re.compile(
    rf"""(?P<sign>[-+]?)\s?(?:(?P<whole>\d{{1,100}})\s(?=\d+/))?
    (?P<number>{_UNSIGNED})(?:[eE](?P<exponent>[-+]?\d{{1,2}})(?!\d))?
    (?:\s?/\s?(?P<denominator>\d{{1,100}}(?!\d)))?
    (?P<unit>[^0-9+*/=<>^_,;:\\{{}}()\[\]|&-]*)""",
    re.ASCII | re.VERBOSE,
)
_NO_UNIT = re.compile(
    r"\b(?:and|or|to|of|by|x|times|plus|minus|over|half|quarter|dozen|hundred|thousand|million|billion|trillion)s?\b"
)


def _plain(text: str) -> str:
    """One spelling for every way to write a number; superscripts stay apart (10² is not 102)."""
    spelled = []
    for character in text:
        kind = unicodedata.decomposition(character)
        if kind.startswith("<fraction>"):
            spelled.append(" " + unicodedata.normalize("NFKC", character))
        elif kind.startswith(("<super>", "<sub>", "<circle>")):
            spelled.append("^" + character)
        else:
            spelled.append(character)
    text = _THOUSANDS.sub(",", "".join(spelled))
    text = unicodedata.normalize("NFKC", text).replace("\u2212", "-").replace("\u2044", "/")
    text = _SIGNS.sub("", _WORDING.sub(r" \1", _FRACTION.sub(r" \1/\2", text)))
    return text.strip()


def _value(text: str) -> Fraction | None:
    """The number that `text` is, or None if it is anything but one number and perhaps a unit."""
    found = _NUMBER.fullmatch(_plain(text[:_MOST_CHARACTERS])) if len(text) <= _MOST_CHARACTERS else None
    if not found or _NO_UNIT.search(found["unit"].lower()) or "." in found["unit"].rstrip(". "):
        return None
    value = Fraction(found["number"].replace(",", "")) * Fraction(10) ** int(found["exponent"] or 0)
    if found["denominator"]:
        if not int(found["denominator"]):
            return None
        value /= int(found["denominator"])
    value += int(found["whole"] or 0)
    return -value if found["sign"] == "-" else value


def _first_line(text: str) -> str:
    return text[: _MOST_CHARACTERS * 2].strip().split("\n", 1)[0].strip()


def _stated_answer(completion: str) -> tuple[str | None, bool]:
    """The text in the answer's place (None if there is no such place), and whether it runs to the very end."""
    for marker in reversed(list(_MARKER.finditer(completion))):
        line = _first_line(completion[marker.end() : marker.end() + 4 * _MOST_CHARACTERS])
        if not line[:1].isalpha():  # "#### Step 2" is a heading
            box = last_box(line, _BRACES)
            return line if box is None else box, completion.rstrip(" ").endswith(line)
    box = last_box(completion, _BRACES)
    if box is not None:
        return box, False
    for phrase in reversed(list(_PHRASE.finditer(completion))):
        rest = completion[phrase.end() : phrase.end() + 4 * _MOST_CHARACTERS].lstrip(" \t:*")
        sentence = re.split(r"\.(?!\d)", _first_line(rest), maxsplit=1)[0]
        return sentence, completion.endswith(sentence)
    return None, True


def grade(completion: str, answer: str, truncated: bool) -> Verdict:
    """Compare the number a completion states with the reference answer.

    truncated: the completion was cut at the token limit; a number that the cut may have shortened is no answer.
    A reference answer that is no number is matched by nothing (the gold audit drops such problems).
    """
    place, open_end = _stated_answer(completion)
    value = None if place is None or (truncated and open_end) else _value(place)
    if value is None:
        return Verdict("truncated" if truncated else "unparsed", None)
    return Verdict("correct" if value == _value(answer) else "wrong", str(value))


def stated(answer: str) -> str:
    """A completion that states `answer` in the form asked for."""
    return f"#### {answer}"
