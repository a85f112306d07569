"""One form of a problem's text for comparing: words and numbers, of any script.

Words are runs of letters with their combining marks. Scripts that put no spaces between words, and Korean, whose spaces
vary, give one token for each character, so that a space more or less changes nothing. Digits of every script and
English number words become ASCII digits.
"""

import re
import unicodedata
from functools import cache

from workflow_scripts.decontamination.number_words import NUMBER_WORDS, with_digits

_LATEX_SPACE = re.compile(r"\\[,!;: ]")
_LATEX_QUAD = re.compile(r"\\q?quad(?![a-z])")
_LATEX_COMMAND = re.compile(r"\\[a-z]+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))", re.ASCII)
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_ASCII_TOKEN = re.compile(rf"[a-z]+|{_NUMBER}")

# what only the pattern of every script takes: not ASCII, Latin punctuation, or punctuation and signs of Unicode
_OTHER = re.compile("[^\x00-\u00a9\u00ab-\u00b4\u00b6-\u00b9\u00bb-\u00bf\u00d7\u00f7\u2000-\u20cf\u2190-\u2bff]")
_OTHER_DIGIT = re.compile(r"[^\D0-9]")
_SEPARATORS = str.maketrans("٫٬", ".,")
# soft hyphens, joiners, direction marks, variation selectors; Arabic and Hebrew signs that most writers leave out
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\u0640\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7]"
)
_RAISED = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207a-\u207f]+")
_FRACTION = re.compile("[\u00bc-\u00be\u2150-\u215e]")  # NFKC would join 1\u00bd to 11/2
_GREEK = "\u0370-\u03ff\u1f00-\u1fff"
GREEK_SYMBOL = re.compile(rf"(?<![{_GREEK}])[{_GREEK}](?![{_GREEK}])")
# Thai to Myanmar, Hangul, Khmer, kana, bopomofo and Han
_BY_CHARACTER = (
    "\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3021-\u3029\u3041-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)


@cache
def token_pattern() -> str:
    """Regular expression of a token of any script. `\\w` has the letters, but not their combining marks."""
    marks = "".join(
        char for char in map(chr, range(0x300, 0x1F000)) if unicodedata.category(char) in ("Mn", "Mc", "Me")
    )
    letter = rf"[^\W\d_]{{}}[{marks}]*"
    one, several = letter.format(f"(?<=[{_BY_CHARACTER}])"), letter.format(f"(?<![{_BY_CHARACTER}])")
    return rf"{one}|(?:{several})+|{_NUMBER}"


@cache
def _any_token() -> re.Pattern[str]:
    return re.compile(token_pattern())


def folded(text: str) -> str:
    """NFKC, case folded, thousands commas dropped, every digit an ASCII digit, nothing that cannot be seen."""
    if text.isascii():
        return _typeset(text.lower())
    plain = _FRACTION.sub(r" \g<0>", _RAISED.sub(r"^\g<0>", text))
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", plain).casefold())
    plain = _INVISIBLE.sub("", plain)
    if _OTHER.search(plain):
        plain = _OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), plain.translate(_SEPARATORS))
    return _typeset(plain)


def _typeset(text: str) -> str:
    return _THOUSANDS.sub("", _LATEX_QUAD.sub(" ", _LATEX_SPACE.sub("", text)))


def _split(text: str) -> list[str]:
    found: list[str] = (_any_token() if _OTHER.search(text) else _ASCII_TOKEN).findall(text)
    return found


def tokens(text: str) -> list[str]:
    """Words and numbers; without LaTeX commands and single Greek letters, which are the same in Unicode."""
    return with_words(text)[0]


def with_words(text: str) -> tuple[list[str], list[str]]:
    """The tokens of a text, and the same with its number words left as words."""
    plain = _LATEX_COMMAND.sub(";", folded(text))
    if not plain.isascii():
        plain = GREEK_SYMBOL.sub(";", plain)
    found = _split(plain)
    return (found if NUMBER_WORDS.isdisjoint(found) else _split(with_digits(plain))), found


def is_number(token: str) -> bool:
    """Tokens are words or numbers."""
    return token[0].isdigit()
