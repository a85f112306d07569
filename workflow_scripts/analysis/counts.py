"""The table counts as arrays: one cell per run, checkpoint and benchmark, after a check that the rows make sense."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from workflow_scripts import tables
from workflow_scripts.errors import UserError

Codes = NDArray[np.int64]
Counts = NDArray[np.int64]
Key = tuple[str, int, int, str]  # arm, seed, step, benchmark

_COUNTED = ("samples", "correct", "truncated", "unparsed", "completion_tokens")


@dataclass(frozen=True, eq=False)
class Cell:
    """Counts of one run at one checkpoint on one benchmark: (N,) each, in the order of the problems' ids."""

    samples: Counts
    correct: Counts
    truncated: Counts
    unparsed: Counts
    completion_tokens: Counts

    def __len__(self) -> int:
        return len(self.samples)


def coded(column: pa.ChunkedArray) -> tuple[Codes, list[str]]:
    """Each text's place among all different ones in their order, and those."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    names = whole.dictionary.to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    places = np.empty(len(names), dtype=np.int64)
    places[order] = np.arange(len(names))
    return places[whole.indices.to_numpy()], [names[i] for i in order]


def _refuse(path: str | Path, data: pa.Table, bad: NDArray[np.bool_], fault: str) -> None:
    if bad.any():
        row = data.slice(int(np.argmax(bad)), 1).to_pylist()[0]
        where = ", ".join(f"{column} {row[column]}" for column in tables.COUNTS.key)
        raise UserError(f"{path}: {fault}; {where}: {row['correct']} correct of {row['samples']} samples")


class Cells(dict[Key, Cell]):
    """(arm, seed, step, benchmark) -> its counts, in the order of the keys.

    problem_ids: benchmark -> the ids of its problems, in the order of every cell.
    """

    problem_ids: Mapping[str, list[str]] = MappingProxyType({})

    @classmethod
    def read(cls, path: str | Path, most: int) -> Self:
        """The rows of the table that count, in any order. most: samples that every problem needs.

        UserError names the file, the row and the fault.
        """
        data = tables.read(path, tables.COUNTS, coded=True)
        for column in (*tables.COUNTS.key, *_COUNTED):
            if data[column].null_count:
                _refuse(path, data, data[column].is_null().to_numpy(), f"no {column}")
        if data["excluded"].null_count < len(data):
            data = data.filter(pc.is_null(data["excluded"]))
        if not len(data):
            return cls()
        arms, benchmarks, problems = (coded(data[column]) for column in ("arm", "benchmark", "problem_id"))
        seed, step = (data[column].to_numpy() for column in ("seed", "step"))
        keys = np.stack([arms[0], seed, step, benchmarks[0], problems[0]])
        order = _order(keys)
        if order is not None:
            data, keys = data.take(order), keys[:, order]
        new = np.ones(len(data), dtype=bool)
        new[1:] = (keys[:4, 1:] != keys[:4, :-1]).any(axis=0)
        problem = keys[4]
        again = ~new
        again[1:] &= problem[1:] == problem[:-1]
        _refuse(path, data, again, "two rows for one problem")
        counted = [data[column].to_numpy() for column in _COUNTED]
        samples, correct = counted[:2]
        _refuse(path, data, (correct < 0) | (correct > samples), "correct must lie between 0 and samples")
        _refuse(path, data, samples < most, f"pass_at {most} needs as many samples")
        found, first = cls(), dict[str, tuple[str, Codes]]()
        starts = np.flatnonzero(new)
        for (a, s, t, b), start, end in zip(keys[:4, starts].T.tolist(), starts, [*starts[1:], len(data)], strict=True):
            rows, name, benchmark = slice(start, end), f"arm {arms[1][a]}, seed {s}, step {t}", benchmarks[1][b]
            found[arms[1][a], s, t, benchmark] = Cell(*(column[rows] for column in counted))
            other, reference = first.setdefault(benchmark, (name, problem[rows]))
            if not np.array_equal(problem[rows], reference):
                raise UserError(
                    f"{path}: {name} has {end - start} problems of {benchmark} and {other} has {len(reference)}, or "
                    "not the same ones; every run must be graded on the same problems"
                )
        found.problem_ids = {name: [problems[1][i] for i in codes] for name, (_, codes) in first.items()}
        return found


def _order(keys: Codes) -> Codes | None:
    """What sorts the columns of keys (5, rows) by its rows; None if they are in order, as `count` writes them."""
    later, undecided = np.zeros(keys.shape[1] - 1, dtype=bool), np.ones(keys.shape[1] - 1, dtype=bool)
    for row in keys:
        later |= undecided & (row[1:] < row[:-1])
        undecided &= row[1:] == row[:-1]
    return np.lexsort(keys[::-1]) if later.any() else None


def share(cells: list[Cell], column: str) -> float:
    """Sum of a count over all samples of the cells, per sample."""
    total: Any = sum(getattr(cell, column).sum() for cell in cells)
    return float(total / sum(cell.samples.sum() for cell in cells))
