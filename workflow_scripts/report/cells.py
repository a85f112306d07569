"""How a value is written in a table: on the page, in the markdown summary, and by `armslength compare`. A value that is
not known is an empty cell."""

from typing import Any, NamedTuple

from workflow_scripts.figures import words
from workflow_scripts.report.findings import known

Row = dict[str, Any]


class TableCell(NamedTuple):
    """What is shown, and the number to sort by, if it is one. share: its digits are those of its column."""

    text: str
    value: float | None = None
    share: bool = False


def text(value: Any) -> TableCell:
    """A text."""
    return TableCell("" if value is None else str(value))


def count(value: Any, digits: int = 0) -> TableCell:
    """A number with so many digits."""
    return TableCell(words.number(value, digits), float(value)) if known(value) else TableCell("")


def points(score: Any, sign: bool = False) -> TableCell:
    """A score, or with a sign a difference, in points of 100."""
    return TableCell(words.number(100 * score, sign=sign), 100 * score) if known(score) else TableCell("")


def detectable(effect: Any) -> TableCell:
    """The smallest effect that is detected with 80 % power, in points."""
    return TableCell(words.detectable(effect), 100 * effect) if known(effect) else TableCell("")


def share(value: Any) -> TableCell:
    """A share in per cent; its column decides the digits."""
    return TableCell(words.percent(value), value, share=True) if known(value) else TableCell("")


def short(value: Any, form: str) -> TableCell:
    """A number in a format of Python's."""
    return TableCell(format(value, form), value) if known(value) else TableCell("")


def time(seconds: Any) -> TableCell:
    """A time."""
    return TableCell(words.span(seconds), seconds) if known(seconds) else TableCell("")


def interval(row: Row) -> TableCell:
    """The interval of a row, in points."""
    return (
        TableCell(words.interval(row["ci_low"], row["ci_high"]), row["ci_low"])
        if known(row["ci_low"])
        else TableCell("")
    )


def p(value: Any) -> TableCell:
    """A p value."""
    return TableCell(f"{value:.3f}" if value >= 0.001 else "< 0.001", value) if known(value) else TableCell("")
