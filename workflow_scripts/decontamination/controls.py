"""Positive control: holdout problems, lightly edited, that the comparison must find.

The edits are fixed in form and position, so that a control never differs between runs. Each function returns the edited
text, or None where the edit cannot be expressed: a text of under 10 tokens has no word in 15 to replace and no tenth to
cut, one without a token has nothing to compare, and not every text has two sentences or a number.
"""

import re
import string

from workflow_scripts.decontamination.normalise import is_number, tokens
from workflow_scripts.decontamination.number_words import NUMBER_WORDS, in_words
from workflow_scripts.decontamination.symbols import is_symbol, with_symbols

_FEWEST_FOR_EDITS = 10
_EVERY = 15  # one word in 15
_FEWEST_MOVED = 4  # tokens of a sentence
_SWAPPED = str.maketrans(string.ascii_letters, string.ascii_uppercase + string.ascii_lowercase)
_REPLACEMENT = "zz"  # no word of any problem
_SENTENCE_END = re.compile(r"(?<=[.?!])\s+|(?<=[。？！।؟])\s*")
# after a word, and before the end of a word group: in prose, where a writer would choose words
_INTEGER = re.compile(r"(?<=[A-Za-z] )[1-9]\d{0,2}(?=\s|$|[.,?!](?!\d))", re.ASCII)
_WORD_BEFORE, _AFTER = re.compile(r"[a-z]+ $"), re.compile(r"[\s-]*(?:and\s+)?(?:\d|\\|([a-z]+))")


def spacing(text: str) -> str | None:
    """Case swapped, white space doubled, LaTeX added; the words are the same."""
    if not tokens(text):
        return None
    return r"\displaystyle " + re.sub(r"\s+", r" \\quad\n ", text.strip().translate(_SWAPPED))


def _places(parts: list[str]) -> list[int]:
    """Where the tokens are among tokens and symbols."""
    return [place for place, part in enumerate(parts) if not is_symbol(part)]


def words(text: str) -> str | None:
    """One word in 15 replaced (of 10 to 29 tokens: one word); numbers and symbols stay."""
    parts = with_symbols(text)
    places = _places(parts)
    count = max(1, len(places) // _EVERY)
    if len(places) < _FEWEST_FOR_EDITS or sum(not is_number(parts[place]) for place in places) < count:
        return None
    for i in range(count):
        middle = (2 * i + 1) * len(places) // (2 * count)
        near = sorted(range(len(places)), key=lambda nth: (abs(nth - middle), nth))
        chosen = (places[nth] for nth in near if not is_number(parts[places[nth]]))
        parts[next(place for place in chosen if parts[place] != _REPLACEMENT)] = _REPLACEMENT
    return " ".join(parts)


def clause(text: str) -> str | None:
    """A clause of at most a tenth of the tokens cut; without such a clause, a run of words of that length.

    What is cut holds no number: without one of its numbers it would be another problem.
    """
    parts = with_symbols(text)
    places = _places(parts)
    whole = [parts[place] for place in places]
    most = len(whole) // 10
    if len(whole) < _FEWEST_FOR_EDITS:
        return None

    def without(start: int, length: int) -> str | None:
        if any(map(is_number, whole[start : start + length])):
            return None
        cut = set(places[start : start + length])
        return " ".join(part for place, part in enumerate(parts) if place not in cut)

    position = 0
    for piece in re.split(r"(?<=[,.;:?!])\s", text):
        length = len(tokens(piece))
        if 0 < length <= most and (shorter := without(position, length)) is not None:
            return shorter
        position += length
    starts = sorted(range(len(whole) - most + 1), key=lambda start: (abs(2 * start + most - len(whole)), start))
    return next((shorter for start in starts if (shorter := without(start, most)) is not None), None)


def sentence(text: str) -> str | None:
    """The first sentence moved to the end."""
    first, *rest = [piece for piece in _SENTENCE_END.split(text) if piece] or [""]
    others = " ".join(rest)
    long_enough = min(len(tokens(first)), len(tokens(others))) >= _FEWEST_MOVED
    return f"{others} {first}" if long_enough else None


def numbers(text: str) -> str | None:
    """Whole numbers below 1000 written in words, in prose and with no other number next to them."""

    def worded(number: re.Match[str]) -> str:
        before = _WORD_BEFORE.search(text[max(0, number.start() - 20) : number.start()].lower())
        after = _AFTER.match(text[number.end() : number.end() + 30].lower())
        joined = before is None or before[0].strip() in {*NUMBER_WORDS, "a", "and"}
        joined |= after is not None and (after[1] is None or after[1] in NUMBER_WORDS)
        return number[0] if joined else in_words(int(number[0]))

    edited = _INTEGER.sub(worded, text)
    return edited if edited != text else None


KINDS = {
    "control_spacing": spacing,
    "control_words": words,
    "control_clause": clause,
    "control_sentence": sentence,
    "control_numbers": numbers,
}
MUST_BE_FOUND = ("control_spacing", "control_words", "control_clause")  # of the others, the report has the share found
