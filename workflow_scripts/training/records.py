"""What training records per rollout and update, kept on the device and fetched once per optimizer step."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from accelerate.utils import gather_object
from torch import Tensor

from workflow_scripts import tables
from workflow_scripts.training.errors import Diverged

_ROLLOUT_COLUMNS = (
    "prompt_position", "rollout", "group_correct", "reward", "advantage", "completion_tokens", "truncated",
    "mean_log_ratio", "sum_abs_ratio_deviation", "sum_entropy", "clipped_upper_tokens", "clipped_lower_tokens",
    "upper_bound", "lower_bound", "finite", "sum_kl",
)  # fmt: skip
_KINDS = {pa.float32(): "f4", pa.int32(): "i4", pa.bool_(): "?"}
_TABLES = {"rollout_updates": tables.ROLLOUT_UPDATES, "tail_tokens": tables.TAIL_TOKENS, "rollouts": tables.ROLLOUTS}


class Recorder:
    """Collects the records of a run.

    `add` takes one micro-batch (device tensors, no synchronisation), `end_step` fetches the step's micro-batches at
    once. Rows are sorted by prompt position and rollout, so they do not depend on the split into micro-batches. A step
    leaves one block of memory per table, not one per column: many small ones among the activations, which come and go,
    raised the peak of the process by 6 %.
    """

    def __init__(self, group_size: int, updates_per_batch: int, minibatches: int) -> None:
        self.group_size, self.updates_per_batch, self.minibatches = group_size, updates_per_batch, minibatches
        self._pending: list[tuple[Tensor, Tensor]] = []
        self._steps: dict[str, list[np.ndarray]] = {"rollout_updates": [], "tail_tokens": []}
        self._old: dict[tuple[int, int], np.ndarray] = {}  # of the newest batch, by prompt position and rollout
        self._done: dict[str, list[pa.Table]] = {name: [] for name in _TABLES}

    def add(self, per_rollout: dict[str, Tensor], log_ratio: Tensor, old_log_prob: Tensor, mask: Tensor) -> None:
        """per_rollout: the columns of a micro-batch, (B,) each; log_ratio, old_log_prob, mask: (B,T)."""
        columns = torch.stack([per_rollout[name].float() for name in _ROLLOUT_COLUMNS], dim=1)
        tokens = torch.stack([log_ratio.masked_fill(mask == 0, 0.0).float(), old_log_prob.float()])
        self._pending.append((columns.detach(), tokens.detach()))

    def end_step(self, step: int, gather: Any = None) -> dict[str, float]:
        """Close optimizer step `step` (from 1); returns the step's clip shares, mean token entropy and KL for the log.

        Raises Diverged where a rollout's ratio is not finite, before the optimizer moves by it.
        """
        columns = torch.cat([c for c, _ in self._pending]).cpu().numpy()
        width = max(t.shape[2] for _, t in self._pending)
        tokens = (
            torch.cat([torch.nn.functional.pad(t, (0, width - t.shape[2])) for _, t in self._pending], 1).cpu().numpy()
        )
        self._pending = []
        if gather is not None:
            columns, tokens = gather(columns, tokens)
        self._refuse_infinite(step, columns)
        order = np.lexsort((columns[:, 1], columns[:, 0]))
        columns, tokens = columns[order], tokens[:, order]
        value = dict(zip(_ROLLOUT_COLUMNS, columns.T, strict=True))
        batch, index = divmod(step - 1, self.updates_per_batch)
        rows: dict[str, Any] = {
            "step": step, "batch": batch, "update_index": index, "epoch": index // self.minibatches,
            "minibatch": index % self.minibatches, "group_size": self.group_size,
        }  # fmt: skip
        rows = {name: np.full(len(columns), number) for name, number in rows.items()}
        self._steps["rollout_updates"].append(_block(tables.ROLLOUT_UPDATES, rows | value))
        self._steps["tail_tokens"].append(self._tail_rows(step, value, tokens))
        if index < self.minibatches:
            self._keep_old(value, tokens[1])
        count = max(value["completion_tokens"].sum(), 1.0)
        above, below = (value[f"clipped_{side}_tokens"] / count for side in ("upper", "lower"))
        positive = value["advantage"] > 0
        return {
            "clip_ratio/high_mean": float(above[positive].sum()),  # these three as TRL counts them
            "clip_ratio/low_mean": float(below[~positive].sum()),
            "clip_ratio/region_mean": float(above.sum() + below.sum()),
            "clip_ratio/positive_low_mean": float(below[positive].sum()),  # only two-sided bounds clip here
            "clip_ratio/negative_high_mean": float(above[~positive].sum()),
            "entropy": float(value["sum_entropy"].sum() / count),
            "kl": float(value["sum_kl"].sum() / count),
        }

    def _keep_old(self, value: dict[str, np.ndarray], old_log_prob: np.ndarray) -> None:
        """Each rollout is used once in the first epoch; its old log-probabilities stay what they are there."""
        keys = zip(value["prompt_position"].astype(int), value["rollout"].astype(int), strict=True)
        for key, count, row in zip(keys, value["completion_tokens"].astype(int), old_log_prob, strict=True):
            self._old[key] = row[:count].copy()

    def _complete_rollouts(self) -> None:
        """Put the old log-probabilities of the newest batch into its rows of `rollouts`."""
        if self._old:
            rows = self._done["rollouts"].pop()
            name = "old_log_prob"
            values = zip(*(rows[key].to_pylist() for key in ("prompt_position", "rollout", name)), strict=True)
            old = [self._old.get((prompt, rollout), before) for prompt, rollout, before in values]
            column = pa.array(old, type=tables.ROLLOUTS.columns[name])
            self._done["rollouts"].append(rows.set_column(rows.schema.get_field_index(name), name, column))
            self._old = {}

    def refuse_infinite(self, step: int) -> None:
        """Raises Diverged for the first rollout of the step's micro-batches so far whose importance ratio is
        infinite or nan."""
        if self._pending:
            self._refuse_infinite(step, torch.cat([c for c, _ in self._pending]).cpu().numpy())

    def _refuse_infinite(self, step: int, columns: np.ndarray) -> None:
        value = dict(zip(_ROLLOUT_COLUMNS, columns.T, strict=True))
        for row in np.flatnonzero(value["finite"] == 0)[:1]:
            batch, index = divmod(step - 1, self.updates_per_batch)
            raise Diverged(
                f"the importance ratio is not finite at step {step}: rollout {value['rollout'][row]:.0f} of prompt "
                f"{value['prompt_position'][row]:.0f} in batch {batch}, update {index} of it, mean log ratio "
                f"{value['mean_log_ratio'][row]:g}; a smaller training.learning_rate keeps the policy near"
            )

    def _tail_rows(self, step: int, value: dict[str, np.ndarray], tokens: np.ndarray) -> np.ndarray:
        row, position = np.nonzero(np.abs(tokens[0]) > tables.TAIL_LOG_RATIO)
        return _block(
            tables.TAIL_TOKENS,
            {
                "step": np.full(len(row), step),
                "prompt_position": value["prompt_position"][row],
                "rollout": value["rollout"][row],
                "position": position,
                "log_ratio": tokens[0][row, position],
                "old_log_prob": tokens[1][row, position],
            },
        )

    def add_rollouts(self, rows: list[dict[str, Any]]) -> None:
        """The rollouts of one batch, once, as rows of the table `rollouts`."""
        self._complete_rollouts()
        self._done["rollouts"].append(pa.Table.from_pylist(rows, schema=tables.schema(tables.ROLLOUTS)))

    def tables(self) -> dict[str, tuple[tables.Table, pa.Table]]:
        """All records so far, by file name."""
        self._complete_rollouts()
        for name, blocks in self._steps.items():
            if blocks:
                self._done[name].append(_arrow(_TABLES[name], np.concatenate(blocks)))
                blocks.clear()
        return {name: (table, _concat(table, self._done[name])) for name, table in _TABLES.items()}

    def save(self, folder: Path) -> None:
        """Write the records so far beside a resumable state."""
        for name, (table, rows) in self.tables().items():
            tables.write(folder / f"{name}.parquet", table, rows, {})

    def load(self, folder: Path) -> None:
        """Take up the records that `save` left."""
        self._done = {name: [tables.read(folder / f"{name}.parquet", table)] for name, table in _TABLES.items()}


def _block(table: tables.Table, columns: dict[str, np.ndarray]) -> np.ndarray:
    """Rows of a table as one structured array."""
    block = np.empty(len(columns["step"]), dtype=[(name, _KINDS[kind]) for name, kind in table.columns.items()])
    for name, kind in table.columns.items():
        block[name] = columns[name] if pa.types.is_floating(kind) else np.rint(columns[name])
    return block


def _arrow(table: tables.Table, block: np.ndarray) -> pa.Table:
    """The same as an Arrow table; what is not finite is null."""
    return pa.table(
        {name: pa.array(block[name], type=kind, mask=~np.isfinite(block[name])) for name, kind in table.columns.items()}
    )


def _concat(table: tables.Table, chunks: Iterable[pa.Table]) -> pa.Table:
    plain = [chunk.replace_schema_metadata(None).cast(tables.schema(table)) for chunk in chunks]
    return pa.concat_tables(plain) if plain else tables.schema(table).empty_table()


def gathered(columns: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The records of all processes, for each of them."""
    parts = gather_object([(columns, tokens)])
    width = max(part.shape[2] for _, part in parts)
    wide = [np.pad(part, ((0, 0), (0, 0), (0, width - part.shape[2]))) for _, part in parts]
    return np.concatenate([c for c, _ in parts]), np.concatenate(wide, axis=1)
