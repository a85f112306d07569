"""Clip shares, ratio drift, entropy and lengths of every run and update, by the group's number of correct rollouts."""

import numpy as np
import pandas as pd

from workflow_scripts import tables
from workflow_scripts.stages._command import Job, run
from workflow_scripts.stages._records import run_tables

LIBRARIES = ()


def _flat_groups(records: pd.DataFrame) -> pd.DataFrame:
    """One row per group of a rollout batch: batch, group_correct, flat (1.0 if all its rewards are equal).

    A group's rollouts are spread over the minibatches, so whether it is flat can only be seen over the whole batch.
    """
    rewards = records.groupby(["batch", "prompt_position"], sort=False).agg(
        lowest=("reward", "min"), highest=("reward", "max"), group_correct=("group_correct", "first")
    )
    rewards["flat"] = (rewards["lowest"] == rewards["highest"]).astype(float)
    return rewards.reset_index()[["batch", "group_correct", "flat"]]


def _terms(records: pd.DataFrame) -> pd.DataFrame:
    """Per rollout and update, the terms whose sums over any set of rows give the shares and means of that set."""
    positive, negative = records["advantage"] > 0, records["advantage"] < 0
    tokens = records["completion_tokens"].astype(float)
    width = records["upper_bound"].astype(float) - 1
    bounded = positive & np.isfinite(width)
    return pd.DataFrame(
        {
            "step": records["step"],
            "group_correct": records["group_correct"],
            "batch": records["batch"],
            "update_index": records["update_index"],
            "rollouts": 1,
            "positive_rollouts": positive.astype(int),
            "negative_rollouts": negative.astype(int),
            "clipped_upper": (positive & (records["clipped_upper_tokens"] > 0)).astype(int),
            "clipped_lower": (negative & (records["clipped_lower_tokens"] > 0)).astype(int),
            "positive_tokens": tokens.where(positive, 0.0),
            "negative_tokens": tokens.where(negative, 0.0),
            "clipped_upper_tokens": records["clipped_upper_tokens"].where(positive, 0),
            "clipped_lower_tokens": records["clipped_lower_tokens"].where(negative, 0),
            "deviation": records["sum_abs_ratio_deviation"] / tokens.clip(lower=1.0),
            "entropy": records["sum_entropy"].astype(float),
            "tokens": tokens,
            "width": width.where(bounded, 0.0),
            "bounded": bounded.astype(int),
            "truncated": records["truncated"].astype(int),
            "reward": records["reward"].astype(float),
            "ratio": np.expm1(records["mean_log_ratio"].astype(float)),  # minus one: the correlation does not change
            "advantage": records["advantage"].astype(float),
        }
    )


def _correlation(terms: pd.DataFrame, by: list[str]) -> pd.Series:
    """Pearson correlation of sequence ratio and advantage within each set of rows; null where either is constant."""
    grouped = terms.groupby(by)[["ratio", "advantage"]]
    centred = terms[["ratio", "advantage"]] - grouped.transform("mean")
    products = pd.DataFrame(
        {
            "cross": centred["ratio"] * centred["advantage"],
            "ratio": centred["ratio"] ** 2,
            "advantage": centred["advantage"] ** 2,
        }
    )
    sums = products.groupby([terms[name] for name in by]).sum()
    constant = (grouped.max() == grouped.min()).any(axis=1)
    return (sums["cross"] / np.sqrt(sums["ratio"] * sums["advantage"])).mask(constant)


def _shares(terms: pd.DataFrame, flat: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Rows of the table for one way of grouping: by update, or by update and group_correct."""
    sums = terms.groupby(by).sum()
    first = terms.groupby(by)[["batch", "update_index"]].first()

    def over(part: str, whole: str) -> pd.Series:
        return sums[part] / sums[whole].where(sums[whole] > 0)

    rows = pd.DataFrame(
        {
            "batch": first["batch"],
            "update_index": first["update_index"],
            "rollouts": sums["rollouts"],
            "positive_rollouts": sums["positive_rollouts"],
            "negative_rollouts": sums["negative_rollouts"],
            "clipped_upper_share": over("clipped_upper", "positive_rollouts"),
            "clipped_lower_share": over("clipped_lower", "negative_rollouts"),
            "clipped_upper_token_share": over("clipped_upper_tokens", "positive_tokens"),
            "clipped_lower_token_share": over("clipped_lower_tokens", "negative_tokens"),
            "mean_abs_ratio_deviation": over("deviation", "rollouts"),
            "mean_entropy": over("entropy", "tokens"),
            "mean_upper_width": over("width", "bounded"),
            "mean_completion_tokens": over("tokens", "rollouts"),
            "truncated_share": over("truncated", "rollouts"),
            "mean_reward": over("reward", "rollouts"),
            "ratio_advantage_correlation": _correlation(terms, by),
        }
    ).reset_index()
    groups = ["batch", *[name for name in by if name != "step"]]
    share = flat.groupby(groups)["flat"].mean().rename("flat_group_share").reset_index()
    return rows.merge(share, on=groups, how="left")


def summarise(records: pd.DataFrame) -> pd.DataFrame:
    """All rows of one run but for arm and seed.

    records: rows of rollout_updates, one per rollout and update. Returned: for each step one row per group_correct and
    one over all rollouts, whose group_correct is null.
    """
    terms, flat = _terms(records), _flat_groups(records)
    every = _shares(terms, flat, ["step"])
    split = _shares(terms, flat, ["step", "group_correct"]).astype({"group_correct": "Int64"})
    rows = pd.concat([every, split])  # without a count, the rows over all rollouts get null
    return rows.sort_values(["step", "group_correct"], na_position="first")


def main(job: Job) -> None:
    rows = [
        summarise(records.to_pandas()).assign(arm=arm, seed=seed)
        for arm, seed, records in run_tables(job, tables.ROLLOUT_UPDATES)
        if len(records)
    ]
    job.write("dynamics", tables.DYNAMICS, pd.concat(rows) if rows else [])


if __name__ == "__main__":
    run(main, LIBRARIES)
