"""Minerva (Lewkowycz et al. 2022): 272 problems of university courses; many answers are rounded or are formulas."""

from typing import Any

from workflow_scripts.benchmarks import Hub, ProblemSet
from workflow_scripts.benchmarks.boxes import last_box

SETS = (
    ProblemSet(
        name="minerva_math",
        benchmark="minerva_math",
        grader="math_answer",
        hub=Hub("math-ai/minervamath", None, "test", "ee46ddc498933b1977577953250ca5c66be64f96"),
        file="minerva_math.jsonl",
        size=272,
    ),
)


def read(row: dict[str, Any]) -> dict[str, Any]:
    """question, answer: as the hub has them, or a problem and a solution with the answer in its last box."""
    if "solution" in row:
        return {"question": row["problem"], "answer": last_box(row["solution"])}
    return {"question": row["question"], "answer": row["answer"]}
