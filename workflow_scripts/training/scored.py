"""What a rollout batch is scored by: the text of each completion and whether the token limit cut it off.

TRL counts a completion as cut off if it does not end with an end token. One that ends at a stop string is not cut off.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from workflow_scripts.sampling.stop_strings import cut


@dataclass
class Scored:
    """What the reward function saw of this process's rollouts."""

    completions: list[str]
    problem_ids: list[str]
    statuses: list[str | None]
    truncated: list[bool]
    tokens: list[int]

    @classmethod
    def of(
        cls,
        texts: list[str],
        problem_ids: list[str],
        token_ids: list[list[int]],
        ends: set[int],
        stop: tuple[str, ...] | None,
    ) -> "Scored":
        """Without verdicts yet. texts: of all token_ids, special tokens left out."""
        completions, stopped = zip(*(cut(text, stop) for text in texts), strict=True)
        return cls(
            completions=list(completions),
            problem_ids=problem_ids,
            statuses=[None] * len(texts),
            truncated=[
                not found and (not ids or ids[-1] not in ends) for ids, found in zip(token_ids, stopped, strict=True)
            ],
            tokens=[len(ids) for ids in token_ids],
        )

    def rows(self) -> Iterator[tuple[str, str, str | None, bool, int]]:
        """Of each rollout: text, problem, status of its verdict, whether it was cut off, tokens."""
        return zip(self.completions, self.problem_ids, self.statuses, self.truncated, self.tokens, strict=True)


def leave_out_truncated(output: dict[str, Any], accelerator: Any) -> None:
    """Take truncated completions out of the loss of a rollout batch, as TRL's mask_truncated_completions does."""
    kept = (1 - output["truncated"]).to(output["completion_mask"].dtype)
    output["completion_mask"] = output["completion_mask"] * kept.unsqueeze(1)
    output["num_items_in_batch"] = accelerator.gather(output["completion_mask"].sum()).sum()


def log_ends(metrics: dict[str, list[float]], truncated: Tensor, tokens: Tensor) -> None:
    """TRL's metrics of the batch that say which completions ended by themselves. truncated, tokens (B,): of all."""
    lengths = tokens[truncated == 0].float()
    lengths = lengths if len(lengths) else torch.zeros(1)
    metrics["completions/clipped_ratio"][-1:] = [truncated.float().mean().item()]
    for name in ("mean", "min", "max"):
        metrics[f"completions/{name}_terminated_length"][-1:] = [getattr(lengths, name)().item()]
