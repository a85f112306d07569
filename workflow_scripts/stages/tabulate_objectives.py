"""What the objective of each arm does with a ratio: bounds and gradient weight, from the code that trains."""

import math
from typing import Any

import numpy as np
import pandas as pd

from workflow_scripts import tables
from workflow_scripts.analysis.decisive import Unanswerable, bounds
from workflow_scripts.job import Job, run

LIBRARIES = ()
GRID = 31  # log ratios
REACH = 2.0  # times the farthest bound: how far the log ratio goes
WIDE, FAR = math.log(2.5), 3.0  # how far it goes where there is no bound, and at most
EDGE = 1e-4  # of the range: how near to a bound the objective is evaluated on both sides of it
PROBABILITIES = (0.05, 0.5, 0.95)  # of a token, for policies that follow it

Objective = dict[str, Any]
COLUMNS = ["positive", "group_correct", "old_probability"]


def _settings(group_size: int) -> pd.DataFrame:
    """All that a bound may depend on: both signs of the advantage, every count with a signal, some probabilities."""
    counts = [float(c) for c in range(1, group_size)]
    rows = pd.MultiIndex.from_product([(True, False), counts, PROBABILITIES], names=COLUMNS).to_frame(index=False)
    return rows.assign(advantage=np.where(rows["positive"], 1.0, -1.0), group_size=group_size)


def _bounded(rows: pd.DataFrame, objective: Objective) -> pd.DataFrame:
    """The rows with lower_bound and upper_bound, nan where none acts; of one probability where all give the same."""
    if "bounds" not in objective:
        found = rows.assign(lower_bound=np.nan, upper_bound=np.nan)
    else:
        lower, upper = bounds(rows, objective, np.log(rows["old_probability"]))
        found = rows.assign(lower_bound=lower[:, 0], upper_bound=upper[:, 0])
    sides = ["lower_bound", "upper_bound"]
    found[sides] = found[sides].astype(float).where(np.isfinite(found[sides].astype(float)))
    alike = found.groupby(["positive", "group_correct"])[sides].nunique(dropna=False)
    if (alike <= 1).all(axis=None):
        found = found[found["old_probability"] == PROBABILITIES[1]].assign(old_probability=np.nan)
    return found


def _edges(rows: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Log ratios of both bounds of each row, (N,2), nan where none acts; of a bound at 0 or below, far away."""
    return np.log(rows[["lower_bound", "upper_bound"]].to_numpy(dtype=np.float64).clip(min=1e-3))


def reach(rows: pd.DataFrame) -> float:
    """How far the log ratio goes for these bounds."""
    edges = _edges(rows)
    farthest = float(np.nanmax(np.abs(edges))) if np.isfinite(edges).any() else 0.0
    return min(REACH * farthest, FAR) or WIDE


def _grid(rows: pd.DataFrame, far: float) -> pd.DataFrame:
    """Each row at each log ratio: an even grid up to `far` on both sides, and both sides of the row's own bounds."""
    edges = _edges(rows)
    parts = [rows.assign(log_ratio=at) for at in np.linspace(-far, far, GRID)]
    for column in range(2):
        for side in (-EDGE * far, EDGE * far):
            near = rows.assign(log_ratio=edges[:, column] + side)
            parts.append(near[np.isfinite(edges[:, column]) & (np.abs(near["log_ratio"]) < far)])
    return pd.concat(parts, ignore_index=True)


def gradient_weights(rows: pd.DataFrame, objective: Objective) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Derivative of minus the loss by the log-probability over the advantage, by autograd, (N,).

    The token's own log-probability for the token ratio; for the sequence ratio its mean over the sequence, of which
    each token has an equal part. rows: N rows with advantage, log_ratio, old_probability, lower_bound, upper_bound.
    """
    import torch

    from workflow_scripts.objectives.bounds import Bounds
    from workflow_scripts.objectives.lookup import keywords, named

    surrogate = named("surrogate", objective["surrogate"])

    def column(values: Any) -> Any:
        return torch.tensor(np.asarray(values, dtype=np.float64)).view(-1, 1)

    old = column(np.log(rows["old_probability"].fillna(PROBABILITIES[1])))
    log_prob = (old + column(rows["log_ratio"])).requires_grad_()
    advantage = column(rows["advantage"])
    lower, upper = column(rows["lower_bound"].fillna(-np.inf)), column(rows["upper_bound"].fillna(np.inf))
    known = Bounds(lower, upper) if "bounds" in objective else None
    loss = surrogate(torch.exp(log_prob - old), advantage, log_prob, known, **keywords(surrogate, objective))
    (gradient,) = torch.autograd.grad(loss.sum(), log_prob)
    return (-gradient / advantage)[:, 0].numpy().astype(np.float64) + 0.0  # no -0


def evaluate(rows: pd.DataFrame, objective: Objective, far: float) -> pd.DataFrame:
    """`_bounded` rows at each log ratio up to `far`, with gradient_weight."""
    found = _grid(rows, far)
    found["gradient_weight"] = gradient_weights(found, objective)
    return found.drop_duplicates([*COLUMNS, "log_ratio"]).drop(columns="advantage")


def tabulate(objectives: dict[str, Objective], group_sizes: dict[str, int]) -> pd.DataFrame:
    """The table, by arm: over the same log ratios for all arms of one ratio, so that they compare.

    An arm whose policy cannot say what its bounds are has one row, with the reason.
    """
    bounded, found, far = {}, [], {"token": 0.0, "sequence": 0.0}
    for arm, objective in objectives.items():
        known = {"arm": arm, "ratio": objective["ratio"], "group_size": group_sizes[arm]}
        try:
            bounded[arm] = _bounded(_settings(group_sizes[arm]), objective).assign(**known)
        except Unanswerable as why:
            found.append(pd.DataFrame([{**known, "reason": str(why)}]))
        else:
            far[objective["ratio"]] = max(far[objective["ratio"]], reach(bounded[arm]))
    found += [evaluate(rows, objectives[arm], far[objectives[arm]["ratio"]]) for arm, rows in bounded.items()]
    kinds = {"group_correct": "Int64", "group_size": "Int64", "positive": "boolean", "reason": "string"}
    return pd.concat(found).reindex(columns=list(tables.OBJECTIVES.columns)).astype(kinds)


def main(job: Job) -> None:
    rows = tabulate(job.settings["objectives"], job.settings["group_sizes"])
    job.write("objectives", tables.OBJECTIVES, rows)


if __name__ == "__main__":
    run(main, LIBRARIES)
