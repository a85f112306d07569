"""Shared by the tests of objectives: every registered clip policy and surrogate, and numbers to call it with."""

import math
from typing import Any

import torch

from workflow_scripts.digest import keyword_arguments
from workflow_scripts.objectives import bounds
from workflow_scripts.objectives.bounds import Bounds, Group

POLICIES = sorted(keyword_arguments("objectives.bounds"))
SURROGATES = sorted(keyword_arguments("objectives.surrogate"))
NUMBERS = {
    "eps_low": 0.2, "eps_high": 0.28, "eps_high_max": 0.28, "eps_low_max": 0.25, "dual_clip_bound": 3.0,
    "eps_1": 0.2, "eps_2": 0.2, "eps_3": 0.2, "eps_4": 0.2, "cispo_upper": 1.2,
}  # fmt: skip
OF_A_NEW_KEY = 0.2  # so that a policy added later is tested before it is named here


def keys(module: str, name: str, numbers: dict[str, Any] | None = None) -> dict[str, Any]:
    """The required keys of a function of `objectives`, and those of its optional ones that numbers has."""
    required, optional = keyword_arguments(f"objectives.{module}")[name]
    given = NUMBERS | (numbers or {})
    return {key: given.get(key, OF_A_NEW_KEY) for key in (*required, *(k for k in optional if k in given))}


def group(advantage: list[float], correct: list[float], size: int = 8, q: float = 0.5) -> Group:
    """Rollouts of one token each, of old probability q; float64."""
    a, c = (torch.tensor(values, dtype=torch.float64).unsqueeze(1) for values in (advantage, correct))
    return Group(a, c, size, torch.full_like(a, math.log(q) if q else -math.inf))


def policy(name: str, where: Group, **numbers: float) -> Bounds:
    """What a registered policy says, with `NUMBERS` where others are not given."""
    return getattr(bounds, name)(where, **keys("bounds", name, numbers))
