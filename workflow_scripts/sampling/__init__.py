"""Drawing completions: one signature for every engine, one seed for every completion."""

import hashlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol, Self

from workflow_scripts.errors import UserError

TEMPLATE_DATE = "2024-07-26"  # the day that Llama's own templates print where they are given no date


class EngineError(UserError):
    """The engine cannot do this; one line for the user."""


@dataclass(frozen=True)
class Options:
    """Temperature (> 0), nucleus mass top_p (0, 1], the most tokens a completion may have, how many of the most likely
    tokens the nucleus is taken of (top_k; None: all), and the texts that end a completion (stop; None: no text does).
    """

    temperature: float
    top_p: float
    max_completion: int
    top_k: int | None = None
    stop: tuple[str, ...] | None = None

    @classmethod
    def of(cls, settings: dict[str, Any]) -> Self:
        """From the keys of the same names in a stage's settings, where keys that are not set are missing."""
        found = {field.name: settings[field.name] for field in fields(cls) if field.name in settings}
        return cls(**found | {"stop": tuple(found["stop"]) if found.get("stop") else None})


@dataclass(frozen=True)
class Completion:
    """Token ids, up to and including the end token or the token that completes a stop string, if there is one;
    truncated: the token limit came first."""

    token_ids: list[int]
    truncated: bool


class Engine(Protocol):
    """What draws completions of the base and of checkpoints.

    name: with its version; it goes into the footers of results and never into a key.
    """

    name: str

    def load(self, checkpoint: Path | None) -> None:
        """Sample from this checkpoint from here on: an adapter on the base, or full weights. None: the base."""

    def sample(self, prompts: list[list[int]], seeds: list[int], options: Options) -> list[Completion]:
        """One completion per prompt, in the order of the prompts.

        prompts: token ids; seeds: one integer each. Up to floating point, a completion depends on its prompt and its
        seed alone, not on what shared its batch.
        """


def stream_seed(*parts: str | int) -> int:
    """A 63-bit seed for one random stream, named by its parts: ("evaluation", seed, step, problem_id, sample), say."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
