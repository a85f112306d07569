"""MAWPS (Koncel-Kedziorski et al. 2016): the single-operation and the addition-subtraction parts, and a test split.

The parts are files of evaluation code, for local use alone: no table on the hub that is known by its commit says which
problem is of which part. The test split (520 problems) is the one that models trained on MAWPS are scored on.
"""

from typing import Any

from workflow_scripts.benchmarks import Hub, ProblemSet

SETS = (
    *(
        ProblemSet(
            name=f"mawps_{part}",
            benchmark="mawps",
            split=part,
            grader="exact_answer",
            file=f"mawps_{part}.jsonl",
            size=size,
        )
        for part, size in (("singleop", 562), ("addsub", 395))
    ),
    ProblemSet(
        name="mawps_test",
        benchmark="mawps",
        split="test",
        grader="exact_answer",
        hub=Hub("MU-NLPC/Calc-mawps", "original-splits", "test", "38c10053efeafd20ab6ff4e08c3ec17de26c19b7"),
        file="mawps_test.jsonl",
        size=520,
    ),
)


def read(row: dict[str, Any]) -> dict[str, Any]:
    """question, answer: of the parts (14.0 is 14), or of the test split (1_034 is 1034; 1/3 stays one)."""
    if "result" in row:
        result = row["result"]
        return {"question": row["question"], "answer": result if result is None else result.replace("_", "")}
    return {"question": row["input"], "answer": row["target"]}
