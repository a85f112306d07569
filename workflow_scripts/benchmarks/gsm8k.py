"""GSM8K (Cobbe et al. 2021): grade-school word problems; the answer follows ``####`` at the end of the solution."""

from typing import Any

from workflow_scripts.benchmarks import Hub, ProblemSet

SETS = tuple(
    ProblemSet(
        name=f"gsm8k_{split}",
        benchmark="gsm8k",
        split=split,
        grader="exact_answer",
        hub=Hub("openai/gsm8k", "main", split, "e53f048856ff4f594e959d75785d2c2d37b678ee"),
        file=f"gsm8k_{split}.jsonl",
        size=size,
    )
    for split, size in (("train", 7473), ("test", 1319))
)


def read(row: dict[str, Any]) -> dict[str, Any]:
    """question, answer (the number after the last ``####``, thousands commas removed)."""
    _, marker, answer = row["answer"].rpartition("####")
    return {"question": row["question"], "answer": answer.strip().replace(",", "") if marker else None}
