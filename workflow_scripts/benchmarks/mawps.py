"""MAWPS (Koncel-Kedziorski et al. 2016), the single-operation and the addition-subtraction parts; local files only."""

from typing import Any

from workflow_scripts.benchmarks import ProblemSet

SETS = tuple(
    ProblemSet(
        name=f"mawps_{part}",
        benchmark="mawps",
        split=part,
        grader="exact_answer",
        file=f"mawps_{part}.jsonl",
        size=size,
    )
    for part, size in (("singleop", 562), ("addsub", 395))
)


def read(row: dict[str, Any]) -> dict[str, Any]:
    """question, answer; whole numbers are stored as floats there (14.0 is 14)."""
    target = row["target"]
    return {"question": row["input"], "answer": target if target is None else f"{target:.15g}"}
