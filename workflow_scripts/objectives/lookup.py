"""The functions that an arm names on its axes: those of this package, or the user's own."""

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any

from workflow_scripts.objectives.checked import PolicyError


def named(axis: str, name: str) -> Callable[..., Any]:
    """The function of that name on an axis, which is a module here, or package.module:function of the user's own.

    Ours are looked up at run time, so that the code of one policy counts for the arms that use it (the rules hand it to
    the digest). Raises PolicyError for a function of the user's own that cannot be had.
    """
    if ":" not in name:
        return getattr(import_module(f"workflow_scripts.objectives.{axis}"), name)
    return imported(name, axis)


def imported(name: str, key: str) -> Callable[..., Any]:
    """A function of the user's own, package.module:function. Where it cannot be had, raises PolicyError, which names
    the key of the study."""
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)
    except Exception as error:  # the module is the user's: anything may happen in it
        why = str(error) if isinstance(error, (ImportError, AttributeError)) else f"{type(error).__name__}: {error}"
        raise PolicyError(f"{key}: {name}: {why}") from None
    if not callable(found):
        raise PolicyError(f"{key}: {name}: a function, not {found!r:.60}")
    return found


def keywords(function: Callable[..., Any], keys: dict[str, Any]) -> dict[str, Any]:
    """The keys that are keyword-only arguments of a function, as far as they are set."""
    names = [name for name, one in signature(function).parameters.items() if one.kind is one.KEYWORD_ONLY]
    return {name: keys[name] for name in names if keys.get(name) is not None}
