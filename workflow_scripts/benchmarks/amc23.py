"""AMC 12 2023: the 40 problems with a whole number as answer, reworded so that they need no choices."""

from typing import Any

from workflow_scripts.benchmarks import Hub, ProblemSet

SETS = (
    ProblemSet(
        name="amc23",
        benchmark="amc23",
        grader="math_answer",
        hub=Hub("math-ai/amc23", None, "test", "80815d37005feb82cd7f8fbc6901d5d3eff43057"),
        file="amc23.jsonl",
        size=40,
    ),
)


def read(row: dict[str, Any]) -> dict[str, Any]:
    """question, answer; whole numbers are stored as floats there (27.0 is 27)."""
    return {"question": row["question"], "answer": f"{float(row['answer']):.15g}"}
