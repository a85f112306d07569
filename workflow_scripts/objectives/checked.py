"""What a clip policy must return; it may be anyone's."""

from collections.abc import Callable
from functools import partial
from typing import Any

from workflow_scripts.errors import UserError
from workflow_scripts.objectives.bounds import Bounds, Group


class PolicyError(UserError):
    """A clip policy failed, or returned no bounds; one line for the user."""


def policy_name(policy: Any) -> str:
    """What an arm calls it."""
    return str((policy.func if isinstance(policy, partial) else policy).__name__)


def checked(policy: Callable[[Group], Any], group: Group) -> Bounds:
    """The policy's bounds, each (B,1) or (B,T). Raises PolicyError. Whether a bound is nan is not looked at: on a GPU
    that would wait for it."""
    name = f"clip policy {policy_name(policy)}"
    try:
        found = policy(group)
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise PolicyError(f"{name}: {why}") from error
    if not isinstance(found, Bounds):
        raise PolicyError(f"{name}: returned {type(found).__name__}, not Bounds")
    rows, tokens = group.old_log_prob.shape
    for side, bound in (("lower", found.lower), ("upper", found.upper)):
        if bound.shape not in ((rows, 1), (rows, tokens)):
            raise PolicyError(f"{name}: {side} is {tuple(bound.shape)}, not ({rows},1) or ({rows},{tokens})")
    return found
