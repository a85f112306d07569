"""Counts (n samples, c correct) by arm, seed and problem from a csv or parquet table that was made elsewhere."""

import csv
import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from workflow_scripts.errors import UserError

# Column -> names it may have, ours of tables/counts.parquet last.
NEEDED = {"arm": ("arm",), "seed": ("seed",), "problem": ("problem", "problem_id"), "n": ("n", "samples"),
          "c": ("c", "correct")}  # fmt: skip
OPTIONAL = ("run", "benchmark", "step", "excluded")
TEXTS, WHOLE = ("arm", "benchmark", "problem"), ("seed", "step", "n", "c")
WHOLE_FILE = "all"  # benchmark of a table without that column
SHOWN = 12  # names listed in one message


class InputError(UserError):
    """An input cannot be used; one line for the user."""


@dataclass
class Part:
    """Counts of one file: columns arm, benchmark, problem (text) and seed, step, n, c (int64).

    place: row -> where it stands in the file ("line 7"). contents: problem -> (hash of it, hash of its prompt), where
    the file says so. notes: what a reader should know. metric: what a log counts as correct, with its filter.
    by_problem: the file is known to have a row for each problem, as logs and a study's own counts do.
    """

    file: str
    rows: pa.Table
    place: Callable[[int], str]
    contents: dict[str, tuple[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    metric: str | None = None
    by_problem: bool = False


def listed(names: Any) -> str:
    """Names for a message, no more than fit."""
    names = [str(name) for name in names]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def near(name: str, names: Any) -> str:
    """A hint at the nearest name, or nothing."""
    found = difflib.get_close_matches(name, [str(other) for other in names], 1, 0.5)
    return f"; did you mean {found[0]}?" if found else ""


def _columns(names: list[str]) -> dict[str, str]:
    """Column -> its name in the file, of those that are there; InputError for one that is needed and is not."""
    stripped = [name.strip() for name in names]
    if twice := sorted({name for name in stripped if stripped.count(name) > 1}):
        raise InputError(f"two columns are called {twice[0]}")
    found = {}
    for column, known in {**NEEDED, **{name: (name,) for name in OPTIONAL}}.items():
        there = [name for name in known if name in stripped]
        if there:
            found[column] = names[stripped.index(there[0])]
        elif column in NEEDED:
            raise InputError(f"no column {' or '.join(known)}{near(column, stripped)} (it has {listed(stripped)})")
    return found


def _csv_rows(path: Path, delimiter: str) -> Any:
    """(line on which the row ends, row) for each row that is not empty; InputError where the file stops being csv."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter)
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except UnicodeDecodeError:
            raise InputError("not UTF-8 text") from None
        except csv.Error as error:
            raise InputError(f"line {reader.line_num}: {error}") from None


def _find_fault(path: Path, delimiter: str) -> None:
    """InputError for the first row that has not as many fields as the header."""
    width = 0
    for line, row in _csv_rows(path, delimiter):
        width = width or len(row)
        if len(row) != width:
            raise InputError(f"line {line}: {len(row)} fields, and the header has {width}")


def _read_csv(path: Path) -> tuple[pa.Table, Callable[[int], str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            head = next((line for line in file if line.strip()), "")
        except UnicodeDecodeError:
            raise InputError("not UTF-8 text") from None
    if not head:
        raise InputError("the file is empty")
    delimiter = max(",;\t", key=head.count)
    names = next(csv.reader([head], delimiter=delimiter))
    chosen = _columns(names)

    def read(newlines: bool) -> pa.Table:
        return pc_csv.read_csv(
            path,
            parse_options=pc_csv.ParseOptions(delimiter=delimiter, newlines_in_values=newlines),
            convert_options=pc_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), include_columns=list(chosen.values())
            ),
        )

    try:
        table = read(False)
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        _find_fault(path, delimiter)
        try:
            table = read(True)  # a quoted field went over the end of its line
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            raise InputError(f"no csv: {str(error).splitlines()[0]}") from None

    def place(row: int) -> str:
        # A quoted field may hold a line break: only a reader knows the line.
        for number, (line, _) in enumerate(_csv_rows(path, delimiter)):
            if number == row + 1:
                return f"line {line}"
        return f"row {row + 1}"

    return table.rename_columns(list(chosen)), place


def _read_parquet(path: Path) -> tuple[pa.Table, Callable[[int], str]]:
    try:
        file = pq.ParquetFile(path)
        chosen = _columns(file.schema_arrow.names)
        table = file.read(columns=list(chosen.values()))
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"not a readable parquet file (truncated?): {str(error).splitlines()[0]}") from None
    table = table.select(list(chosen.values())).rename_columns(list(chosen))
    return table, lambda row: f"row {row + 1}"


def _first(flags: Any) -> int | None:
    """The first row that is flagged."""
    found = np.flatnonzero(np.asarray(flags, dtype=bool))
    return int(found[0]) if len(found) else None


def _text(column: pa.ChunkedArray, name: str, fault: Callable[[int, str], NoReturn]) -> pa.ChunkedArray:
    try:
        column = column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(f"column {name} is of type {column.type}, and should be text") from None
    column = pc.replace_substring_regex(pc.utf8_trim_whitespace(column), r"\s+", " ")  # " grpo" is no other arm
    row = _first(pc.fill_null(pc.equal(column, ""), True))
    if row is not None:
        fault(row, f"{name} is empty")
    return column


def _whole(column: pa.ChunkedArray, name: str, fault: Callable[[int, str], NoReturn]) -> pa.ChunkedArray:
    try:
        whole = column.cast(pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if pa.types.is_nested(column.type) or pa.types.is_temporal(column.type):
            raise InputError(f"column {name} is of type {column.type}, and should be whole numbers") from None
        values = pd.to_numeric(column.to_pandas(), errors="coerce").to_numpy(dtype=float, na_value=np.nan)
        with np.errstate(invalid="ignore"):
            row = _first(~((np.floor(values) == values) & (np.abs(values) < 2**53)))
        if row is not None:
            value = column[row].as_py()
            below = " below 2**53" if abs(values[row]) >= 2**53 and np.isfinite(values[row]) else ""
            shown = "empty" if value in (None, "") else repr(value)
            fault(row, f"{name} is {shown}, and should be a whole number{below}")
        return pa.chunked_array([values.astype(np.int64)])
    if whole.null_count:
        fault(int(_first(whole.is_null()) or 0), f"{name} is empty, and should be a whole number")
    return whole


def check_counts(rows: pa.Table, pass_at: int, fault: Callable[[int, str], NoReturn]) -> None:
    """Every row: 0 <= c <= n, and n at least the largest pass_at."""
    n, c = (rows[name].to_numpy() for name in ("n", "c"))
    for flags, said in (
        (n < 1, "n is {n}, and should be at least 1"),
        (c < 0, "c is {c}, and should be at least 0"),
        (c > n, "c is {c} of n = {n} samples"),
        (n < pass_at, "n is {n}, fewer than --pass-at {pass_at}"),
    ):
        row = _first(flags)
        if row is not None:
            fault(row, said.format(n=n[row], c=c[row], pass_at=pass_at))


def _check_runs(rows: pa.Table, fault: Callable[[int, str], NoReturn]) -> None:
    """A run is one arm with one seed, and the other way round."""
    frame = rows.select(["run", "arm", "seed"]).to_pandas()
    pairs = frame.drop_duplicates()
    for of, by in ((["run"], "arm or seed"), (["arm", "seed"], "run")):
        second = pairs[pairs.duplicated(of)]
        if len(second):
            row = second.iloc[0]
            what = f"run {row['run']}" if of == ["run"] else f"arm {row['arm']}, seed {row['seed']}"
            fault(int(second.index[0]), f"{what} has another {by} than before")


def read(path: Path, pass_at: int) -> Part:
    """The counts of a table; InputError, without the file's name, says what is wrong with it and in which row."""
    with path.open("rb") as file:
        parquet = file.read(4) == b"PAR1"
    table, place = (_read_parquet if parquet else _read_csv)(path)
    if not len(table):
        raise InputError("no rows below the header" if not parquet else "no rows")

    def fault(row: int, said: str) -> NoReturn:
        raise InputError(f"{place(row)}: {said}")

    notes = []
    of_study = parquet and (pq.read_schema(path).metadata or {}).get(b"armslength_table") == b"counts"
    if of_study:
        trained = pc.not_equal(table["arm"].cast(pa.string()), "base")
        if not pc.all(trained).as_py():
            table = table.filter(trained)  # before exclusions, which count rows; the place of a row no longer matters
            notes.append("base, the model before training, is left out: its repeats are samples, not trainings.")
    if "excluded" in table.column_names:
        kept = pc.fill_null(pc.equal(table["excluded"].cast(pa.string()), ""), True)
        if dropped := len(table) - pc.sum(kept).as_py():
            notes.append(f"{dropped} rows with a reason under excluded are left out.")
            positions, inner = np.flatnonzero(kept.to_numpy()), place
            table, place = table.filter(kept), lambda row: inner(int(positions[row]))
        if not len(table):
            raise InputError("every row is excluded")
    for name, constant in (("benchmark", WHOLE_FILE), ("step", 0)):
        if name not in table.column_names:
            table = table.append_column(name, pa.repeat(constant, len(table)))
    columns = {name: _text(table[name], name, fault) for name in TEXTS}
    columns |= {name: _whole(table[name], name, fault) for name in WHOLE}
    rows = pa.table(columns)
    check_counts(rows, pass_at, fault)
    if "run" in table.column_names:
        _check_runs(rows.append_column("run", _text(table["run"], "run", fault)), fault)
    return Part(str(path), rows, place, notes=notes, by_problem=of_study)
