"""What every clip policy of the study would have done with the recorded ratios of each run. Nothing is trained."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from workflow_scripts import tables
from workflow_scripts.analysis.decisive import Replay, Unanswerable
from workflow_scripts.analysis.records import QUADRANTS

Policy = dict[str, Any]


class Records(Replay):
    """One run's records at update index 1 and later; `Replay` says what it takes."""

    def counts(self) -> pd.DataFrame:
        """What does not depend on a policy; one row per record."""
        tokens = self.records["completion_tokens"].astype(np.int64)
        positive, negative = self.records["advantage"] > 0, self.records["advantage"] < 0
        return pd.DataFrame(
            {
                "group_correct": self.records["group_correct"],
                "rollouts": 1,
                "tokens": tokens,
                "positive_rollouts": positive.astype(int),
                "negative_rollouts": negative.astype(int),
                "positive_tokens": tokens.where(positive, 0),
                "negative_tokens": tokens.where(negative, 0),
            }
        )

    def by_quadrant(self, policy: Policy) -> pd.DataFrame:
        """What the policy would have done; one row per record: tokens clipped and tokens beyond its reference bounds in
        each quadrant, and the width of its upper bound where it acts. Raises Unanswerable."""
        answer, sign = self.ask(policy), np.sign(self.records["advantage"])
        width = answer["upper_width"].where(sign > 0)
        return pd.DataFrame(
            {
                f"{kind}quadrant_{number}_tokens": answer[f"{column}_{side}_tokens"].where(sign == of_sign, 0)
                for kind, column in (("clipped_", "clipped"), ("", "beyond"))
                for number, (of_sign, side) in QUADRANTS.items()
            }
            | {"width": width.fillna(0.0), "bounded": width.notna().astype(int)}
        )


def _sums(terms: pd.DataFrame) -> pd.DataFrame:
    """Sums over all records, whose group_correct is null, and by correct rollouts of the group."""
    every = terms.drop(columns="group_correct").sum().to_frame().T  # without a count, which becomes null
    split = terms.groupby("group_correct").sum().reset_index()
    sums = pd.concat([every, split], ignore_index=True).astype({"group_correct": "Int64"})
    if "width" in sums:
        sums["mean_upper_width"] = sums["width"] / sums["bounded"].where(sums["bounded"] > 0)
    return sums


def _or_reason(answer: Callable[..., Any], *policies: Policy) -> tuple[Any, str | None]:
    try:
        return answer(*policies), None
    except Unanswerable as why:
        return None, str(why)


def _answer(records: Records, policy: Policy, own: Policy | None) -> tuple[pd.DataFrame, str | None]:
    """What is known of the policy, one row per record, and why not all is. own: the run's own policy, if it clips."""
    terms = records.counts()
    answer, reason = _or_reason(records.by_quadrant, policy)
    if answer is None:
        return terms, reason
    terms = pd.concat([terms, answer], axis=1)
    if own is None:
        return terms, None
    decisive, reason = _or_reason(records.decisive, policy, own)
    if decisive is None:
        return terms, f"decisive tokens not known: {reason}"
    return terms.assign(decisive_tokens=decisive), None


def _why_none(records: Records, own: Policy | None) -> str | None:
    """Why no policy can be asked of these records; None if some can."""
    if not len(records.records):
        return "no update but the first of a rollout batch: the ratio is always 1"
    if own is None:
        return None
    contradiction, _ = _or_reason(records.contradiction, own)  # what cannot be replayed is said of that policy alone
    return contradiction


def ask(records: Records, own: Policy | None, policies: dict[str, Policy]) -> pd.DataFrame:
    """Rows of the table for one run, without arm and seed. own: the run's own policy, None if its surrogate is not
    clipped. policies: what is asked, by name."""
    found, none = [], _why_none(records, own)
    for name, policy in policies.items():
        terms, reason = (records.counts(), none) if none else _answer(records, policy, own)
        found.append(_sums(terms).assign(policy=name, own=policy == own, reason=reason))
    columns = {name: kind for name, kind in tables.POLICIES.columns.items() if name not in ("arm", "seed")}
    counts = {name: "Int64" for name, kind in columns.items() if kind == tables.INT}
    return pd.concat(found).reindex(columns=list(columns)).astype(counts)
