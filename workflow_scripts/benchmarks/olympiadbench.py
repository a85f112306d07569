r"""OlympiadBench (He et al. 2024), its open-ended, text-only, English maths part.

Several answers are joined by commas, in any order; a tolerance that the source gives (its ``error``) goes into the
reference answer as ``4.2\tolerance{0.1}``, the form `grading.math_answer` reads. The hub's part has one row less than
the file that evaluation code passes around.
"""

from typing import Any

from workflow_scripts.benchmarks import Hub, ProblemSet

SETS = (
    ProblemSet(
        name="olympiadbench",
        benchmark="olympiadbench",
        grader="math_answer",
        hub=Hub("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train", "91184b52131e7fc9455fef848035173aea8cc01a"),
        file="olympiadbench.jsonl",
        size=675,
    ),
)


def read(row: dict[str, Any]) -> dict[str, Any]:
    """question (after its context, where it has one), answer. ValueError for a row of another part of OlympiadBench."""
    if row.get("modality", "Text-only") != "Text-only" or row.get("language", "English") != "English":
        raise ValueError("not of the text-only English part")
    answers = [answer.strip() for answer in row["final_answer"]]
    if row["error"]:
        (answer,) = answers  # a tolerance of several answers does not occur
        answers = [rf"{answer.strip('$')}\tolerance{{{float(row['error']):.15g}}}"]
    question = "\n\n".join(part for part in (row.get("context"), row["question"]) if part)
    return {"question": question, "answer": ", ".join(answers)}
