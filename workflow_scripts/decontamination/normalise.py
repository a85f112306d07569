"""One form of a problem's text for comparing: words and numbers, nothing else."""

import re
import unicodedata

_LATEX_SPACE = re.compile(r"\\[,!;: ]")
_LATEX_COMMAND = re.compile(r"\\[a-z]+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))", re.ASCII)
_TOKEN = re.compile(r"[a-z]+|\d+(?:\.\d+)?", re.ASCII)


def tokens(text: str) -> list[str]:
    """NFKC, lower case, LaTeX commands and thousands commas dropped; then runs of letters, and numbers."""
    plain = unicodedata.normalize("NFKC", text).lower()
    plain = _LATEX_COMMAND.sub(" ", _LATEX_SPACE.sub("", plain))
    return _TOKEN.findall(_THOUSANDS.sub("", plain))


def is_number(token: str) -> bool:
    """Tokens are words or numbers."""
    return token[0].isdigit()
