"""Clip shares, ratio drift, entropy, lengths and groups of every run and update, by the group's correct rollouts."""

import numpy as np
import pandas as pd

from workflow_scripts import tables
from workflow_scripts.analysis.records import QUADRANTS, SIGNS, clipped_by_quadrant

GROUP = ["batch", "prompt_position"]


ROLLOUT = [*GROUP, "rollout"]


def read_rollouts(path: str | None) -> pd.DataFrame:
    """Per rollout of a run: length (of its completion, in tokens), text (its completion was kept), identical (another
    one of its group has the same).

    Texts count by a 64-bit hash, made of a part of the file at a time: those of a large run are gigabytes. Without a
    file there are no rows.
    """
    if path is None:
        return pd.DataFrame(columns=[*ROLLOUT, "length", "text", "identical"], dtype=np.int64)
    rows = tables.read(path, tables.ROLLOUTS, [*ROLLOUT, "completion_tokens"]).to_pandas()
    hashes, kept = [np.empty(0, np.uint64)], [np.empty(0, bool)]
    for texts in tables.parts(path, tables.ROLLOUTS, "completion"):
        hashes.append(pd.util.hash_array(texts.to_numpy(zero_copy_only=False), categorize=False))
        kept.append(texts.is_valid().to_numpy(zero_copy_only=False))
    rows = rows.assign(hash=np.concatenate(hashes), text=np.concatenate(kept))
    rows["identical"] = rows["text"] & rows.duplicated([*GROUP, "hash"], keep=False)
    return rows.rename(columns={"completion_tokens": "length"}).drop(columns="hash")


def _groups(records: pd.DataFrame, rollouts: pd.DataFrame) -> pd.DataFrame:
    """One row per group of a rollout batch: batch, group_correct, text, identical, and as 0 or 1 flat (all its rewards
    are equal), starved (none is correct), saturated (all are).

    A group's rollouts are spread over the minibatches, so what it is can only be seen over the whole batch.
    """
    found = records.groupby(GROUP, sort=False).agg(
        lowest=("reward", "min"),
        highest=("reward", "max"),
        group_correct=("group_correct", "first"),
        group_size=("group_size", "first"),
    )
    found["flat"] = (found["lowest"] == found["highest"]).astype(float)
    found["starved"] = (found["group_correct"] == 0).astype(float)
    found["saturated"] = (found["group_correct"] == found["group_size"]).astype(float)
    texts = rollouts.groupby(GROUP, as_index=False)[["text", "identical"]].sum()
    return found.reset_index().merge(texts, on=GROUP, how="left")


def _terms(records: pd.DataFrame, rollouts: pd.DataFrame) -> pd.DataFrame:
    """Per rollout and update, the terms whose sums over any set of rows give the shares and means of that set.

    A truncated completion that is masked has a length, and no token whose ratio could be told.
    """
    records = records.merge(rollouts[[*ROLLOUT, "length"]], on=ROLLOUT, how="left")
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
            "positive_tokens": tokens.where(positive, 0.0),
            "negative_tokens": tokens.where(negative, 0.0),
            **clipped_by_quadrant(records),
            "deviation": records["sum_abs_ratio_deviation"] / tokens.clip(lower=1.0),
            "entropy": records["sum_entropy"].astype(float),
            "tokens": tokens,
            "told": (tokens > 0).astype(int),
            "length": records["length"].astype(float).fillna(tokens),
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
    terms = terms[terms["told"] > 0]
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


def _group_shares(groups: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Shares of groups, and of identical rollouts, over whole rollout batches."""
    found = groups.groupby(by)
    kinds = {f"{kind}_group_share": found[kind].mean() for kind in ("flat", "starved", "saturated")}
    texts = found["text"].sum()
    return pd.DataFrame(
        {**kinds, "identical_rollout_share": found["identical"].sum() / texts.where(texts > 0)}
    ).reset_index()


def _shares(terms: pd.DataFrame, groups: pd.DataFrame, by: list[str]) -> pd.DataFrame:
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
            **{
                f"clipped_quadrant_{number}_share": over(f"clipped_quadrant_{number}_tokens", f"{SIGNS[sign]}_tokens")
                for number, (sign, _) in QUADRANTS.items()
            },
            "positive_tokens": sums["positive_tokens"].astype(int),
            "negative_tokens": sums["negative_tokens"].astype(int),
            "mean_abs_ratio_deviation": over("deviation", "told"),
            "mean_entropy": over("entropy", "tokens"),
            "mean_upper_width": over("width", "bounded"),
            "mean_completion_tokens": over("length", "rollouts"),
            "truncated_share": over("truncated", "rollouts"),
            "mean_reward": over("reward", "rollouts"),
            "ratio_advantage_correlation": _correlation(terms, by),
        }
    ).reset_index()
    batch = ["batch", *[name for name in by if name != "step"]]
    return rows.merge(_group_shares(groups, batch), on=batch, how="left")


def summarise(records: pd.DataFrame, rollouts: pd.DataFrame) -> pd.DataFrame:
    """All rows of one run but for arm and seed.

    records: rows of rollout_updates, one per rollout and update. rollouts: as from `read_rollouts`. Returned: for
    each step one row per group_correct and one over all rollouts, whose group_correct is null.
    """
    terms, groups = _terms(records, rollouts), _groups(records, rollouts)
    every = _shares(terms, groups, ["step"])
    split = _shares(terms, groups, ["step", "group_correct"]).astype({"group_correct": "Int64"})
    rows = pd.concat([every, split])  # without a count, the rows over all rollouts get null
    return rows.sort_values(["step", "group_correct"], na_position="first")
