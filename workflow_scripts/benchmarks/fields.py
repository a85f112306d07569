"""Which columns of a source hold the question, the answer and the id of a problem, as a study's ``fields`` says.

A field is a column (``prompt.0.content`` lies within others), a template that joins columns (``{body} {question}``), or
a list of those, of which the first that a row has is taken. In a template a list of options becomes a line for each of
them, ``{answer:letter}`` is the letter of an option's number (0 is A), and ``{{`` is a brace.
"""

import math
import re
from collections.abc import Iterable, Iterator
from string import Formatter, ascii_uppercase
from typing import Any

Row = dict[str, Any]
Field = str | list[str]

# Last words of columns that hold a part of a question: read without them, it cannot be answered.
_PARTS_OF_A_QUESTION = {
    "option", "options", "choice", "choices", "opa", "opb", "opc", "opd", "body", "context", "contexts", "passage",
    "paragraph", "story", "premise", "preamble", "background", "article", "table", "image", "images", "figure", "input",
}  # fmt: skip
_ONE_OPTION = re.compile(r"[A-E]|(?:option|choice)[ _-]?[A-Ea-e1-5]")
_LETTERED = re.compile(r"\s*\(?([A-Za-z])\s*[).:]")


class FieldFault(ValueError):
    """A row that the fields of a study do not fit; the text follows the row's place."""


def template_fault(text: str) -> str | None:
    """What is wrong with a field that has braces; None if it is a template or a column."""
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        return f"a template such as '{{body}} {{question}}', with {{{{ and }}}} for braces of the text ({error})"
    for _, column, form, conversion in parts:
        if column is not None and not column.strip():
            return "a template with the name of a column in each pair of braces"
        if conversion or form not in (None, "", "letter"):
            return "a template whose columns have no format but :letter, the letter of an option's number"
    return None


def columns(field: Field) -> list[str]:
    """All columns that a field names, in any of its alternatives."""
    found = []
    for one in [field] if isinstance(field, str) else field:
        found += [name for _, name, _, _ in Formatter().parse(one) if name] if "{" in one else [one]
    return found


def value(row: Row, field: Field) -> Any:
    """The value of a field in a row; of alternatives the first that is there and not blank. KeyError(column)."""
    if isinstance(field, str):
        return _one(row, field)
    missing: list[KeyError] = []
    blank: list[Any] = []
    for one in field:
        try:
            found = _one(row, one)
        except KeyError as error:
            missing.append(error)
            continue
        if not is_blank(found):
            return found
        blank.append(found)
    if blank:
        return blank[0]
    raise missing[0] if len(field) == 1 else KeyError(" or ".join(field))


def _one(row: Row, field: str) -> Any:
    if "{" not in field or field in row:
        return column(row, field)
    text = ""
    for before, name, form, _ in Formatter().parse(field):
        text += before
        if name is not None:
            found = column(row, name)
            if is_blank(found):
                return None
            text += _letter(found, name) if form == "letter" else _text(found, name)
    return text


def column(row: Row, name: str) -> Any:
    """A column; a.b.0 is the first item of the list under b in column a, where no column has that name."""
    if name in row or "." not in name:
        return row[name]
    found: Any = row
    try:
        for step in name.split("."):
            found = found[int(step)] if isinstance(found, list) else found[step]
    except (IndexError, KeyError, TypeError, ValueError):
        raise KeyError(name) from None
    return found


def is_blank(value: Any) -> bool:
    """Whether nothing is there: null, not a number, or a text, list or mapping without content."""
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, list | dict):
        return all(map(is_blank, value.values() if isinstance(value, dict) else value))
    return value is None or (isinstance(value, str) and not value.strip())


def _text(value: Any, name: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        return "\n".join(_options(value, name))
    if isinstance(value, bool):
        raise FieldFault(f"column {name!r} holds {value}, which is no text")
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _options(value: list[Any] | Row, name: str) -> Iterator[str]:
    """A line for each option: of a list, of a mapping of letters to texts, or of lists of labels and texts (ARC)."""
    labels: Iterable[Any]
    if isinstance(value, list):
        labels, texts = ascii_uppercase, value
    elif isinstance(value.get("text"), list) and len(value.get("label") or ()) == len(value["text"]):
        labels, texts = value["label"], value["text"]
    else:
        given = {key: text for key, text in value.items() if text is not None}
        labels, texts = list(given), list(given.values())
    nested = any(isinstance(text, list | dict | bool) or is_blank(text) for text in texts)
    if nested or len(texts) > len(ascii_uppercase):
        raise FieldFault(f"column {name!r} is no list of options")
    spelled = [_text(text, name) for text in texts]
    has_letters = [found and found[1].upper() for found in map(_LETTERED.match, spelled)]
    if has_letters == list(ascii_uppercase[: len(spelled)]):
        yield from spelled
    else:
        yield from (f"({label}) {text}" for label, text in zip(labels, spelled, strict=False))


def _letter(value: Any, name: str) -> str:
    """A of 0, B of 1; a letter stays."""
    if isinstance(value, str) and re.fullmatch("[A-Za-z]", value.strip()):
        return value.strip().upper()
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < len(ascii_uppercase):
        return ascii_uppercase[number]
    raise FieldFault(f"column {name!r} holds {value!r:.40}, which is no number of an option from 0")


def unused(row: Row, fields: Iterable[Field]) -> list[str]:
    """Columns of a row, and of mappings that are read in part, that no field names and that hold something."""
    return list(_unused(row, [name for field in fields for name in columns(field)], ""))


def _unused(row: Row, names: list[str], before: str) -> Iterator[str]:
    for key, inner in row.items():
        below = [name.removeprefix(f"{key}.") for name in names if name.startswith(f"{key}.")]
        if key not in names and not below and not is_blank(inner):
            yield f"{before}{key}"
        elif below and key not in names and isinstance(inner, dict):
            yield from _unused(inner, below, f"{before}{key}.")


def is_part_of_a_question(name: str) -> bool:
    """Whether a column's name says that a question is not whole without it: options, body, context and the like."""
    last = name.rpartition(".")[2]
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", last).lower())
    return bool(_ONE_OPTION.fullmatch(last)) or (
        words[-1:] != [] and words[-1] in _PARTS_OF_A_QUESTION and not {"correct", "right", "gold"} & set(words)
    )
