"""Drawing completions: one signature for every engine, one seed for every completion.

``sample(model, tokenizer, prompts, seeds, options, batch_size) -> list[Completion]``: prompts are token ids, seeds one
integer each; up to floating point, a completion depends on its prompt and its seed alone, not on what shared its batch.
"""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Temperature (> 0), nucleus mass top_p (0, 1], and the most tokens a completion may have."""

    temperature: float
    top_p: float
    max_completion: int


@dataclass(frozen=True)
class Completion:
    """Token ids, end token included where the model wrote one; truncated: the token limit came first."""

    token_ids: list[int]
    truncated: bool


def stream_seed(*parts: str | int) -> int:
    """A 63-bit seed for one random stream, named by its parts: ("evaluation", seed, step, problem_id, sample), say."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
