"""How tables are written and read, as parquet files with their provenance.

A file's footer holds its *provenance*: the settings it was made with, the digest of the code, the digest of its inputs,
the versions of the libraries, and the digest of its own content. Nothing in it depends on the time or the machine, so
equal inputs give equal bytes.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workflow_scripts.errors import UserError
from workflow_scripts.tables.schemas import TEXT, Table, schema


class TableError(UserError):
    """A parquet file cannot be read or does not have the columns it should; the message is one line for the user."""


def text_digest(text: str) -> str:
    """Sixteen hex digits of the sha256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_sha256(path: str | Path) -> str:
    """Hex sha256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _content_digest(data: pa.Table) -> str:
    """Digest of the rows alone: not of metadata (which words columns), chunks, or what happens to lie in memory under a
    null."""
    digest = hashlib.sha256("\n".join(f"{field.name}: {field.type}" for field in data.schema).encode())
    for field, column in zip(data.schema, data.columns, strict=True):
        values = column.drop_null().combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, pa.schema([(field.name, field.type)])) as stream:
            stream.write_table(pa.table({field.name: values}), max_chunksize=1 << 20)
        digest.update(np.packbits(column.is_valid().to_numpy()).tobytes())
        digest.update(sink.getvalue())
    return digest.hexdigest()[:16]


def write(path: str | Path, table: Table, rows: Any, provenance: dict[str, Any]) -> None:
    """Write rows as parquet, atomically (temporary file, fsync, rename).

    rows: a list of dicts, a dict of columns, a pandas DataFrame or an Arrow table; columns are put in the table's order
    and cast to its types; missing columns are an error, so is a duplicated key.
    """
    target = schema(table)
    if isinstance(rows, list):
        data = pa.Table.from_pylist(rows, schema=target)
        unknown = set().union(*(row.keys() for row in rows)) - set(target.names) if rows else set()
        if unknown:
            raise TableError(f"{path}: table {table.name} has no column {', '.join(sorted(unknown))}")
    elif isinstance(rows, dict):
        data = pa.table({name: pa.array(rows[name], type=target.field(name).type) for name in target.names})
    elif isinstance(rows, pa.Table):
        data = rows.select(target.names)
    else:
        data = pa.Table.from_pandas(rows[target.names], schema=target, preserve_index=False)
    data = data.replace_schema_metadata(None).cast(target)
    keys = data.select(list(table.key))
    if len(keys) and len(keys.group_by(list(table.key)).aggregate([])) != len(keys):
        raise TableError(f"{path}: two rows of table {table.name} have the same {', '.join(table.key)}")
    footer = {
        "armslength_table": table.name,
        "armslength": json.dumps({**provenance, "content": _content_digest(data)}, sort_keys=True),
    }
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            pq.write_table(data.replace_schema_metadata(footer), file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _open(path: str | Path, coded: Sequence[str] = ()) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, read_dictionary=list(coded))
    except FileNotFoundError:
        raise TableError(f"{path}: the file is missing") from None
    except (pa.ArrowInvalid, OSError) as error:
        why = str(error).splitlines()[0]
        raise TableError(f"{path}: not a readable parquet file (truncated?): {why}; delete it and run again") from None


def read(path: str | Path, table: Table, columns: list[str] | None = None, coded: bool = False) -> pa.Table:
    """Read a file that should hold `table` (or some of its columns); a TableError names the file and the fault.

    coded: texts as dictionaries, for tables of millions of rows.
    """
    file = _open(path, [name for name, kind in table.columns.items() if kind == TEXT] if coded else ())
    missing = [c for c in columns or table.columns if c not in file.schema_arrow.names]
    if missing:
        raise TableError(
            f"{path}: column {', '.join(missing)} is missing; it is not a table {table.name} of this version"
        )
    try:
        return file.read(columns=columns or list(table.columns))
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(f"{path}: damaged: {str(error).splitlines()[0]}; delete it and run again") from None


def parts(path: str | Path, table: Table, column: str, rows: int = 1 << 14) -> Iterator[pa.Array]:
    """One column of a file that should hold `table`, so many rows at a time: the texts of a large run are gigabytes."""
    file = _open(path)
    if column not in file.schema_arrow.names:
        raise TableError(f"{path}: column {column} is missing; it is not a table {table.name} of this version")
    try:
        for part in file.iter_batches(rows, columns=[column]):
            yield part.column(0)
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(f"{path}: damaged: {str(error).splitlines()[0]}; delete it and run again") from None


def provenance(path: str | Path) -> dict[str, Any]:
    """What the footer says of how the file was made; empty for a foreign file."""
    metadata = _open(path).schema_arrow.metadata or {}
    return json.loads(metadata.get(b"armslength", b"{}"))


def input_digest(path: str | Path) -> str:
    """Digest of a file as an input: of its rows (from the footer) if it is one of our parquet files, else of its
    bytes."""
    if str(path).endswith(".parquet"):
        return provenance(path).get("content") or file_sha256(path)[:16]
    return file_sha256(path)[:16]


def inputs_digest(paths: list[str], root: str | Path) -> str:
    """One digest of all input files; the paths count relative to `root`, so a moved results folder stays valid."""
    lines = [f"{os.path.relpath(p, root)} {input_digest(p)}" for p in sorted(set(paths))]
    return text_digest("\n".join(lines))
