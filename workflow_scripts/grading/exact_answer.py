"""Grader for answers that are one number, in digits or in words: compared exactly, as fractions, never as floats.

Where the answer is looked for: after the last closed thinking block if there is one; there after the last ``####``; if
there is none, in the last balanced ``\\boxed{}`` or ``<answer>`` tag; if there is none, after the last "answer is"
or "Answer:". The first of these that occurs decides; a number elsewhere is no answer, and neither is one in a thinking
block that does not end. In a box or tag, and after "answer is", a name (x = 18), a font, braces and a sentence
may stand around the number.
A unit in words may follow the number. A multiplier counts: 12K and 12 thousand are 12000, 2 dozen is 24. Money and
percent signs do not count (50% is 50), a final full stop neither. Words that change or doubt the number make it no
answer: 18 thirds, 18 squared, 18 or more, 18 wrong.
Every step is linear in the length of the completion, and a number has at most 100 digits and a two-digit exponent.
"""

import re
import unicodedata
from fractions import Fraction

from workflow_scripts.grading import Grade
from workflow_scripts.grading._answer_text.latex import tidy
from workflow_scripts.grading._answer_text.names import names_quantity
from workflow_scripts.grading._answer_text.number_words import MULTIPLIERS, SMALL, leading_number
from workflow_scripts.grading._answer_text.place import (
    after_markers,
    after_thinking,
    announced,
    ends_open,
    first_line,
    goes_on,
    in_boxes,
)
from workflow_scripts.grading._answer_text.sentences import value_in
from workflow_scripts.grading._answer_text.units import is_unit, measure, unit

REWARD_VERSION = 3

_MOST_CHARACTERS = 240  # of the stated answer, unit included; what is longer is text, not a number
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
    (?P<unit>(?:\s?/\s?(?=[a-z]{{3}}))?(?:[^0-9+*/=<>^_,;:\\{{}}()\[\]|&-]
      |(?<=[a-z][a-z])[/-](?=[a-z])|(?<=[\d\s][kmb])/(?=[a-z]{{3}})|(?<=\bm)/(?=s\b|min\b|h\b)
      |(?<=\s[a-z])-(?=[a-z]{{3}})|(?<=[a-z])\^-?[1-3](?!\d))*)""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_SUFFIX = re.compile(
    rf"\s?(?:(?P<word>{'|'.join(MULTIPLIERS)})s?|(?P<thousand>k)|(?P<million>m(?-i:(?<=M)M?)|mn|mln|mio)"
    r"|(?P<billion>b(?-i:(?<=B))|bn)|(?P<trillion>^(?-i:T)))(?![a-z]|-[a-z])",
    re.IGNORECASE,
)
_FRACTION_NOUN = (
    r"third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|\w+teenth|\w+tieth|hundredth|thousandth"
    r"|[mbtr]+illionth"
)
_REJECTED = "wrong|incorrect|false|invalid|inverted|rejected|mistake|error|bogus|questionable|dubious|doubtful"
_NO_UNIT = re.compile(
    # other numbers, and what makes another number of the one before it
    rf"\b(?:{'|'.join(SMALL[1:])}|(?:{'|'.join(MULTIPLIERS)}|half|quarter)s?|halves|(?:{_FRACTION_NOUN})s"
    r"|tens|score|gross|mill?|bil|trn?|tn|thou|grand|\w+illions?|point|x|pi|infinity|and|or|to|by|times|plus|minus|over"
    r"|divided|multiplied|negative|factorial|reciprocal|inverse|halved|doubled|tripled|mod|modulo|remainder|sqrt|log"
    r"|(?:below|under)\szero"
    # doubts, and signs that the number is only a try
    r"|not|nope|never|no|maybe|perhaps|probably|possibly|unless|except|if|but|nor|neither|either|instead|isn|too|guess"
    r"|unsure|uncertain|mistaken|impossible|unknown|undefined|seems|hmm|oops|sorry|wait|actually|cannot|kk)\b"
    r"|\wn['’]t\b|\b(?:is|was|are|does|did|ca|wo|would|could)nt\b"
    # 18 third is no number, 18 third graders are 18; so with 18 wrong and 18 wrong answers
    rf"|\b(?:{_FRACTION_NOUN}|{_REJECTED}|double|triple|root|power)\b(?![\s-](?:grade\s)?[a-z]{{3,}}[a-rt-z]s\b)"
    r"|^\s?(?:squared|cubed|raised)\b|[π√∞∛ⅈ‰半十百千万萬亿億倍]"
)
_MONEY = re.compile(r"[$€£]|\b(?:dollar|euro|pound)s?\b", re.IGNORECASE)
_MILLIONS = re.compile(r"(\s?[mb])(?![a-z])")
_MINUS = re.compile(r"^(?:negative|minus)\s(?=[\d.])", re.IGNORECASE)
_FOR_ONE = re.compile(r"\b(?:for|in|per|each|every|at|on|with)\s(?:just\s|only\s)?one\b")
_LONE_LETTER = re.compile(r"\s?([a-z])\W*", re.IGNORECASE)


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
    return _MINUS.sub("-", re.sub(r"\s+", " ", text).strip())


def _in_words(text: str) -> tuple[Fraction, str] | None:
    """The number in words that `text` is, and the words for what is counted."""
    found = leading_number(text.rstrip(". ")) if text[:1].isalpha() else None
    if found is None or found[1].startswith(("of ", "point")) or not re.fullmatch(r"[a-z ]*(?:/ [a-z ]+)?", found[1]):
        return None
    return found if is_unit(found[1]) else None


def _multiplied(unit: str) -> tuple[int, str]:
    """The factor that words after a number begin with (12K dollars, 2 hundred thousand), and the words after it."""
    factor = 1
    while found := _SUFFIX.match(unit):
        name = next(name for name, text in found.groupdict().items() if text)
        factor *= MULTIPLIERS[found["word"].lower() if name == "word" else name]
        unit = unit[found.end() :]
    return factor, unit


def _keeps_the_number(unit: str) -> bool:
    """Whether words after a number leave it as it is."""
    words = _FOR_ONE.sub(" ", unit.lower())
    letter = _LONE_LETTER.fullmatch(unit)
    return not _NO_UNIT.search(words) and not (letter and measure(letter[1]) is None)


def _value(text: str) -> Fraction | None:
    """The number that `text` is, or None if it is anything but one number and perhaps a unit."""
    if len(text) > _MOST_CHARACTERS:
        return None
    plain = _plain(text)
    found = _NUMBER.fullmatch(plain)
    if not found:
        worded = _in_words(plain)
        return worded and worded[0]
    unit = _MILLIONS.sub(lambda m: m[0].upper(), found["unit"], count=1) if _MONEY.search(text) else found["unit"]
    factor, unit = _multiplied(unit)
    if not _keeps_the_number(unit) or "." in unit.rstrip(". "):
        return None
    value = Fraction(found["number"].replace(",", "")) * Fraction(10) ** int(found["exponent"] or 0)
    if found["denominator"]:
        if not int(found["denominator"]):
            return None
        value /= int(found["denominator"])
    value = (value + int(found["whole"] or 0)) * factor
    return -value if found["sign"] == "-" else value


_FACTORIAL = re.compile(r"\d\s*!")
_POWER = re.compile(r"\^\s*\{\s*(-?\d)\s*\}")
_FRACTION_IN_TEX = re.compile(r"\\frac\s*(?:\{\s*(\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))", re.ASCII)


def _in_box(text: str) -> Fraction | None:
    """The number in what a box holds: perhaps with a name, a font, a unit in TeX or a sentence around it."""
    if _FACTORIAL.search(text):
        return None
    value = _value(text)
    plain = tidy(text) if value is None else None
    if plain is None:
        return value
    plain = value_in(plain)
    name, equals, after = plain.partition("=")
    if equals and names_quantity(name):
        plain = after.strip()
    plain = _FRACTION_IN_TEX.sub(lambda m: f" {m[1] or m[2]}/{m[3] or m[4]} ", _POWER.sub(r"^\1", plain))
    return _value(plain.replace("°", " degrees ").strip())


def _is_heading(line: str, ends_completion: bool) -> bool:
    """Whether a line after #### is the heading of a step: it begins with a letter and is no number in words.

    "Two cases" is a heading where text follows it, and so many cases at the end of a completion.
    """
    if not line[:1].isalpha() or len(line) > _MOST_CHARACTERS:
        return line[:1].isalpha()
    plain = _plain(line)
    found = _in_words(plain)
    return plain[:1].isalpha() and (found is None or not (ends_completion or not found[1] or unit(found[1])))


def _stated_answer(completion: str) -> tuple[Fraction | None, bool]:
    """The number in the answer's place (None if there is none), and whether a cut leaves it no answer."""
    said, closed = after_thinking(completion)
    if said is None:
        return None, True
    for place in after_markers(said):
        line = first_line(said[place : place + 4 * _MOST_CHARACTERS], 2 * _MOST_CHARACTERS)
        if not _is_heading(line, ends_completion=said.rstrip().endswith(line)):
            held = in_boxes(line, _BRACES)
            number = _in_box(held[0]) if held else _value(line.partition("</answer>")[0])
            return number, said.rstrip(" ").endswith(line)
    if found := in_boxes(said, _BRACES):
        return _in_box(found[0]), ends_open(said, found[1]) or (not closed and goes_on(said[found[1] :]))
    sentence = announced(said)
    return (None, True) if sentence is None else (_in_box(sentence), said.endswith(sentence))


def grade(completion: str, answer: str, truncated: bool) -> Grade:
    """Compare the number a completion states with the reference answer.

    truncated: the completion was cut at the token limit; a number that the cut may have shortened is no answer.
    A reference answer that is no number is matched by nothing (the gold audit drops such problems).
    """
    value, open_end = _stated_answer(completion)
    if value is None or (truncated and open_end):
        return Grade("truncated" if truncated else "unparsed", None)
    return Grade("correct" if value == _value(answer) else "wrong", str(value))


def stated(answer: str) -> str:
    """A completion that states `answer` in the form asked for."""
    return f"#### {answer}"
