"""Pairs of completions and reference answers with the verdict of a careful reader, where their file lies."""

import json

import pytest
from problem_files import REAL

from workflow_scripts import grading

PAIRS = REAL.parent / "cases" / "grading" / "pairs.jsonl"

# Rows on which this project disagrees with the wanted verdict, each with the reason: none.
DISAGREE: dict[str, str] = {}

# Rows without a wanted verdict that are paid, and why. All others of these are not.
DEBATABLE_PAID = {"p297": "05:30 for 5:30, which names neither half of the day"}


def test_every_pair_has_the_verdict_of_a_reader() -> None:
    if not PAIRS.is_file():
        pytest.skip(f"{PAIRS.name} is not in {PAIRS.parent}")
    rows = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    verdicts = grading.grade_many("math_answer", [(row["completion"], row["gold"], row["truncated"]) for row in rows])
    faults = []
    for row, verdict in zip(rows, verdicts, strict=True):
        want = row["want"] if row["want"] is not None else row["id"] in DEBATABLE_PAID
        if (verdict.status == "correct") != bool(want) and row["id"] not in DISAGREE:
            faults.append(f"{row['id']}: {row['completion'][-80:]!r} for {row['gold']!r} is {verdict.status}")
    assert len(rows) >= 300 and not faults, "\n".join(faults)
