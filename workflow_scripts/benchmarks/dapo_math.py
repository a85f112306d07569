"""DAPO-Math-17k (Yu et al. 2025): competition problems, reworded so that every answer is a whole number.

The published table repeats some 17 thousand problems about a hundred times (1,791,700 rows), and wraps each in an
instruction that asks for "Answer:" on the last line. The instruction is taken off: how a model is asked is its prompt
family's business, the same in training and evaluation.
"""

from typing import Any

from workflow_scripts.benchmarks import Hub, ProblemSet

SETS = (
    ProblemSet(
        name="dapo_math",
        benchmark="dapo_math",
        grader="math_answer",
        hub=Hub("BytedTsinghua-SIA/DAPO-Math-17k", None, "train", "65877096c24ffa7abc4e4fa5edb95cf3413a5674"),
        file="dapo-math-17k.parquet",
        size=1_791_700,
    ),
)

_BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
_AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'


def read(row: dict[str, Any]) -> dict[str, Any]:
    """question (the one message of the prompt, without its instruction), answer. ValueError if it has another form."""
    (message,) = row["prompt"]
    text = message["content"]
    if not (text.startswith(_BEFORE) and text.endswith(_AFTER)):
        raise ValueError("the prompt lacks the instruction around the problem")
    return {"question": text[len(_BEFORE) : -len(_AFTER)].strip(), "answer": row["reward_model"]["ground_truth"]}
