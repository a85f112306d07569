"""Positive control: holdout problems, lightly edited, that the comparison must find.

The edits are fixed in form and position, so that a control never differs between runs. Each function returns the edited
text, or None where the edit cannot be expressed: a text of under 10 tokens has no word in 15 to replace and no tenth to
cut, one of under 5 has no n-gram at all.
"""

import re
import string

from workflow_scripts.decontamination.normalise import is_number, tokens

_FEWEST_TOKENS, _FEWEST_FOR_EDITS = 5, 10
_EVERY = 15  # one word in 15
_SWAPPED = str.maketrans(string.ascii_letters, string.ascii_uppercase + string.ascii_lowercase)
_REPLACEMENT = "zz"  # no word of any problem


def spacing(text: str) -> str | None:
    """Case swapped, white space doubled, LaTeX added; the words are the same."""
    if len(tokens(text)) < _FEWEST_TOKENS:
        return None
    return r"\displaystyle " + re.sub(r"\s+", r" \\quad\n ", text.strip().translate(_SWAPPED))


def words(text: str) -> str | None:
    """One word in 15 replaced (of 10 to 29 tokens: one word); numbers stay."""
    edited = tokens(text)
    count = max(1, len(edited) // _EVERY)
    if len(edited) < _FEWEST_FOR_EDITS or sum(not is_number(token) for token in edited) < count:
        return None
    for i in range(count):
        middle = (2 * i + 1) * len(edited) // (2 * count)
        near = sorted(range(len(edited)), key=lambda place: (abs(place - middle), place))
        edited[next(p for p in near if not is_number(edited[p]) and edited[p] != _REPLACEMENT)] = _REPLACEMENT
    return " ".join(edited)


def clause(text: str) -> str | None:
    """A clause of at most a tenth of the tokens cut; without such a clause, a run of words of that length.

    What is cut holds no number: without one of its numbers it would be another problem.
    """
    whole = tokens(text)
    most = len(whole) // 10
    if len(whole) < _FEWEST_FOR_EDITS:
        return None
    position = 0
    for piece in re.split(r"(?<=[,.;:?!])\s", text):
        length = len(tokens(piece))
        if 0 < length <= most and not any(map(is_number, whole[position : position + length])):
            return " ".join(whole[:position] + whole[position + length :])
        position += length
    starts = sorted(range(len(whole) - most + 1), key=lambda start: (abs(2 * start + most - len(whole)), start))
    for start in starts:
        if not any(map(is_number, whole[start : start + most])):
            return " ".join(whole[:start] + whole[start + most :])
    return None


KINDS = {"control_spacing": spacing, "control_words": words, "control_clause": clause}
