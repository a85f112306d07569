"""The user's own reward function, held to what TRL asks of one."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from workflow_scripts.training.errors import TrainingError


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, or coroutine function, with every fault of its a TrainingError of one line.

    It gets TRL's keyword arguments (prompts, completions, completion_ids, columns of the train set, trainer_state) and
    returns a number, or None, for each completion.
    """
    name = getattr(function, "__name__", type(function).__name__)

    def fault(error: Exception) -> TrainingError:
        return TrainingError(" ".join(f"training.reward: {name}: {type(error).__name__}: {error}".split()))

    def numbers(found: Any, completions: list[str]) -> list[float | None]:
        try:
            rewards = [None if reward is None else float(reward) for reward in found]
        except Exception as error:
            raise fault(error) from error
        if len(rewards) != len(completions):
            counts = f"{len(rewards)} rewards for {len(completions)} completions"
            raise TrainingError(f"training.reward: {name}: returned {counts}")
        return rewards

    @wraps(function)
    def call(completions: list[str], **more: Any) -> list[float | None]:
        try:
            found = function(completions=completions, **more)
        except Exception as error:
            raise fault(error) from error
        return numbers(found, completions)

    @wraps(function)
    async def wait(completions: list[str], **more: Any) -> list[float | None]:
        try:
            found = await function(completions=completions, **more)
        except Exception as error:
            raise fault(error) from error
        return numbers(found, completions)

    return wait if inspect.iscoroutinefunction(function) else call
