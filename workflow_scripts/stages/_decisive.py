"""What any clip policy does with recorded ratios, and where two of them differ: decisive tokens.

An objective or a policy here is a mapping with `bounds`, the name of a clip policy, and that policy's keys. All is
evaluated in float32, as in training: a run's own policy gives back what was recorded.
"""

import inspect
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workflow_scripts import tables

Flags = npt.NDArray[np.bool_]
Reals = npt.NDArray[np.float32]
RATIO = ["step", "prompt_position", "rollout"]  # what names a rollout in an update


class Unanswerable(Exception):
    """The records, or the policy, cannot say what it would have done."""


class TooNarrow(Unanswerable):
    """A bound lies so near to 1 that tokens which were not recorded may cross it."""


def bounds(rows: pd.DataFrame, objective: dict[str, Any], old_log_prob: Any, sign: int = 1) -> tuple[Reals, Reals]:
    """Lower and upper bound under the objective's clip policy, (N,1), or (N,T) where they follow each token's
    probability.

    rows: N rows with advantage, group_correct and group_size (one size). old_log_prob: (N,) or (N,T). sign: -1 asks for
    the bounds of the opposite advantages. Raises Unanswerable for a policy that fails, or has a bound that is nan.
    """
    import torch

    from workflow_scripts.objectives.checked import PolicyError, checked

    # by name: of the clip policies only those count that the rule hands in as roots of the code digest
    policies = import_module("workflow_scripts.objectives.bounds")
    policy = getattr(policies, objective["bounds"])
    keys = {
        name: objective[name]
        for name, parameter in inspect.signature(policy).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and objective.get(name) is not None
    }

    def columns(values: Any) -> Any:
        return torch.tensor(np.asarray(values, dtype=np.float32)).view(len(rows), -1)

    if not len(rows):
        return np.empty((0, 1), np.float32), np.empty((0, 1), np.float32)
    group = policies.Group(
        advantage=sign * columns(rows["advantage"]),
        group_correct=columns(rows["group_correct"]),
        group_size=int(rows["group_size"].iloc[0]),
        old_log_prob=columns(old_log_prob),
    )
    try:
        found = checked(partial(policy, **keys), group)
    except PolicyError as error:
        raise Unanswerable(str(error)) from None
    lower, upper = found.lower.numpy(), found.upper.numpy()
    if np.isnan(lower).any() or np.isnan(upper).any():
        raise Unanswerable(f"clip policy {objective['bounds']}: a bound is nan")
    return lower, upper


def observed(records: pd.DataFrame, tail: pd.DataFrame, ratio: str) -> pd.DataFrame:
    """One row for each ratio that a bound can be compared with: the columns of its record, and log_ratio, old_log_prob
    and tokens, for how many it stands.

    records: rows of rollout_updates. tail: rows of tail_tokens of the same run; tokens missing there have a |log ratio|
    of at most TAIL_LOG_RATIO. ratio: token or sequence.
    """
    if ratio == "sequence":  # no sequence-level policy looks at the probability of a token
        return records.assign(
            log_ratio=records["mean_log_ratio"], old_log_prob=0.0, tokens=records["completion_tokens"]
        )
    return tail.merge(records, on=RATIO).assign(tokens=1)


def ratios(rows: pd.DataFrame) -> Reals:
    """Importance ratios (N,1) of `observed` rows, by the exponential that training took."""
    import torch

    return torch.tensor(rows["log_ratio"].to_numpy(dtype=np.float32)).exp().unsqueeze(1).numpy()


def clipped(rows: pd.DataFrame, objective: dict[str, Any]) -> Flags:
    """Which `observed` rows lie outside their bounds; without an advantage there is no gradient to lose: never."""
    lower, upper = bounds(rows, objective, rows["old_log_prob"])
    ratio = ratios(rows)
    return ((ratio < lower) | (ratio > upper))[:, 0] & (rows["advantage"].to_numpy() != 0)


def refuse_narrow(rows: pd.DataFrame, name: str, lower: Reals, upper: Reals) -> None:
    """Raises TooNarrow where tokens that were not recorded may cross the bounds (N,T) of a row with an advantage.

    The bounds are those at old probability 1, where such as follow it are narrowest.
    """
    edge = tables.TAIL_LOG_RATIO
    narrow = ((upper < np.exp(edge)) | (lower > np.exp(-edge))).any(1)
    if np.any(narrow & (rows["advantage"].to_numpy() != 0)):
        raise TooNarrow(f"{name} has a bound within {edge} of 1; tokens nearer than that are not recorded")


def decisive_tokens(
    records: pd.DataFrame, tail: pd.DataFrame, objective: dict[str, Any], other: dict[str, Any]
) -> tuple[int, int]:
    """(decisive tokens, all tokens) of one run's records: those clipped under only one of the two bounds.

    records, tail: as `observed` takes them. objective, other: two arms equal in all but bounds, surrogate clipped.
    Raises TooNarrow where the records cannot tell (token ratio only).
    """
    if objective["ratio"] == "token":
        for one in (objective, other):
            refuse_narrow(records, one["bounds"], *bounds(records, one, np.zeros(len(records))))
    rows = observed(records, tail, objective["ratio"])
    differs = clipped(rows, objective) != clipped(rows, other)
    return int(rows["tokens"].to_numpy()[differs].sum()), int(records["completion_tokens"].sum())
