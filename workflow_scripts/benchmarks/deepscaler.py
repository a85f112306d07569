"""DeepScaleR (Luo et al. 2025): AIME and AMC before 2023, Omni-MATH and STILL; and two parts of its sources.

The parts are files of the authors' repository (rllm, data/train), MATH and AIME 1983 to 2023, not deduplicated against
anything: for local use alone, as the hub has only what was made of them. A few rows have no answer.
"""

from typing import Any

from workflow_scripts.benchmarks import Hub, ProblemSet

SETS = (
    ProblemSet(
        name="deepscaler",
        benchmark="deepscaler",
        grader="math_answer",
        hub=Hub("agentica-org/DeepScaleR-Preview-Dataset", None, "train", "b6ae8c60f5c1f2b594e2140b91c49c9ad0949e29"),
        file="deepscaler.json",
        size=40315,
        gaps=True,
    ),
    *(
        ProblemSet(
            name=f"deepscaler_{part}_train",
            benchmark="deepscaler",
            split=f"{part}_train",
            grader="math_answer",
            file=f"deepscaler_{part}_train.json",
            size=size,
            gaps=True,
        )
        for part, size in (("math", 7474), ("aime", 975))
    ),
)


def read(row: dict[str, Any]) -> dict[str, Any]:
    """question, answer; difficulty where it is a whole level."""
    level = float(row.get("difficulty") or 0)
    difficulty = int(level) if level > 0 and level.is_integer() else None
    return {"question": row["problem"], "answer": row["answer"], "difficulty": difficulty}
