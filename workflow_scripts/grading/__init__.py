"""Grading: one module per kind of answer, each with ``grade(completion, answer, truncated)`` and ``stated(answer)``.

A module may have ``grade_many(rows)``, where grading rows together is faster than one by one, and
``copied(completion, answer, question)``, where it can tell an answer that is copied from the question. A reference
answer may hold alternatives (`_alternatives`), any of which is right.
The training reward and the evaluation use the same function. ``REWARD_VERSION``, or a ``REWARD_VERSION`` of the
grader's own, stands for it in the key of a training run, so a grader may be rewritten without retraining as long as no
verdict changes; a golden test compares verdicts and asks for a higher version when one does.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import version as installed_version
from pkgutil import iter_modules
from types import ModuleType

from workflow_scripts.errors import UserError
from workflow_scripts.grading._alternatives import alternatives

REWARD_VERSION = 1


@dataclass(frozen=True)
class Grade:
    """What a grader says of one completion.

    status: correct, wrong, unparsed (no answer in the form asked for), truncated (cut at the token limit before an
    answer was complete), timeout (no verdict within the grader's limits). answer: the answer found, in one canonical
    form, or None.
    """

    status: str
    answer: str | None


Row = tuple[str, str, bool]  # completion, reference answer, cut at the token limit
Grader = Callable[[str, str, bool], Grade]


class GraderError(UserError):
    """A grader could not work at all; one line for the user."""


class RewardVersionError(UserError):
    """A run is held to another version of the reward than this code has; one line for the user."""


def version(name: str) -> int:
    """Version of a grader's verdicts; of any other reward, such as a user's package.module:function, the common one."""
    return getattr(_module(name), "REWARD_VERSION", REWARD_VERSION) if name in names() else REWARD_VERSION


def libraries(name: str) -> dict[str, str]:
    """Versions of the libraries that a grader's verdicts rest on, its LIBRARIES; none for most."""
    return {library: installed_version(library) for library in getattr(_module(name), "LIBRARIES", ())}


def hold_to(pinned: int, name: str) -> None:
    """Raises RewardVersionError unless the grader's version is the one that a study's runs are held to."""
    if pinned != version(name):
        raise RewardVersionError(
            f"training.reward: the study's runs are held to reward version {pinned}, this code has {version(name)}; "
            "run with --config retrain_on_reward_change=true (all runs are trained again), or with the older code"
        )


def names() -> tuple[str, ...]:
    """Names of the graders."""
    return tuple(sorted(module.name for module in iter_modules(__path__) if not module.name.startswith("_")))


def _module(name: str) -> ModuleType:
    if name not in names():
        near = get_close_matches(name, names(), n=1) or names()
        raise KeyError(f"no grader {name!r}; nearest: {', '.join(near)}")
    return import_module(f"{__name__}.{name}")


def grader(name: str) -> Grader:
    """``grade(completion, answer, truncated) -> Grade`` of that name; KeyError with the nearest if there is none."""
    return _module(name).grade


def knows_copies(name: str) -> bool:
    """Whether the grader of that name can tell an answer that is copied from the question."""
    return name in names() and hasattr(_module(name), "copied")


def grade_many(name: str, rows: Sequence[Row], questions: Sequence[str] | None = None) -> list[Grade]:
    """Verdicts of the grader of that name on rows; equal rows are graded once.

    questions: of each row, where an answer that is copied from its question is wrong (`knows_copies`); None where it is
    paid. GraderError: the grader could not work. KeyError: there is no such grader.
    """
    module = _module(name)
    known = _graded(module, dict.fromkeys((said, one, cut) for said, gold, cut in rows for one in alternatives(gold)))
    verdicts = []
    for said, gold, cut in rows:
        found = [known[said, one, cut] for one in alternatives(gold)]
        verdicts.append(next((verdict for verdict in found if verdict.status == "correct"), found[0]))
    if questions is None:
        return verdicts
    copied: Callable[[str, str, str], bool] = module.copied
    return [
        Grade("wrong", verdict.answer) if verdict.status == "correct" and copied(row[0], row[1], question) else verdict
        for verdict, row, question in zip(verdicts, rows, questions, strict=True)
    ]


def _graded(module: ModuleType, rows: Iterable[Row]) -> dict[Row, Grade]:
    """Verdicts of distinct rows, each with one reference answer."""
    distinct = list(rows)
    together = getattr(module, "grade_many", None)
    verdicts = together(distinct) if together else [module.grade(*row) for row in distinct]
    return dict(zip(distinct, verdicts, strict=True))


def stated(name: str, answer: str) -> str:
    """A completion that states `answer`, or the first of its alternatives, in the form this grader asks for."""
    return _module(name).stated(alternatives(answer)[0])
