r"""Grader for answers in LaTeX: numbers, expressions, tuples, sets, intervals, relations, matrices, words, choices.

Where the answer is looked for: after the last ``</think>`` if there is one, in the last balanced ``\boxed{}``; if there
is none, after the last ``####``; if there is none, after the last "answer is". A number elsewhere is no answer.
What is equal to what, and where the grader is known to be stricter or laxer than a reader: docs/grading.md.

A reference answer may be
- a list, ``1, -2``: the answers in any order, each once (commas with a space after them: ``100,200`` is a number);
- with a tolerance, ``9.81\tolerance{0.05}``: a number at most so far away is correct. In a list each answer may have
  its own. For text of a reference answer alone; in a completion it is no answer.
A reference answer that cannot be read pays nothing, whatever is said.

Values are read and compared in a pool of processes (`grading._server`), each with its limits of processor time and
memory; an answer that runs into one has status timeout. Whole numbers and decimals are compared here, as fractions.
"""

import threading
from collections.abc import Sequence
from functools import lru_cache

from workflow_scripts.grading import Grade, _pool
from workflow_scripts.grading._answer_text import latex
from workflow_scripts.grading.math_answer import copies

REWARD_VERSION = 3
LIBRARIES = ("math-verify", "latex2sympy2-extended", "sympy")

_MOST_KNOWN = 1 << 16
_known: dict[tuple[str, str], tuple[str, str | None]] = {}  # (answer, reference answer) -> status, value
_filling = threading.Lock()
_tidy = lru_cache(_MOST_KNOWN)(latex.tidy)


def _compared(pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, str | None]]:
    """Status and value of pairs of tidy texts; each pair is graded once. Other threads may empty `_known` meanwhile."""
    found = {pair: verdict for pair in dict.fromkeys(pairs) if (verdict := _known.get(pair))}
    new = [pair for pair in dict.fromkeys(pairs) if pair not in found]
    fresh = dict(zip(new, _pool.ask(new), strict=True))
    with _filling:
        if len(_known) + len(fresh) > _MOST_KNOWN:
            _known.clear()
        _known.update(fresh)
    return found | fresh


def grade_many(rows: Sequence[tuple[str, str, bool]]) -> list[Grade]:
    """Verdicts on rows of completion, reference answer, and whether the completion was cut at the token limit."""
    verdicts: list[Grade | None] = []
    asked: list[tuple[int, tuple[str, str]]] = []
    for completion, answer, truncated in rows:
        none = Grade("truncated" if truncated else "unparsed", None)
        place, open_end = latex.stated_answer(completion)
        verdicts.append(none)
        if place is None or (truncated and open_end):
            continue
        said, gold = latex.plain_number(place), latex.plain_number(answer)
        if said is not None and gold is not None:
            verdicts[-1] = Grade("correct" if said == gold else "wrong", str(said))
            continue
        texts = _tidy(place), _tidy(answer)
        if texts[0] and texts[1]:
            asked.append((len(verdicts) - 1, (texts[0], texts[1])))
    found = _compared([pair for _, pair in asked])
    for row, pair in asked:
        status, value = found[pair]
        if status == "timeout":
            verdicts[row] = Grade("timeout", None)
        elif status != "unparsed":
            verdicts[row] = Grade(status, value or pair[0].replace(" ", ""))
    return [verdict for verdict in verdicts if verdict is not None]


def grade(completion: str, answer: str, truncated: bool) -> Grade:
    """Compare the answer that a completion states with the reference answer.

    truncated: the completion was cut at the token limit; an answer that the cut may have shortened, or that came before
    the end of the thinking (a box that text follows, in a completion without </think>), is none.
    """
    return grade_many([(completion, answer, truncated)])[0]


def copied(completion: str, answer: str, question: str) -> bool:
    """Whether the answer that a completion states is, as text, an expression of the question, and `answer` is none."""
    said, _ = latex.stated_answer(completion)
    return said is not None and copies.copied(said, answer, question)


def stated(answer: str) -> str:
    """A completion that states `answer` in the form asked for."""
    return f"\\boxed{{{latex.without_tolerance(answer)}}}"
