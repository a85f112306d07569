"""Fetching a problem set: from the hub, from a local file, or made here; cleaned rows, and a record of where from."""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from workflow_scripts import benchmarks, file_kinds
from workflow_scripts.benchmarks import fields, files
from workflow_scripts.benchmarks.files import SourceError

Row = dict[str, Any]
_PROBE_SECONDS = 5
_LISTED = 1000  # repeated rows and gaps
_BATCH = 4096


def fetch(entry: dict[str, Any], data_dir: str | None) -> tuple[list[Row], dict[str, Any]]:
    """Rows of the table `problems`, and the record of their source.

    entry: the ``set`` of the settings: ``source`` (generated, local, hub), ``name`` (with ``split``) of a set of this
    package, or any other name, with ``fields`` that say which columns hold question, answer and perhaps an id, ``gaps``
    (drop: rows without question or answer are left out) and ``unused`` (columns that are left out on purpose);
    ``path``, ``config``, ``hub_split``, ``revision``, ``sha256`` say where and what it is, ``rows`` and ``seed`` which
    part. data_dir: where local files lie.
    Rows that repeat both question and answer, and those with gaps, are dropped, counted and (the first thousand)
    listed; ``rows`` with ``seed`` takes a random part in the order of the source, ``rows`` alone the first. Raises
    SourceError.
    """
    own: _OwnFields | None = None
    read: Callable[[Row], Row]
    if entry.get("fields"):
        known = benchmarks.ProblemSet(name=entry["name"], benchmark="", grader="", file=entry.get("path"))
        read = own = _OwnFields(entry["name"], entry["fields"], entry.get("unused", []))
    else:
        name, split = entry["name"], entry.get("split")
        if name in benchmarks.names() and f"{name}_{split}" not in benchmarks.names():
            split = None  # it is one of the hub's
        known = benchmarks.problem_set(name, split)
        module = import_module(f"{benchmarks.__name__}.{known.benchmark}")
        read = getattr(module, "read", dict)
    sha256 = None
    numbered: Iterable[tuple[int, Any]]
    if entry["source"] == "generated":
        place, numbered = "generated", enumerate(module.generate(known.split, entry.get("rows"), entry.get("seed")))
    elif entry["source"] == "local":
        path = _local_path(entry.get("path") or known.file or "", data_dir)
        place, sha256, numbered = path.name, _checked_sha256(path, entry.get("sha256")), files.rows(path)
    else:
        place, numbered = _hub_rows(entry, known)
    unit = "line" if place.endswith(".jsonl") else "row"
    clean = ((f"{place}: {unit} {number + 1}", row) for number, row in numbered)
    gaps = _Gaps() if entry.get("gaps") == "drop" else None
    rows = gaps.without(clean, read) if gaps else ((number, *placed) for number, placed in enumerate(clean))
    cleaned = ((number, where, _cleaned(row, read, where, known.gaps)) for number, where, row in rows)
    kept, record = _collected(cleaned, known.name)
    if gaps:
        record |= {"rows": record["rows"] + gaps.count} | gaps.record(kept)
    if own:
        record["unused_columns"] = sorted(own.left_out)
    if not kept:
        raise SourceError(f"{place}: the file is empty; a problem set needs at least one row")
    record |= {"source": f"{entry['source']}:{place}", "revision": entry.get("revision"), "version": known.version}
    if sha256:
        record["sha256"] = sha256
    return _part(kept, entry, place), record


def _local_path(file: str, data_dir: str | None) -> Path:
    path = Path(data_dir or ".").expanduser() / file
    if path.is_dir():
        raise SourceError(f"{path}: a folder, not a file")
    if lost := file_kinds.lost_link(path):
        raise SourceError(f"{path}: {lost}")
    if not path.is_file():
        hint = "" if data_dir else "; say where local files lie with --config data_dir=PATH"
        raise SourceError(f"{path}: no such file{hint}")
    return path


def _checked_sha256(path: Path, expected: str | None) -> str:
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from None
    if expected and found != expected:
        raise SourceError(
            f"{path}: the file has changed: sha256 {found[:12]}…, the study was planned with {expected[:12]}…"
        )
    return found


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
        batches = rows.with_format("arrow").iter(_BATCH)  # a set may be larger than memory
        return path, enumerate(row for batch in batches for row in batch.to_pylist())
    except Exception as error:  # the client raises what its many layers raise; each of them ends the job
        local = f", or data_dir to a folder with {known.file}" if known.file else ""
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SourceError(
            f"{path}, revision {revision}, cannot be had from the hub ({cause}); set HF_ENDPOINT to a mirror, HF_HOME "
            f"to a cache that holds it{local}"
        ) from None


class _OwnFields:
    """Reads rows of a set of the user's own, and refuses columns that look like a part of the question nobody reads."""

    def __init__(self, name: str, named: dict[str, fields.Field], on_purpose: list[str]) -> None:
        self.name, self.fields, self.on_purpose = name, named, set(on_purpose)
        self.left_out: set[str] = set()

    def __call__(self, row: Row) -> Row:
        """question, answer and perhaps id. Raises KeyError(column) and FieldFault."""
        found = {key: fields.value(row, field) for key, field in self.fields.items()}
        left_out = fields.unused(row, self.fields.values())
        lost = [name for name in left_out if fields.is_part_of_a_question(name) and name not in self.on_purpose]
        if lost:
            raise fields.FieldFault(
                f"no field reads {_named(lost)}, which may be a part of the question; name it in a template, such as "
                f"sets.{self.name}.fields.question: '{{{lost[0]}}} {{question}}', or, if it is left out on purpose, in "
                f"sets.{self.name}.unused"
            )
        self.left_out.update(left_out)
        return found


def _named(columns: list[str]) -> str:
    return f"column{'s' * (len(columns) > 1)} {', '.join(map(repr, columns))}"


class _Gaps:
    """Rows without question or answer: left out, counted, and the first of them listed."""

    def __init__(self) -> None:
        self.count, self.rows = 0, list[int]()
        self.lost: str | None = None

    def without(self, placed: Iterable[tuple[str, Any]], read: Callable[[Row], Row]) -> Iterator[tuple[int, str, Any]]:
        """Number, place and content of the rows that have both."""
        for number, (place, row) in enumerate(placed):
            try:
                clean = read(row)
                is_gap = any(fields.is_blank(clean[key]) for key in ("question", "answer"))
            except KeyError as error:
                is_gap, self.lost = True, str(error.args[0])
            except (AttributeError, IndexError, TypeError, ValueError):
                is_gap = False  # said with its place when the row is cleaned
            if not is_gap:
                yield number, place, row
                continue
            self.count += 1
            if self.count <= _LISTED:
                self.rows.append(number)

    def record(self, kept: list[Row]) -> Row:
        """For the footer. SourceError if no row has both."""
        if self.count and not kept:
            lost = f"; no column {self.lost!r}" if self.lost else ""
            raise SourceError(f"none of {self.count} rows has both a question and an answer{lost}")
        return {"gaps": self.count, "gap_rows": self.rows}


def _cleaned(row: Any, read: Callable[[Row], Row], place: str, gaps: bool) -> Row:
    """question, answer, difficulty and perhaps id of one source row, each checked."""
    try:
        clean = read(row)
    except KeyError as error:
        columns = ", ".join(map(str, row)) if isinstance(row, dict) else "none"
        raise SourceError(f"{place}: no column {error.args[0]!r}; columns: {columns}") from None
    except fields.FieldFault as error:
        raise SourceError(f"{place}: {error}") from None
    except (AttributeError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise SourceError(f"{place}: not in the form this set has ({error})") from None
    for key in ("question", "answer", "id"):
        if isinstance(value := clean.get(key), float) and not math.isfinite(value):
            raise SourceError(f"{place}: the {key} is {value}, which is no number")
    answer = clean["answer"]
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        answer = f"{answer:.15g}" if isinstance(answer, float) else str(answer)
    missing = gaps and (answer is None or (isinstance(answer, str) and not answer.strip()))
    found = {
        "question": _text(clean["question"], "question", place),
        "answer": "" if missing else _text(answer, "answer", place).strip(),
    }
    if "id" in clean:
        found["id"] = _text(clean["id"] if isinstance(clean["id"], str | None) else str(clean["id"]), "id", place)
    return {**found, "difficulty": clean.get("difficulty")}


def _text(value: Any, key: str, place: str) -> str:
    if not isinstance(value, str):
        raise SourceError(f"{place}: the {key} is {'null' if value is None else 'not a text'}")
    if not value.strip():
        raise SourceError(f"{place}: the {key} is empty")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise SourceError(f"{place}: the {key} holds half a character (a lone surrogate)")
    return value


def problem_id(benchmark: str, question: str, answer: str) -> str:
    """Sixteen hex digits that name a problem, whatever file it came from: of its set's name, raw text and answer."""
    return hashlib.sha256(json.dumps([benchmark, question, answer]).encode()).hexdigest()[:16]


def _collected(placed: Iterable[tuple[int, str, Row]], benchmark: str) -> tuple[list[Row], Row]:
    """Each problem once, in the order of the source, and of what was read: rows, sha256, and rows that are repeats."""
    kept: dict[str, Row] = {}
    ids: dict[str, tuple[str, str]] = {}
    duplicates: list[int] = []
    count, repeated, sha256 = 0, 0, hashlib.sha256(b"[")
    for number, place, row in placed:
        identity = problem_id(benchmark, row["question"], row["answer"])
        own_id = row.pop("id", None)
        if own_id is not None and ids.setdefault(own_id, (identity, place))[0] != identity:
            raise SourceError(f"{place}: the id {own_id[:60]!r} is that of another problem ({ids[own_id][1]})")
        sha256.update((", " if count else "").encode() + json.dumps(row, sort_keys=True).encode())
        count += 1
        if identity not in kept:
            kept[identity] = {"problem_id": identity, "benchmark": benchmark, "row": number, **row}
            continue
        repeated += 1
        if repeated <= _LISTED:
            duplicates.append(number)
    sha256.update(b"]")
    record = {"rows": count, "duplicate_rows": repeated, "duplicates": duplicates, "sha256": sha256.hexdigest()}
    return list(kept.values()), record


def _part(rows: list[Row], entry: dict[str, Any], place: str) -> list[Row]:
    wanted, seed = entry.get("rows"), entry.get("seed")
    if wanted is None:
        return rows
    if wanted > len(rows):
        raise SourceError(f"{place}: {wanted} rows asked for, {len(rows)} different ones are there")
    if seed is None or entry["source"] == "generated":
        return rows[:wanted]
    return [rows[i] for i in sorted(Random(f"rows {seed}").sample(range(len(rows)), wanted))]
