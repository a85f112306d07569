"""AIME 2024 I and II: 30 competition problems whose answers are whole numbers from 0 to 999."""

from typing import Any

from workflow_scripts.benchmarks import Hub, ProblemSet

SETS = (
    ProblemSet(
        name="aime24",
        benchmark="aime24",
        grader="math_answer",
        hub=Hub("HuggingFaceH4/aime_2024", None, "train", "2fe88a2f1091d5048c0f36abc874fb997b3dd99a"),
        file="aime24.jsonl",
        size=30,
    ),
)


def read(row: dict[str, Any]) -> dict[str, Any]:
    """question, answer; 025 is 25."""
    return {"question": row["problem"], "answer": str(int(row["answer"]))}
