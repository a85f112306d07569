"""SVAMP (Patel et al. 2021): variations of one- and two-step word problems; a story and a question that ends it.

The hub's copy holds the 1000 problems in two parts, which the paper does not have, and its answers as text.
"""

from typing import Any

from workflow_scripts.benchmarks import Hub, ProblemSet

SETS = (
    ProblemSet(
        name="svamp",
        benchmark="svamp",
        grader="exact_answer",
        hub=Hub("ChilleD/SVAMP", None, "train+test", "5e0bf1e5e7c0e9c4bc39180d224f41f3f801b7ef"),
        file="svamp.jsonl",
        size=1000,
    ),
)


def read(row: dict[str, Any]) -> dict[str, Any]:
    """question (story and question joined; a story without a full stop is a clause), answer (145.0 is 145)."""
    body, target = row["Body"].strip(), row["Answer"]
    joint = " " if body.endswith((".", "?", "!", ",")) else ", "
    return {"question": f"{body}{joint}{row['Question']}", "answer": target if target is None else float(target)}
