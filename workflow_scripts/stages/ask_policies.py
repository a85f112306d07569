"""What every clip policy of the study would have done with the recorded ratios of each run. Nothing is trained."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from workflow_scripts import tables
from workflow_scripts.stages._command import Job, run
from workflow_scripts.stages._decisive import Reals, Unanswerable, bounds, clipped, observed, ratios, refuse_narrow
from workflow_scripts.stages._records import run_files, run_tables

LIBRARIES = ()
# The sides on which a ratio can leave the reference bounds (arXiv:2601.03895 Fig. 2): sign of the advantage, upper?
QUADRANTS = {1: (1, True), 2: (1, False), 3: (-1, False), 4: (-1, True)}
_USED = [
    "step", "update_index", "prompt_position", "rollout", "group_size", "group_correct", "advantage",
    "completion_tokens", "mean_log_ratio",
]  # fmt: skip

Policy = dict[str, Any]


def _references(rows: pd.DataFrame, policy: Policy, old_log_prob: Any) -> tuple[Reals, Reals]:
    """Lower and upper bound of each row, where the policy sets none those it has for the opposite advantage."""
    own, opposite = (bounds(rows, policy, old_log_prob, sign) for sign in (1, -1))
    lower, upper = (np.where(np.isfinite(one), one, other) for one, other in zip(own, opposite, strict=True))
    return lower, upper


class Records:
    """One run's records at update index 1 and later, where the ratio is not 1.

    records: rows of rollout_updates. tail: rows of tail_tokens, for the token ratio. ratio: token or sequence.
    """

    def __init__(self, records: pd.DataFrame, tail: pd.DataFrame, ratio: str) -> None:
        later = records.loc[records["update_index"] >= 1, _USED].reset_index(drop=True)
        self.later, self.ratio = later, ratio
        active = later.assign(record=later.index)[later["advantage"] != 0]
        self.rows = observed(active, tail, ratio)
        self.positive, self.negative = later["advantage"] > 0, later["advantage"] < 0

    def _tokens(self, flags: Any) -> pd.Series:
        """Tokens of each record that are flagged among the observed ratios."""
        weights = np.where(flags, self.rows["tokens"], 0)
        return pd.Series(np.bincount(self.rows["record"], weights, len(self.later)).astype(np.int64))

    def counts(self) -> pd.DataFrame:
        """What does not depend on a policy; one row per record."""
        tokens = self.later["completion_tokens"].astype(np.int64)
        return pd.DataFrame(
            {
                "group_correct": self.later["group_correct"],
                "rollouts": 1,
                "tokens": tokens,
                "positive_rollouts": self.positive.astype(int),
                "negative_rollouts": self.negative.astype(int),
                "positive_tokens": tokens.where(self.positive, 0),
                "negative_tokens": tokens.where(self.negative, 0),
            }
        )

    def _width(self, policy: Policy) -> pd.Series:
        """Distance of the upper bound from 1 where it acts; nan elsewhere, and for bounds that follow each token.

        Raises Unanswerable, also where tokens that were not recorded could lie outside.
        """
        two_tokens = np.zeros((len(self.later), 2))
        lower, upper = _references(self.later, policy, two_tokens)
        by_token = max(lower.shape[1], upper.shape[1]) > 1
        if self.ratio == "token":
            refuse_narrow(self.later, policy["bounds"], lower, upper)
        elif by_token:
            raise Unanswerable(f"{policy['bounds']} follows the probability of each token; the ratio is the sequence's")
        width = pd.Series(upper[:, 0].astype(float) - 1)
        return width.where(self.positive & np.isfinite(width) & (not by_token))

    def ask(self, policy: Policy) -> pd.DataFrame:
        """What the policy would have done; one row per record, tokens clipped and beyond the reference bounds.

        Raises Unanswerable.
        """
        width, rows = self._width(policy), self.rows
        out = self._tokens(clipped(rows, policy))
        lower, upper = _references(rows, policy, rows["old_log_prob"])
        ratio, sign = ratios(rows), np.sign(rows["advantage"].to_numpy())
        beyond = {True: (ratio > upper)[:, 0], False: (ratio < lower)[:, 0]}
        return pd.DataFrame(
            {
                "clipped_upper_rollouts": (self.positive & (out > 0)).astype(int),
                "clipped_upper_tokens": out.where(self.positive, 0),
                "clipped_lower_tokens": out.where(self.negative, 0),
                "width": width.fillna(0.0),
                "bounded": width.notna().astype(int),
            }
            | {
                f"quadrant_{number}_tokens": self._tokens(beyond[above] & (sign == side))
                for number, (side, above) in QUADRANTS.items()
            }
        )

    def decisive(self, policy: Policy, own: Policy) -> pd.Series:
        """Tokens of each record whose clipped state differs between the policy and the run's own."""
        self._width(own)
        return self._tokens(clipped(self.rows, policy) != clipped(self.rows, own))


def _sums(terms: pd.DataFrame) -> pd.DataFrame:
    """Sums over all records, whose group_correct is null, and by correct rollouts of the group."""
    every = terms.drop(columns="group_correct").sum().to_frame().T  # without a count, which becomes null
    split = terms.groupby("group_correct").sum().reset_index()
    sums = pd.concat([every, split], ignore_index=True).astype({"group_correct": "Int64"})
    for part, whole, share in (
        ("clipped_upper_rollouts", "positive_rollouts", "clipped_upper_share"),
        ("width", "bounded", "mean_upper_width"),
    ):
        if part in sums:
            sums[share] = sums[part] / sums[whole].where(sums[whole] > 0)
    return sums


def _or_reason(answer: Callable[..., Any], *policies: Policy) -> tuple[Any, str | None]:
    try:
        return answer(*policies), None
    except Unanswerable as why:
        return None, str(why)


def _answer(records: Records, policy: Policy, own: Policy | None) -> tuple[pd.DataFrame, str | None]:
    """What is known of the policy, one row per record, and why not all is. own: the run's own policy, if it clips."""
    terms = records.counts()
    if not len(terms):
        return terms, "no update but the first of a rollout batch: the ratio is always 1"
    answer, reason = _or_reason(records.ask, policy)
    if answer is None:
        return terms, reason
    terms = pd.concat([terms, answer], axis=1)
    if own is None:
        return terms, None
    decisive, reason = _or_reason(records.decisive, policy, own)
    if decisive is None:
        return terms, f"decisive tokens not known: {reason}"
    return terms.assign(decisive_tokens=decisive), None


def ask(records: Records, own: Policy | None, policies: dict[str, Policy]) -> pd.DataFrame:
    """Rows of the table for one run, without arm and seed. own: the run's own policy, None if its surrogate is not
    clipped. policies: what is asked, by name."""
    found = []
    for name, policy in policies.items():
        terms, reason = _answer(records, policy, own)
        found.append(_sums(terms).assign(policy=name, own=policy == own, reason=reason))
    columns = {name: kind for name, kind in tables.POLICIES.columns.items() if name not in ("arm", "seed")}
    counts = {name: "Int64" for name, kind in columns.items() if kind == tables.INT}
    return pd.concat(found).reindex(columns=list(columns)).astype(counts)


def main(job: Job) -> None:
    settings = job.settings
    tails = run_files(job, tables.TAIL_TOKENS)
    rows = []
    for arm, seed, found in run_tables(job, tables.ROLLOUT_UPDATES):
        tail = tables.read(tails[arm, seed], tables.TAIL_TOKENS).to_pandas()
        records = Records(found.to_pandas(), tail, settings["ratios"][arm])
        rows.append(ask(records, settings["own"].get(arm), settings["policies"]).assign(arm=arm, seed=seed))
    job.write("policies", tables.POLICIES, pd.concat(rows) if rows else [])


if __name__ == "__main__":
    run(main, LIBRARIES)
