"""From the settings of a run to TRL's configuration, the arm's objective and the order of its prompts."""

import importlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from workflow_scripts.sampling import Options, stream_seed
from workflow_scripts.training.objective import Objective, RolloutPlan


def rollout_plan(settings: dict[str, Any]) -> RolloutPlan:
    """How rollout batches are made, from a run's settings."""
    rollout = settings["rollout"]
    return RolloutPlan(
        prompts=rollout["prompts"],
        group_size=rollout["group_size"],
        minibatches=rollout["minibatches"],
        epochs=rollout["epochs"],
        options=Options(rollout["temperature"], rollout["top_p"], rollout["max_completion"]),
        prompt_family=settings["model"]["prompt_family"],
        success_threshold=settings["training"]["success_threshold"],
    )


def prompt_order(rows: int, prompts: int, batches: int, seed: int) -> list[int]:
    """Row of the train set for every prompt of every rollout batch: a new permutation per pass, the same for all arms.

    Rows left over at the end of a pass, too few for a batch, wait for the next pass.
    """
    per_pass = rows // prompts
    order: list[int] = []
    for batch in range(batches):
        one_pass, place = divmod(batch, per_pass)
        if place == 0:
            random = np.random.Generator(np.random.Philox(key=stream_seed("order", seed, one_pass)))
            permutation = random.permutation(rows).tolist()
        order += permutation[place * prompts : (place + 1) * prompts]
    return order


def _function(module: str, name: str) -> Callable[..., Any]:
    return getattr(importlib.import_module(f"workflow_scripts.objectives.{module}"), name)


def make_objective(axes: dict[str, Any], beta: float) -> Objective:
    """The arm's functions, looked up by name (the rules hand their code to the digest), with its numbers bound."""
    used = {"ratio", "bounds", "surrogate", "advantage", "aggregation", "kl", "beta"}
    keys = {name: value for name, value in axes.items() if name not in used}
    surrogate = _function("surrogate", axes["surrogate"])
    own = {name: keys.pop(name) for name in inspect.signature(surrogate).parameters if name in keys}
    return Objective(
        ratio=axes["ratio"],
        bounds=partial(_function("bounds", axes["bounds"]), **keys) if "bounds" in axes else None,
        surrogate=partial(surrogate, **own),
        advantage_scale=axes["advantage"]["scale"],
        focal_gamma=axes["advantage"].get("focal_gamma"),
        aggregation=axes["aggregation"],
        beta=beta,
        kl=axes.get("kl"),
    )
