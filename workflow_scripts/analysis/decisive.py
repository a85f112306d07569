"""What any clip policy does with recorded ratios, and where two of them differ: decisive tokens.

An objective or a policy here is a mapping with `bounds`, the name of a clip policy, and that policy's keys. Everything
is evaluated in float32, as in training, on whole rollouts, so that a run's own policy gives back what was recorded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workflow_scripts import tables

Reals = npt.NDArray[np.float32]
Sides = npt.NDArray[np.int8]  # 1 above the upper bound, -1 below the lower one, else 0
RATIO = ["step", "prompt_position", "rollout"]  # what names a rollout in an update
ROLLOUT = ["batch", "prompt_position", "rollout"]
USED = ["batch", *RATIO, "update_index", "group_size", "group_correct", "advantage", "completion_tokens",
        "mean_log_ratio", "clipped_upper_tokens", "clipped_lower_tokens"]  # fmt: skip
_NOT_KEPT = "this run did not keep all old log-probabilities (compute.keep.rollouts: false)"
_Pair = tuple[Reals, Reals]  # lower and upper bound
# Where old log-probabilities are not recorded, a policy must give the same answer for each of these in their place:
# likely, ordinary and unlikely tokens. The first is where bounds that follow the probability are narrowest.
STAND_INS = (-1e-6, -1.0, -20.0)
# A GPU's exponential differs from a CPU's in the last digits of float32, so a ratio may lie on either side of a bound
# that is this near to it.
ROUNDING = 1e-5


class Unanswerable(Exception):
    """The records, or the policy, cannot say what it would have done."""


class TooNarrow(Unanswerable):
    """A bound lies so near to 1 that tokens which were not recorded may cross it."""


def _evaluate(policy: dict[str, Any], **group: Any) -> tuple[Reals, Reals]:
    """Lower and upper bound under a clip policy. group: the fields of a Group; raises Unanswerable if it fails."""
    import torch

    from workflow_scripts.objectives.bounds import Group
    from workflow_scripts.objectives.checked import PolicyError, checked
    from workflow_scripts.objectives.lookup import keywords, named

    fields = {name: torch.tensor(value) if isinstance(value, np.ndarray) else value for name, value in group.items()}
    try:
        function = named("bounds", policy["bounds"])
        found = checked(partial(function, **keywords(function, policy)), Group(**fields))
    except PolicyError as error:
        raise Unanswerable(str(error)) from None
    return found.lower.numpy(), found.upper.numpy()


def _column(values: Any) -> Reals:
    return np.asarray(values, dtype=np.float32).reshape(len(values), -1)


def bounds(rows: pd.DataFrame, policy: dict[str, Any], old_log_prob: Any) -> tuple[Reals, Reals]:
    """Lower and upper bound of each row, (N,1): completions of one token each.

    rows: N rows with advantage, group_correct and group_size (one size). old_log_prob: (N,). Raises Unanswerable for a
    policy that fails, or has a bound that is nan.
    """
    lower, upper = _evaluate(
        policy,
        advantage=_column(rows["advantage"]),
        group_correct=_column(rows["group_correct"]),
        group_size=int(rows["group_size"].iloc[0]),
        old_log_prob=_column(old_log_prob),
    )
    if np.isnan(lower).any() or np.isnan(upper).any():
        raise Unanswerable(f"clip policy {policy['bounds']}: a bound is nan")
    return lower, upper


@dataclass(frozen=True)
class _Batch:
    """The records of one rollout batch and its R rollouts.

    record: places of its n records in all of them. row: the rollout of each record. lengths: tokens of each rollout.
    kept: old log-probabilities of each rollout, None where they are not recorded. tail: of each recorded token the
    place of its record in the batch, its position, log ratio and old log-probability.
    """

    record: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    mean_log_ratio: Reals
    group_size: int
    group_correct: Reals
    advantage: Reals
    lengths: npt.NDArray[np.int64]
    kept: list[Reals | None]
    tail_record: npt.NDArray[np.int64]
    tail_position: npt.NDArray[np.int64]
    tail_log_ratio: Reals
    tail_old_log_prob: Reals

    @property
    def mask(self) -> Reals:
        """As in training, (R,T): 1 for the tokens of a completion."""
        return (np.arange(max(int(self.lengths.max()), 1)) < self.lengths[:, None]).astype(np.float32)

    def _old_log_prob(self) -> Reals:
        """(R,T), nan where it is not recorded."""
        found = np.full(self.mask.shape, np.nan, np.float32)
        found[self.row[self.tail_record], self.tail_position] = self.tail_old_log_prob
        for row, recorded in enumerate(self.kept):
            if recorded is not None:
                found[row, : len(recorded)] = recorded
        return found

    def bounds(self, policy: dict[str, Any], sign: int) -> list[_Pair]:
        """Bounds of the rollouts, (R,1) or (R,T): one pair where all old log-probabilities are recorded, else one for
        each stand-in. Raises Unanswerable where they depend on what is not recorded, or are nan."""
        mask, old = self.mask, self._old_log_prob()
        known = ~np.isnan(old)
        fills = (0.0,) if known[mask > 0].all() else STAND_INS
        found = []
        for fill in fills:
            lower, upper = _evaluate(
                policy,
                advantage=sign * self.advantage,
                group_correct=self.group_correct,
                group_size=self.group_size,
                old_log_prob=np.where(known, old, np.float32(fill)) * (mask > 0),
                mask=mask,
            )
            for bound in (lower, upper):
                if np.isnan(np.where(mask > 0, bound, 0.0) if bound.shape[1] > 1 else bound).any():
                    raise Unanswerable(f"clip policy {policy['bounds']}: a bound is nan")
            found.append((lower, upper))
        for first, other in zip(found[0] * (len(found) - 1), [b for pair in found[1:] for b in pair], strict=True):
            if first.shape != other.shape or np.any((first != other) & (known if first.shape[1] > 1 else True)):
                raise Unanswerable(f"{policy['bounds']} looks at whole completions and {_NOT_KEPT}")
        return found


def _batches(records: pd.DataFrame, tail: pd.DataFrame, old: dict[tuple[int, ...], Any]) -> Iterator[_Batch]:
    """The records (numbered from 0, with USED) and the tail by rollout batch."""
    tail = tail.merge(records[RATIO].assign(record=records.index), on=RATIO)
    batch_of = records["batch"].to_numpy()
    tails = dict(iter(tail.groupby(batch_of[tail["record"].to_numpy()])))
    for batch, rows in records.groupby("batch"):
        rollouts = rows.drop_duplicates(RATIO[1:])
        place = pd.Series(range(len(rollouts)), index=pd.MultiIndex.from_frame(rollouts[RATIO[1:]]))
        row = np.asarray(place.reindex(pd.MultiIndex.from_frame(rows[RATIO[1:]])), dtype=np.int64)
        own = tails.get(batch, tail.iloc[:0])
        yield _Batch(
            record=rows.index.to_numpy(),
            row=row,
            mean_log_ratio=rows["mean_log_ratio"].to_numpy(np.float32),
            group_size=int(rollouts["group_size"].iloc[0]),
            group_correct=_column(rollouts["group_correct"]),
            advantage=_column(rollouts["advantage"]),
            lengths=rollouts["completion_tokens"].to_numpy(np.int64),
            kept=[old.get(key) for key in zip(*(rollouts[name] for name in ROLLOUT), strict=True)],
            tail_record=rows.index.get_indexer(pd.Index(own["record"])),
            tail_position=own["position"].to_numpy(np.int64),
            tail_log_ratio=own["log_ratio"].to_numpy(np.float32),
            tail_old_log_prob=own["old_log_prob"].to_numpy(np.float32),
        )


def _exp(log_ratio: Reals) -> Reals:
    """By the exponential that training took."""
    import torch

    return torch.tensor(log_ratio).exp().numpy()


class Replay:
    """One run's records at update index 1 and later, where the ratio is not 1, and what a clip policy does with them.

    records: rows of rollout_updates. tail: rows of tail_tokens, for the token ratio; tokens missing there have a
    |log ratio| of at most TAIL_LOG_RATIO. ratio: token or sequence. rollouts: rows of the table rollouts with
    old_log_prob; without them only policies can be asked whose bounds do not depend on tokens that are not in the tail.
    """

    def __init__(
        self, records: pd.DataFrame, tail: pd.DataFrame, ratio: str, rollouts: pd.DataFrame | None = None
    ) -> None:
        self.ratio = ratio
        self.records = records.loc[records["update_index"] >= 1, USED].reset_index(drop=True)
        old = {}
        if rollouts is not None:
            keys = zip(*(rollouts[name] for name in ROLLOUT), strict=True)
            old = dict(zip(keys, rollouts["old_log_prob"], strict=True))
        self._batches = list(_batches(self.records, tail, old))

    def _sides(self, batch: _Batch, policy: dict[str, Any], pairs: list[_Pair], wider: float = 0.0) -> Sides:
        """On which side of its bounds each ratio lies: of the tail's tokens, (n,), or of sequences, (n,1), (n,T) where
        a bound follows each token; 0 without an advantage, where there is no gradient to lose. pairs: as
        `_Batch.bounds` returns them. wider: by which part the bounds are moved outwards. Raises Unanswerable."""
        lower, upper = (bound[batch.row] for bound in pairs[0])
        active = batch.advantage[batch.row] != 0
        if self.ratio == "token":
            for pair in pairs:
                _refuse_narrow(policy["bounds"], *pair, batch)
            at = batch.tail_record, batch.tail_position
            lower, upper = (b[at] if b.shape[1] > 1 else b[batch.tail_record, 0] for b in (lower, upper))
            ratio, active = _exp(batch.tail_log_ratio), active[batch.tail_record, 0]
        else:
            if len(pairs) > 1 and max(lower.shape[1], upper.shape[1]) > 1:
                raise Unanswerable(f"{policy['bounds']} has a bound for each token and {_NOT_KEPT}")
            ratio = _exp(batch.mean_log_ratio)[:, None]
        slack = np.float32(1 + wider)
        return ((ratio > upper * slack).astype(np.int8) - (ratio < lower / slack).astype(np.int8)) * active

    def _tokens(self, batch: _Batch, flags: Any) -> npt.NDArray[np.int64]:
        """Tokens of each of the batch's records for which a flag of `_sides`' shape is set."""
        if self.ratio == "token":
            return np.bincount(batch.tail_record, flags, len(batch.record)).astype(np.int64)
        mask = batch.mask[batch.row]
        return ((flags * mask).sum(1) if flags.shape[1] > 1 else flags[:, 0] * mask.sum(1)).astype(np.int64)

    def ask(self, policy: dict[str, Any]) -> pd.DataFrame:
        """What the policy does with each record: clipped_upper_tokens above and clipped_lower_tokens below its bounds;
        beyond_upper_tokens and beyond_lower_tokens outside its reference bounds (where it has none, those it has for
        the opposite advantage); upper_width, the distance of its upper bound from 1, nan where there is none and
        where it follows each token.

        Raises Unanswerable.
        """
        count = len(self.records)
        columns: dict[str, Any] = {
            f"{kind}_{side}_tokens": np.zeros(count, np.int64)
            for kind in ("clipped", "beyond")
            for side in ("upper", "lower")
        }
        columns["upper_width"] = np.full(count, np.nan)
        for batch in self._batches:
            pairs = {sign: batch.bounds(policy, sign) for sign in (1, -1)}
            sides = {sign: self._sides(batch, policy, pairs[sign]) for sign in (1, -1)}
            for name, side, place in (("upper", 1, 1), ("lower", -1, 0)):
                counts = {sign: self._tokens(batch, sides[sign] == side) for sign in (1, -1)}
                acts = np.asarray(np.isfinite(pairs[1][0][place]).any(1))[batch.row]
                columns[f"clipped_{name}_tokens"][batch.record] = counts[1]
                columns[f"beyond_{name}_tokens"][batch.record] = np.where(acts, counts[1], counts[-1])
            upper = pairs[1][0][1]
            if upper.shape[1] == 1:
                columns["upper_width"][batch.record] = upper[batch.row, 0].astype(np.float64) - 1
        columns["upper_width"][~np.isfinite(columns["upper_width"])] = np.nan
        return pd.DataFrame(columns)

    def decisive(self, policy: dict[str, Any], other: dict[str, Any]) -> npt.NDArray[np.int64]:
        """Tokens of each record that are clipped under only one of the two policies. Raises Unanswerable."""
        found = np.zeros(len(self.records), np.int64)
        for batch in self._batches:
            one, two = (self._sides(batch, asked, batch.bounds(asked, 1)) for asked in (policy, other))
            found[batch.record] = self._tokens(batch, (one == 0) != (two == 0))
        return found

    def contradiction(self, own: dict[str, Any]) -> str | None:
        """Why the run's own policy does not give back the clip counts that training recorded; None if it does.

        Raises Unanswerable.
        """
        replayed = recorded = wrong = 0
        for batch in self._batches:
            pairs = batch.bounds(own, 1)
            sides = [self._sides(batch, own, pairs, wider) for wider in (ROUNDING, 0.0, -ROUNDING)]
            differs = np.zeros(len(batch.record), bool)
            for side, name in ((1, "clipped_upper_tokens"), (-1, "clipped_lower_tokens")):
                least, middle, most = (self._tokens(batch, one == side) for one in sides)
                counted = self.records[name].to_numpy()[batch.record]
                differs |= (counted < least) | (counted > most)
                replayed, recorded = replayed + int(middle.sum()), recorded + int(counted.sum())
            wrong += int(differs.sum())
        if not wrong:
            return None
        return (
            f"the records do not reproduce the run's own clip policy, {own['bounds']}: training clipped {recorded} "
            f"tokens, the replay {replayed}, and {wrong} of {len(self.records)} rollouts and updates differ"
        )


def _refuse_narrow(name: str, lower: Reals, upper: Reals, batch: _Batch) -> None:
    """Raises TooNarrow where tokens that were not recorded may cross the bounds of a rollout with an advantage."""
    edge = tables.TAIL_LOG_RATIO
    narrow = ((upper < np.exp(edge)) | (lower > np.exp(-edge))) & (batch.advantage != 0) & (batch.mask > 0)
    if narrow.any():
        raise TooNarrow(f"{name} has a bound within {edge} of 1; tokens nearer than that are not recorded")


def decisive_tokens(
    records: pd.DataFrame,
    tail: pd.DataFrame,
    objective: dict[str, Any],
    other: dict[str, Any],
    rollouts: pd.DataFrame | None = None,
) -> tuple[int, int]:
    """(decisive tokens, all tokens) of one run's records at update index 1 and later: those clipped under only one of
    the two bounds.

    records, tail, rollouts: as `Replay` takes them. objective, other: two arms equal in all but bounds, surrogate
    clipped. Raises Unanswerable.
    """
    replay = Replay(records, tail, objective["ratio"], rollouts)
    return int(replay.decisive(objective, other).sum()), int(replay.records["completion_tokens"].sum())
