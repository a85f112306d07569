"""Fetching a problem set: from the hub, from a local file, or made here; cleaned rows, and a record of where from."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from workflow_scripts import benchmarks

Row = dict[str, Any]
_PROBE_SECONDS = 5


class SourceError(Exception):
    """A set cannot be had or a row is not usable; one line that names the file and line, or what to set."""


def fetch(entry: dict[str, Any], data_dir: str | None) -> tuple[list[Row], dict[str, Any]]:
    """Rows of the table `problems`, and the record of their source.

    entry: the ``set`` of the settings: ``source`` (generated, local, hub), ``name`` (with ``split``) of a set of this
    package, or any name if ``fields`` says which columns hold question and answer; ``path``, ``config``,
    ``hub_split``, ``revision``, ``sha256`` say where and what it is, ``rows`` and ``seed`` which part. data_dir: where
    local files lie.
    Rows that repeat both question and answer are dropped and recorded; ``rows`` with ``seed`` takes a random part in
    the order of the source, ``rows`` alone the first. Raises SourceError.
    """
    if fields := entry.get("fields"):
        known = benchmarks.ProblemSet(name=entry["name"], benchmark="", grader="", file=entry.get("path"))
        read = _field_reader(fields)
    else:
        full = entry["name"] in benchmarks.names()  # then a split is one of the hub's
        known = benchmarks.problem_set(entry["name"], None if full else entry.get("split"))
        module = import_module(f"{benchmarks.__name__}.{known.benchmark}")
        read = getattr(module, "read", dict)
    sha256 = None
    numbered: Iterable[tuple[int, Any]]
    if entry["source"] == "generated":
        place, numbered = "generated", enumerate(module.generate(known.split, entry.get("rows"), entry.get("seed")))
    elif entry["source"] == "local":
        path = _local_path(entry.get("path") or known.file or "", data_dir)
        place, sha256, numbered = path.name, _checked_sha256(path, entry.get("sha256")), _file_rows(path)
    else:
        place, numbered = _hub_rows(entry, known)
    unit = "line" if place.endswith(".jsonl") else "row"
    rows = [_cleaned(row, read, f"{place}: {unit} {number + 1}") for number, row in numbered]
    if not rows:
        raise SourceError(f"{place}: the file is empty; a problem set needs at least one row")
    kept, duplicates = _without_duplicates(rows, known.name)
    record = {
        "source": f"{entry['source']}:{place}",
        "revision": entry.get("revision"),
        "rows": len(rows),
        "duplicates": duplicates,
        "sha256": sha256 or hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest(),
    }
    return _part(kept, entry, place), record


def _local_path(file: str, data_dir: str | None) -> Path:
    path = Path(data_dir or ".").expanduser() / file
    if not path.is_file():
        hint = "" if data_dir else "; say where local files lie with --config data_dir=PATH"
        raise SourceError(f"{path}: no such file{hint}")
    return path


def _checked_sha256(path: Path, expected: str | None) -> str:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if expected and found != expected:
        raise SourceError(
            f"{path}: the file has changed: sha256 {found[:12]}…, the study was planned with {expected[:12]}…"
        )
    return found


def _file_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """(line or row from 0, row) of a jsonl, json or parquet file."""
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            yield from enumerate(pq.read_table(path).to_pylist())
        except (pa.ArrowInvalid, OSError) as error:
            raise SourceError(f"{path}: not a readable parquet file: {str(error).splitlines()[0]}") from None
        return
    if path.suffix not in (".jsonl", ".json"):
        raise SourceError(f"{path}: a local file must end in .jsonl, .json or .parquet")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: not UTF-8 at byte {error.start}") from None
    if path.suffix == ".json":
        rows = _parsed(text, str(path), 1) if text.strip() else []
        if not isinstance(rows, list):
            raise SourceError(f"{path}: a .json file must hold one list of objects")
        yield from enumerate(rows)
        return
    for number, line in enumerate(text.split("\n")):
        if line.strip():
            yield number, _parsed(line, str(path), number + 1)


def _parsed(text: str, place: str, line: int) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        what, offset = (error.msg, error.lineno - 1) if isinstance(error, json.JSONDecodeError) else ("too deep", 0)
        raise SourceError(f"{place}: line {line + offset}: not valid JSON ({what})") from None


def _online() -> bool:
    """One quick look, since the hub's own client tries for 23 s before it gives up."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    try:
        with urlopen(Request(endpoint, method="HEAD"), timeout=_PROBE_SECONDS):
            return True
    except HTTPError:
        return True
    except (OSError, ValueError):
        return False


def _hub_rows(entry: Row, known: benchmarks.ProblemSet) -> tuple[str, Iterable[tuple[int, Any]]]:
    """Path on the hub, and the rows: a set's own place, as far as the entry does not name another."""
    hub = known.hub or benchmarks.Hub("", None, "train", "")
    path, config = entry.get("path") or hub.path, entry.get("config") or hub.config
    split = entry.get("hub_split") or entry.get("split") or hub.split
    revision = entry.get("revision") or hub.revision
    if not _online():
        os.environ["HF_HUB_OFFLINE"] = "1"  # read on import: what is cached is found, nothing is tried
    import datasets

    datasets.disable_progress_bars()
    try:
        rows = datasets.load_dataset(path, config, split=split, revision=revision)
        # where the hub does not answer, `datasets` takes whatever revision the cache holds
        made_of = {part for file in rows.cache_files for part in Path(file["filename"]).parts}
        if re.fullmatch("[0-9a-f]{40}", revision or "") and made_of and revision not in made_of:
            raise FileNotFoundError("the cache holds another revision")
        return path, enumerate(rows.to_list())
    except Exception as error:  # the client raises what its many layers raise; each of them ends the job
        local = f", or data_dir to a folder with {known.file}" if known.file else ""
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SourceError(
            f"{path}, revision {revision}, cannot be had from the hub ({cause}); set HF_ENDPOINT to a mirror, HF_HOME "
            f"to a cache that holds it{local}"
        ) from None


def _field_reader(fields: dict[str, str]) -> Callable[[Row], Row]:
    return lambda row: {key: row[column] for key, column in fields.items()}


def _cleaned(row: Any, read: Callable[[Row], Row], place: str) -> Row:
    """question, answer, difficulty of one source row, each checked."""
    try:
        clean = read(row)
    except KeyError as error:
        columns = ", ".join(map(str, row)) if isinstance(row, dict) else "none"
        raise SourceError(f"{place}: no column {error.args[0]!r}; columns: {columns}") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise SourceError(f"{place}: not in the form this set has ({error})") from None
    question, answer = clean["question"], clean["answer"]
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        answer = f"{answer:.15g}" if isinstance(answer, float) else str(answer)
    for key, text in (("question", question), ("answer", answer)):
        if not isinstance(text, str):
            raise SourceError(f"{place}: the {key} is {'null' if text is None else 'not a text'}")
        if not text.strip():
            raise SourceError(f"{place}: the {key} is empty")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise SourceError(f"{place}: the {key} holds half a character (a lone surrogate)")
    return {"question": question, "answer": answer.strip(), "difficulty": clean.get("difficulty")}


def problem_id(benchmark: str, question: str, answer: str) -> str:
    """Sixteen hex digits that name a problem, whatever file it came from: of its set's name, raw text and answer."""
    return hashlib.sha256(json.dumps([benchmark, question, answer]).encode()).hexdigest()[:16]


def _without_duplicates(rows: list[Row], benchmark: str) -> tuple[list[Row], list[int]]:
    kept: dict[str, Row] = {}
    duplicates = []
    for number, row in enumerate(rows):
        identity = problem_id(benchmark, row["question"], row["answer"])
        if identity in kept:
            duplicates.append(number)
        else:
            kept[identity] = {"problem_id": identity, "benchmark": benchmark, "row": number, **row}
    return list(kept.values()), duplicates


def _part(rows: list[Row], entry: dict[str, Any], place: str) -> list[Row]:
    wanted, seed = entry.get("rows"), entry.get("seed")
    if wanted is None:
        return rows
    if wanted > len(rows):
        raise SourceError(f"{place}: {wanted} rows asked for, {len(rows)} different ones are there")
    if seed is None or entry["source"] == "generated":
        return rows[:wanted]
    return [rows[i] for i in sorted(Random(f"rows {seed}").sample(range(len(rows)), wanted))]
