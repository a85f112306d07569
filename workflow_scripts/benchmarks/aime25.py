"""AIME 2025 I and II: 30 competition problems whose answers are whole numbers from 0 to 999."""

from typing import Any

from workflow_scripts.benchmarks import Hub, ProblemSet

SETS = (
    ProblemSet(
        name="aime25",
        benchmark="aime25",
        grader="math_answer",
        hub=Hub("math-ai/aime25", None, "test", "563bb8404243c5f09de6ec262f2db674fe5bce9b"),
        file="aime25.jsonl",
        size=30,
    ),
)


def read(row: dict[str, Any]) -> dict[str, Any]:
    """question, answer; 025 is 25."""
    return {"question": row["problem"], "answer": str(int(row["answer"]))}
