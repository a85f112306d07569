"""Decisive tokens: on recorded rollouts, whose clipped state would differ under another clip policy?"""

import inspect
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workflow_scripts import tables

Flags = npt.NDArray[np.bool_]


class TooNarrow(Exception):
    """A bound lies so near to 1 that tokens which were not recorded may cross it."""


def _bounds(rows: pd.DataFrame, objective: dict[str, Any], old_log_prob: Any) -> tuple[Any, Any]:
    """lower and upper bound of each row under the objective's clip policy, as arrays of its length."""
    import torch

    # by name: of the clip policies only those count that the rule hands in as roots of the code digest
    policies = import_module("workflow_scripts.objectives.bounds")
    policy = getattr(policies, objective["bounds"])
    keys = {
        name: objective[name]
        for name, parameter in inspect.signature(policy).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and objective.get(name) is not None
    }

    def column(values: Any) -> Any:
        return torch.tensor(np.asarray(values, dtype=np.float64)).unsqueeze(1)

    group = policies.Group(
        advantage=column(rows["advantage"]),
        group_correct=column(rows["group_correct"]),
        group_size=int(rows["group_size"].iloc[0]),
        old_log_prob=column(old_log_prob),
    )
    found = policy(group, **keys)
    return found.lower.squeeze(1).numpy(), found.upper.squeeze(1).numpy()


def _clipped(rows: pd.DataFrame, objective: dict[str, Any], log_ratio: Any, old_log_prob: Any) -> Flags:
    """Which rows lie outside their bounds; rows without an advantage have no gradient to lose and never count."""
    lower, upper = _bounds(rows, objective, old_log_prob)
    ratio = np.exp(np.asarray(log_ratio, dtype=np.float64))
    return ((ratio < lower) | (ratio > upper)) & (rows["advantage"].to_numpy() != 0)


def _refuse_narrow(rows: pd.DataFrame, objective: dict[str, Any]) -> None:
    """rows are judged at old probability 1, where bounds that follow it are narrowest."""
    lower, upper = _bounds(rows, objective, np.zeros(len(rows)))
    active = rows["advantage"].to_numpy() != 0
    edge = tables.TAIL_LOG_RATIO
    if np.any(active & ((upper < np.exp(edge)) | (lower > np.exp(-edge)))):
        raise TooNarrow(
            f"{objective['bounds']} has a bound within {edge} of 1; tokens nearer than that are not recorded"
        )


def decisive_tokens(
    records: pd.DataFrame, tail: pd.DataFrame, objective: dict[str, Any], other: dict[str, Any]
) -> tuple[int, int]:
    """(decisive tokens, all tokens) of one run's records.

    records: rows of rollout_updates. tail: rows of tail_tokens of the same run; tokens missing there have a |log ratio|
    of at most TAIL_LOG_RATIO. objective, other: two arms equal in all but bounds, surrogate clipped.
    Raises TooNarrow where the records cannot tell (token ratio only).
    """
    tokens = int(records["completion_tokens"].sum())
    if not len(records):
        return 0, 0
    if objective["ratio"] == "sequence":
        certain = np.zeros(len(records))  # no sequence-level policy looks at the probability of a token
        states = [_clipped(records, one, records["mean_log_ratio"], certain) for one in (objective, other)]
        differs = states[0] != states[1]
        return int(records["completion_tokens"].to_numpy()[differs].sum()), tokens
    for one in (objective, other):
        _refuse_narrow(records, one)
    rows = tail.merge(records, on=["step", "prompt_position", "rollout"])
    if not len(rows):
        return 0, tokens
    states = [_clipped(rows, one, rows["log_ratio"], rows["old_log_prob"]) for one in (objective, other)]
    return int((states[0] != states[1]).sum()), tokens
