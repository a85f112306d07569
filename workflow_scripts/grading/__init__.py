"""Grading: one module per kind of answer, each with ``grade(completion, answer, truncated)`` and ``stated(answer)``.

The training reward and the evaluation use the same function. ``REWARD_VERSION`` stands for it in the key of a training
run, so a grader may be rewritten without retraining as long as no verdict changes; a golden test compares verdicts and
asks for a higher version when one does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

REWARD_VERSION = 1


@dataclass(frozen=True)
class Verdict:
    """What a grader says of one completion.

    status: correct, wrong, unparsed (no answer in the form asked for), truncated (cut at the token limit before an
    answer was complete), timeout. answer: the answer found, in one canonical form, or None.
    """

    status: str
    answer: str | None


Grader = Callable[[str, str, bool], Verdict]


class RewardVersionError(Exception):
    """A run is held to another version of the reward than this code has; one line for the user."""


def hold_to(pinned: int) -> None:
    """Raises RewardVersionError unless the code's version is the one that a study's runs are held to."""
    if pinned != REWARD_VERSION:
        raise RewardVersionError(
            f"training.reward: the study's runs are held to reward version {pinned}, this code has {REWARD_VERSION}; "
            "run with --config retrain_on_reward_change=true (all runs are trained again), or with the older code"
        )


def names() -> tuple[str, ...]:
    """Names of the graders."""
    return tuple(sorted(module.name for module in iter_modules(__path__)))


def _module(name: str) -> ModuleType:
    if name not in names():
        near = get_close_matches(name, names(), n=1) or names()
        raise KeyError(f"no grader {name!r}; nearest: {', '.join(near)}")
    return import_module(f"{__name__}.{name}")


def grader(name: str) -> Grader:
    """``grade(completion, answer, truncated) -> Verdict`` of that name; KeyError with the nearest if there is none."""
    return _module(name).grade


def stated(name: str, answer: str) -> str:
    """A completion that states `answer` in the form this grader asks for."""
    return _module(name).stated(answer)
