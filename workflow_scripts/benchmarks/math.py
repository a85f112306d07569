"""MATH (Hendrycks et al. 2021), the train split: competition problems; the answer stands in the solution's last box.

The test split holds MATH500, so it is no set of its own here.
"""

from typing import Any

from workflow_scripts.benchmarks import Hub, ProblemSet
from workflow_scripts.benchmarks.boxes import last_box

SETS = (
    ProblemSet(
        name="math_train",
        benchmark="math",
        split="train",
        grader="math_answer",
        hub=Hub("DigitalLearningGmbH/MATH-lighteval", "default", "train", "0530c78699ea5e8eb5530600900e1f328b48acad"),
        file="math_train.jsonl",
        size=7500,
        gaps=True,
    ),
)


def read(row: dict[str, Any]) -> dict[str, Any]:
    """question, answer, difficulty ("Level 3" is 3; a few problems have none)."""
    level = str(row["level"]).removeprefix("Level ")
    difficulty = int(level) if level.isdecimal() else None
    return {"question": row["problem"], "answer": last_box(row["solution"]), "difficulty": difficulty}
