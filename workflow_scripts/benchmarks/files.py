"""Rows of a local file: .jsonl (one object a line), .json (one list of objects) or .parquet; UTF-8, with or without
a BOM and with any line ends. Lines and batches of rows are read as they are asked for: a file may exceed memory."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workflow_scripts import file_kinds
from workflow_scripts.errors import UserError

_BATCH = 4096
_ALLOWED = "a local file must end in .jsonl, .json or .parquet"
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tar")


class SourceError(UserError):
    """A set cannot be had or a row is not usable; one line that names the file and line, or what to set."""


def rows(path: Path) -> Iterator[tuple[int, Any]]:
    """(line or row from 0, row). Raises SourceError."""
    readers = {".jsonl": _lines, ".json": _list, ".parquet": _parquet}
    if path.suffix not in readers:
        raise SourceError(f"{path}: {_ALLOWED}{'; unpack it first' if path.suffix in _PACKED else ''}")
    try:
        _check_kind(path)
        yield from readers[path.suffix](path)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or str(error).splitlines()[0]}") from None


def _check_kind(path: Path) -> None:
    """SourceError where the content is not what the suffix says, but something known."""
    if known := file_kinds.foreign(path):
        raise SourceError(f"{path}: {known}")
    with path.open("rb") as file:
        start = file.read(file_kinds.START)
    is_parquet = start.startswith(file_kinds.PARQUET)
    if is_parquet and path.suffix != ".parquet":
        raise SourceError(f"{path}: this is a parquet file; rename it so that its name ends in .parquet")
    if path.suffix == ".parquet" and not is_parquet:
        text = "" if b"\0" in start else _other_form(start.decode("utf-8", "replace"), ".parquet")
        raise SourceError(f"{path}: {f'not a readable parquet file{text}' if start.strip() else 'the file is empty'}")


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    # as text a line ends with \n, \r\n or \r; what is not UTF-8 comes back as its bytes, to be named with its line
    with path.open(encoding="utf-8", errors="surrogateescape") as file:
        for number, line in enumerate(file):
            place = f"{path}: line {number + 1}"
            raw = line.encode("utf-8", "surrogateescape")
            text = _decoded(raw, place).removeprefix("\ufeff" if number == 0 else "").strip()
            if text:
                row = _parsed(text, path, number + 1)
                if not isinstance(row, dict):
                    raise SourceError(f"{place}: a .jsonl file has one object a line{_other_form(text)}")
                yield number, row


def _list(path: Path) -> Iterator[tuple[int, Any]]:
    text = _decoded(path.read_bytes(), str(path)).removeprefix("\ufeff")
    found = _parsed(text, path, 1) if text.strip() else []
    if not isinstance(found, list):
        raise SourceError(f"{path}: a .json file must hold one list of objects{_other_form(text)}")
    yield from enumerate(found)


def _parquet(path: Path) -> Iterator[tuple[int, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            yield from enumerate(row for batch in file.iter_batches(_BATCH) for row in batch.to_pylist())
    except pa.ArrowException as error:
        raise SourceError(f"{path}: not a readable parquet file: {str(error).splitlines()[0]}") from None


def _decoded(raw: bytes, place: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"{place}: not UTF-8 at byte {error.start}") from None


def _parsed(text: str, path: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        what, offset = "too deep", 0
    except json.JSONDecodeError as error:
        what, offset = error.msg, error.lineno - 1
    except ValueError:  # Python reads no integer of more than 4300 digits
        what, offset = "a number with thousands of digits", 0
    raise SourceError(f"{path}: line {line + offset}: not valid JSON ({what}){_other_form(text, path.suffix)}")


def _other_form(text: str, suffix: str = "") -> str:
    """A hint where a list has the name of lines, or lines that of a list."""
    first = text.lstrip()[:1]
    if first == "[" and suffix != ".json":
        return "; a file that is one list is named .json"
    if first == "{" and suffix != ".jsonl":
        return "; a file with one object a line is named .jsonl"
    return ""
