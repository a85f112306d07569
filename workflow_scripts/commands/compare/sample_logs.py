"""Counts from what evaluation harnesses write about each problem: sample logs of lm-evaluation-harness (jsonl) and
details of lighteval (parquet). Neither says which arm and seed it is of.

A metric of a problem is a share of the responses that were graded: n of them, c = metric x n correct.
"""

import ast
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from workflow_scripts import tables
from workflow_scripts.commands.compare.counts_table import WHOLE_FILE, InputError, Part, listed, near

PATTERNS = ("samples_*.jsonl", "details_*.parquet")  # what the harnesses call them
TASK = re.compile(r"(?:samples|details)_(.+?)(?:_\d{4}-\d\d-\d\dT[\d.-]+)?$")
USUAL = "exact_match"
UNFILTERED = (None, "none")  # older versions name no filter, newer ones call it so
# Keys of a line of lm-evaluation-harness that are not metrics, for versions that do not list theirs.
NOT_METRICS = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash",
               "prompt_hash", "target_hash"}  # fmt: skip
DRAWN = re.compile(r"(?:pass@|pass_at_|\bk=)(\d+)")  # how many answers a metric lets pass at once
GRADED = re.compile(r"\bn=(\d+)|:(\d+)_samples|pass@1:(\d+)")  # how many it grades, where its name says so
ROUNDING = 1e-6


@dataclass
class Sample:
    """One problem of one run, under one filter. metrics: name -> value; responses: drawn; graded: seen by the metric,
    None if not known."""

    place: str
    problem: str
    metrics: dict[str, Any]
    responses: int
    graded: int | None = 1
    filter: str | None = None
    contents: tuple[str, str] = ("", "")


def benchmark(path: Path) -> str:
    """Task in a file's name as the harnesses give it."""
    found = TASK.match(path.stem)
    return found.group(1) if found else WHOLE_FILE


def _choose(names: list[str], wanted: str | None, what: str, shown: Callable[[str], str]) -> str:
    """The one wanted, or the only one, or the usual one."""
    if wanted is not None:
        if wanted not in names:
            raise InputError(f"no {what} {wanted}{near(wanted, names)} (it has {listed(names) or 'none'})")
        return wanted
    if len(names) == 1:
        return names[0]
    if USUAL in names:
        return USUAL
    raise InputError(
        f"{len(names)} {what}s ({listed(names) or 'none'}); choose one, as in {shown((names or ['acc'])[0])}"
    )


# lm-evaluation-harness


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    """(place, entry) of a jsonl file, or of the JSON list that version 0.4.0 wrote under that name."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            start = next((line for line in file if line.strip()), "")
            file.seek(0)
            if start.lstrip().startswith("["):
                try:
                    yield from ((f"entry {i}", entry) for i, entry in enumerate(json.load(file), 1))
                except json.JSONDecodeError as error:
                    raise InputError(f"line {error.lineno}: no JSON: {error.msg}") from None
                return
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        yield f"line {number}", json.loads(line)
                    except json.JSONDecodeError as error:
                        raise InputError(f"line {number}: no JSON: {error.msg} at column {error.colno}") from None
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text") from None
    except (ValueError, RecursionError, MemoryError) as error:  # endless digits, deep nesting
        raise InputError(f"no JSON that can be read: {type(error).__name__}") from None


def _graded(entry: dict[str, Any]) -> tuple[int, int]:
    """Responses drawn for a problem, and those that its filter left to be graded."""

    def count(key: str) -> int:
        first = (entry.get(key) or [None])[0] if isinstance(entry.get(key), list) else None
        if not isinstance(first, list) or not first:
            return 1
        likelihood = len(first) == 2 and str(first[1]) in ("True", "False")  # of one continuation, and if it is greedy
        return 1 if likelihood else len(first)

    return count("resps"), count("filtered_resps")


def _lm_eval(path: Path) -> Iterator[Sample]:
    for place, entry in _entries(path):
        if not isinstance(entry, dict) or "doc_id" not in entry:
            raise InputError(f"{place}: no doc_id: not a sample log of lm-evaluation-harness")
        names = entry.get("metrics")
        if isinstance(names, list):
            if other := [name for name in names if not isinstance(name, str)]:
                raise InputError(f"{place}: metrics holds {other[0]!r}, and should be names")
        else:
            names = [key for key, value in entry.items() if key not in NOT_METRICS and isinstance(value, int | float)]
        drawn, graded = _graded(entry)
        yield Sample(
            place,
            str(entry["doc_id"]),
            {name: entry.get(name) for name in names},
            drawn,
            graded,
            None if entry.get("filter") is None else str(entry["filter"]),
            (str(entry.get("doc_hash") or ""), str(entry.get("prompt_hash") or "")),
        )


def _one_filter(samples: list[Sample], metric: str, wanted: str | None) -> list[Sample]:
    """Those of the filter chosen; each filter of a task has a line for each problem."""
    names = list(dict.fromkeys(sample.filter for sample in samples if sample.filter is not None))
    if not names:
        if wanted is not None:
            raise InputError(f"no filter {wanted}: this log does not name its filters")
        return samples
    chosen = _choose(names, wanted, "filter", lambda name: f"--metric {metric},{name}")
    return [sample for sample in samples if sample.filter == chosen]


# lighteval


def _literal(text: Any, place: str, column: str) -> Any:
    """A value that an older lighteval wrote as Python prints it."""
    try:
        return ast.literal_eval(re.sub(r"\bnan\b", "None", text)) if isinstance(text, str) else text
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise InputError(f"{place}: {column} cannot be read: {text[:40]!r}") from None


def is_details(names: list[str]) -> bool:
    """Whether a parquet file with these columns is lighteval's."""
    return ("metric" in names and "doc" in names) or ("metrics" in names and "example" in names)


def _lighteval(path: Path) -> Iterator[Sample]:
    """Columns of lighteval 0.13: doc, metric, model_response; of 0.6: example, metrics, predictions, all as text."""
    file = pq.ParquetFile(path)
    new = "metric" in file.schema_arrow.names
    columns = ["doc.query", "metric", "model_response.text"] if new else ["example", "metrics", "predictions"]
    seen: Counter[str] = Counter()
    number = 0
    for batch in file.iter_batches(1 << 10, columns=columns):
        for row in batch.to_pylist():
            number += 1
            place = f"row {number}"
            if new:
                query, metrics, texts = (row.get("doc") or {}).get("query"), row["metric"], row.get("model_response")
                texts = (texts or {}).get("text")
            else:
                query, metrics = row["example"], _literal(row["metrics"], place, "metrics")
                texts = _literal(row.get("predictions"), place, "predictions")
            if not isinstance(metrics, dict):
                raise InputError(f"{place}: no metrics")
            # Rows may come in any order; the text is what two evaluations of a task share.
            problem = tables.text_digest(str(query))
            seen[problem] += 1
            drawn = len(texts) if isinstance(texts, list) else 1
            named = {str(name): value for name, value in metrics.items() if value is not None}
            yield Sample(place, f"{problem}-{seen[problem]}", named, max(drawn, 1), None)


def _graded_by_name(samples: list[Sample], metric: str) -> None:
    """lighteval says in the metric's name how many answers it grades, or grades one (0 or 1), or all."""
    vote = metric.startswith("maj@")
    said = None if vote else GRADED.search(metric)
    single = vote or all(sample.metrics.get(metric) in (0, 1) for sample in samples)
    for sample in samples:
        sample.graded = int(next(filter(None, said.groups()))) if said else 1 if single else sample.responses


# Both


def _shares(samples: list[Sample], metric: str) -> list[float] | None:
    """A metric's values; None if one of them is not a number from 0 to 1, so that it cannot say what is correct."""
    values = [sample.metrics.get(metric) for sample in samples]
    numbers = [float(value) for value in values if isinstance(value, int | float) and 0 <= value <= 1]
    return numbers if len(numbers) == len(values) else None


def _check_alternatives(samples: list[Sample], metric: str) -> list[str]:
    """The metrics that could have been taken instead of the usual one.

    Raises InputError if the usual one is constant and another is not, or the other way round: one of them then does not
    measure what is correct, and only the user knows which.
    """
    own, others = _shares(samples, metric), []
    for name in dict.fromkeys(name for sample in samples for name in sample.metrics):
        values = _shares(samples, name)
        if name == metric or values is None or _allowed(name) > 1:
            continue
        others.append(name)
        if own is not None and (len(set(own)) == 1) != (len(set(values)) == 1):
            flat, moving = (metric, name) if len(set(own)) == 1 else (name, metric)
            constant = own[0] if flat == metric else values[0]
            raise InputError(
                f"{flat} is {constant:g} on all {len(samples)} problems while {moving} varies; choose what counts as "
                f"correct with --metric {metric} or --metric {name}"
            )
    return others


def _allowed(metric: str) -> int:
    """Of how many answers one must be correct for the metric to be 1, by its name."""
    found = DRAWN.search(metric)
    return int(found.group(1)) if found else 1


def _check_single(metric: str) -> None:
    if _allowed(metric) != 1:
        raise InputError(
            f"metric {metric} is 1 as soon as one of {_allowed(metric)} answers is correct: c cannot be determined; "
            "choose a metric of single answers with --metric"
        )


def _correct(sample: Sample, metric: str) -> tuple[int, int]:
    """(n, c) of one problem."""
    value, graded = sample.metrics.get(metric), sample.graded or 1
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{sample.place}: {metric} is {value!r}, and should be a number")
    correct = round(value * graded)
    if not 0 <= value <= 1 or abs(value * graded - correct) > ROUNDING * graded:
        graded_as = "one graded response" if graded == 1 else f"{graded} graded responses"
        raise InputError(f"{sample.place}: {metric} is {value:g}, which is no share correct of {graded_as}")
    return graded, correct


def read(path: Path, arm: str, seed: int, wanted: str | None) -> Part:
    """The counts of one log. wanted: METRIC, or METRIC,FILTER, that says what is correct; by default the only one, or
    exact_match. InputError, without the file's name, says what is wrong with it and in which line."""
    with path.open("rb") as file:
        parquet = file.read(4) == b"PAR1"
    try:
        samples = list((_lighteval if parquet else _lm_eval)(path))
    except pa.ArrowException as error:
        raise InputError(f"not a readable parquet file (truncated?): {str(error).splitlines()[0]}") from None
    if not samples:
        raise InputError("the file is empty" if not parquet else "no rows")
    names = list(dict.fromkeys(name for sample in samples for name in sample.metrics))
    if wanted is None or wanted in names:
        metric, of_filter = wanted, None
    else:
        metric, _, of_filter = wanted.partition(",")
    chosen, metric = metric is not None, _choose(names, metric, "metric", lambda name: f"--metric {name}")
    _check_single(metric)
    if parquet:
        _graded_by_name(samples, metric)
    else:
        samples = _one_filter(samples, metric, of_filter or None)
    counts = [_correct(sample, metric) for sample in samples]
    drawn = max(sample.responses for sample in samples)
    notes = []
    if others := [] if chosen else _check_alternatives(samples, metric):
        notes.append(f"{metric} counts as correct; the log also has {listed(others)}, which --metric can choose.")
    if drawn > 1 and max(n for n, _ in counts) == 1:
        notes.append(f"{drawn} responses a problem, of which {metric} grades one (a vote, or the first): n is 1.")
    rows = {
        "arm": [arm] * len(samples),
        "benchmark": [benchmark(path)] * len(samples),
        "problem": [sample.problem for sample in samples],
        "seed": [seed] * len(samples),
        "step": [0] * len(samples),
        "n": [n for n, _ in counts],
        "c": [c for _, c in counts],
    }
    return Part(
        str(path),
        pa.table(rows),
        lambda row: samples[row].place,
        {sample.problem: sample.contents for sample in samples if any(sample.contents)},
        notes,
        metric if samples[0].filter in UNFILTERED else f"{metric},{samples[0].filter}",
        True,
    )
