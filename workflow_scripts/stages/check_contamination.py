"""Compare a benchmark with the candidates for training, and prove on planted copies that the comparison sees."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from workflow_scripts import tables
from workflow_scripts.decontamination import controls
from workflow_scripts.decontamination.overlap import KINDS, REMOVED_KINDS, Holdout, Pairs
from workflow_scripts.errors import UserError
from workflow_scripts.job import Job, run

LIBRARIES = ()

_LISTED_PER_ITEM = 3
_FULL_CONTROL = 30  # tokens

Row = dict[str, Any]
Problems = dict[str, list[Any]]
Others = dict[str, dict[int, Any]]  # by position in their table


def _listed(pairs: Pairs) -> Pairs:
    """Of each kind, three pairs of a holdout item, and one of every other item that may have to be removed.

    Templated problems resemble each other by the thousand; which rows to remove and which holdout items are touched is
    all that anything later needs.
    """
    order = np.lexsort((pairs.other, -pairs.jaccard, -pairs.coverage, pairs.holdout, pairs.kind))
    pairs = pairs.take(order)
    group = np.flatnonzero(np.r_[True, (np.diff(pairs.kind) != 0) | (np.diff(pairs.holdout) != 0)])
    place = np.arange(len(order)) - np.repeat(group, np.diff(np.r_[group, len(order)]))
    keep = place < _LISTED_PER_ITEM
    best = np.lexsort((pairs.holdout, -pairs.jaccard, -pairs.coverage, pairs.other, pairs.kind))
    first = np.r_[True, (np.diff(pairs.kind[best]) != 0) | (np.diff(pairs.other[best]) != 0)][: len(best)]
    keep[best[first & (pairs.kind[best] != KINDS.index("partial"))]] = True
    return pairs.take(np.flatnonzero(keep))


def _compared(index: Holdout, path: str) -> tuple[Pairs, Others]:
    """All pairs of a table of problems with the holdout, and the problems that are in one; the table streams."""
    found, start = [index.pairs([])], 0
    questions: dict[int, str] = {}
    for part in tables.parts(path, tables.PROBLEMS, "question"):
        texts = part.to_pylist()
        pairs = index.pairs(texts)
        questions |= {start + other: texts[other] for other in set(pairs.other.tolist())}
        found.append(replace(pairs, other=pairs.other + start))
        start += len(texts)
    ids = tables.read(path, tables.PROBLEMS, ["problem_id"])["problem_id"]
    return Pairs.joined(found), {"question": questions, "problem_id": {o: ids[o].as_py() for o in questions}}


def _rows(
    index: Holdout, pairs: Pairs, others: Problems | Others, holdout: Problems, kind: str | None = None
) -> list[Row]:
    return [
        {
            "benchmark": holdout["benchmark"][h],
            "kind": kind or KINDS[k],
            "holdout_problem_id": holdout["problem_id"][h],
            "other_problem_id": others["problem_id"][o],
            "coverage": coverage,
            "similarity": index.similarity(h, others["question"][o]),
            "removed": kind is None and KINDS[k] in REMOVED_KINDS,
            "caught": None,
            "holdout_question": holdout["question"][h],
            "other_question": others["question"][o],
        }
        for o, h, k, coverage in zip(
            pairs.other.tolist(), pairs.holdout.tolist(), pairs.kind.tolist(), pairs.coverage.tolist(), strict=True
        )
    ]


def _control(index: Holdout, kind: str, holdout: Problems) -> tuple[list[Row], dict[str, int]]:
    """Rows of one form of control, and how many were planted, caught, and could not be expressed."""
    edited = [controls.KINDS[kind](text) for text in holdout["question"]]
    planted = np.array([i for i, text in enumerate(edited) if text is not None], dtype=np.int64)
    texts = [edited[i] for i in planted]
    pairs = index.pairs(texts)
    own = pairs.take(planted[pairs.other] == pairs.holdout)
    found = dict(zip(own.holdout.tolist(), zip(own.kind.tolist(), own.coverage.tolist(), strict=True), strict=True))
    rows = []
    for i, text in zip(planted.tolist(), texts, strict=True):
        level, coverage = found.get(i, (None, None))
        removed = level is not None and KINDS[level] in REMOVED_KINDS
        rows.append(
            {
                "benchmark": holdout["benchmark"][i],
                "kind": kind,
                "holdout_problem_id": holdout["problem_id"][i],
                "other_problem_id": holdout["problem_id"][i],
                "coverage": coverage,
                "similarity": index.similarity(i, text),
                "removed": False,
                "caught": removed or (kind == "control_clause" and level is not None),
                "holdout_question": holdout["question"][i],
                "other_question": text,
            }
        )
    caught = sum(row["caught"] for row in rows)
    return rows, {"planted": len(rows), "caught": caught, "not_expressible": len(edited) - len(rows)}


def _totals(pairs: Pairs) -> dict[str, int]:
    return dict(zip(KINDS, np.bincount(pairs.kind, minlength=len(KINDS)).tolist(), strict=True))


def _problems(path: str) -> Problems:
    return tables.read(path, tables.PROBLEMS, ["problem_id", "benchmark", "question"]).to_pydict()


def _check_controls(benchmark: str, rows: Sequence[Row]) -> None:
    missed = [row for row in rows if not row["caught"] and row["kind"] in controls.MUST_BE_FOUND]
    if missed:
        raise UserError(
            f"{benchmark}: the positive control failed: {len(missed)} of {len(rows)} copies not found, the first "
            f"is {missed[0]['kind']} of problem {missed[0]['holdout_problem_id']}; no train row can be called clean"
        )


def main(job: Job) -> None:
    holdout = _problems(job.input("holdout"))
    index = Holdout(holdout["question"])
    pairs, train = _compared(index, job.input("train"))
    rows = _rows(index, _listed(pairs), train, holdout)
    within = index.pairs(holdout["question"])
    strong = np.isin(within.kind, [KINDS.index(kind) for kind in REMOVED_KINDS])
    rows += _rows(
        index, _listed(within.take(strong & (within.other < within.holdout))), holdout, holdout, "holdout_duplicate"
    )
    summary = {}
    planted: list[Row] = []
    for kind in controls.KINDS:
        found, summary[kind] = _control(index, kind, holdout)
        planted += found
    _check_controls(job.settings["benchmark"], planted)
    short = sum(length < _FULL_CONTROL for length in index.lengths)
    extra = {"pairs": _totals(pairs), "controls": {**summary, "holdout_items_under_30_tokens": short}}
    job.write("contamination", tables.CONTAMINATION, rows + planted, **extra)


if __name__ == "__main__":
    run(main, LIBRARIES)
