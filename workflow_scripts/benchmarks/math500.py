"""MATH500 (Lightman et al. 2023): 500 of the 5000 test problems of MATH, with their answers on their own."""

from typing import Any

from workflow_scripts.benchmarks import Hub, ProblemSet

SETS = (
    ProblemSet(
        name="math500",
        benchmark="math500",
        grader="math_answer",
        hub=Hub("HuggingFaceH4/MATH-500", None, "test", "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be"),
        file="math500.jsonl",
        size=500,
    ),
)


def read(row: dict[str, Any]) -> dict[str, Any]:
    """question, answer, difficulty (level 1 to 5)."""
    return {"question": row["problem"], "answer": row["answer"], "difficulty": int(row["level"])}
