r"""Minerva (Lewkowycz et al. 2022): 272 problems of university courses; many answers are rounded or are formulas.

A reference answer that is a number is right within 1 %, written as ``3.3e12\tolerance{1\%}``, the form that
`grading.math_answer` reads. 1 % is the threshold of `numeric_equality(n1, n2, threshold=0.01)` in the evaluation code
for this set (deepseek-ai/DeepSeek-Math, evaluation/eval/ocwcourses_eval_utils.py, commit 21cc5c6), which says of the
function next to it that it is the paper's (appendix D). In that code the threshold acts only where a number or the
difference is within 1e-8 of zero; elsewhere numpy's 1e-5 holds, which rounded answers cannot meet. Here it acts
everywhere. The paper itself could not be consulted.
"""

import re
from typing import Any

from workflow_scripts.benchmarks import Hub, ProblemSet
from workflow_scripts.benchmarks.boxes import last_box
from workflow_scripts.grading._alternatives import joined

SETS = (
    ProblemSet(
        name="minerva_math",
        benchmark="minerva_math",
        grader="math_answer",
        hub=Hub("math-ai/minervamath", None, "test", "ee46ddc498933b1977577953250ca5c66be64f96"),
        file="minerva_math.jsonl",
        size=272,
        version=2,
    ),
)

_NUMBER = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?:/\d+)?\s*")
_NUMPY = re.compile(r"np\.(arc(?:sin|cos|tan))\((\d+/\d+)\)")


def _accepted(answer: str) -> str:
    """The answer, with its tolerance if it is a number (for one problem it is the Python that computes it)."""
    answer = answer.strip().strip("$")
    if not (_NUMBER.fullmatch(answer) or _NUMPY.fullmatch(answer)):
        return answer
    return _NUMPY.sub(r"\\\1(\2)", answer) + r"\tolerance{1\%}"


def read(row: dict[str, Any]) -> dict[str, Any]:
    """question, answer: as the hub has them, or a problem and a solution with the answer in its last box.

    Where the answer is a list, as in files of the repository rllm, any one of them is right.
    """
    if "solution" in row and "answer" not in row:
        question, found = row["problem"], [last_box(row["solution"])]
    else:
        question = row["question"] if "question" in row else row["problem"]
        found = row["answer"] if isinstance(row["answer"], list) else [row["answer"]]
    answers = [str(answer) for answer in found if answer is not None and str(answer).strip()]
    return {"question": question, "answer": joined(map(_accepted, answers)) if answers else None}
