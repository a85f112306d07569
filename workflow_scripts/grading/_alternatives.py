r"""Reference answers of which any one is right, in one text: ``1.6 \alternatively 1.62``."""

from collections.abc import Iterable

MARK = r"\alternatively"


def joined(answers: Iterable[str]) -> str:
    """One reference answer of several, each once."""
    return f" {MARK} ".join(dict.fromkeys(answer.strip() for answer in answers))


def alternatives(answer: str) -> list[str]:
    """The answers of a reference answer any one of which is right: for most a list of one."""
    return [part.strip() for part in answer.split(MARK)]
