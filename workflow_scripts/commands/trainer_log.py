"""The training log of a GRPO run, ours or anybody's, as `armslength audit` reads it."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

LOWER, UPPER, EITHER = "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean"
WHOLE = ("clip_ratio", "cispo_clip_ratio")  # both bounds as one: older TRL and the Liger kernel; CISPO's upper bound
CLIPS = (EITHER, LOWER, UPPER, *WHOLE)
FLAT, TRUNCATED = "frac_reward_zero_std", "completions/clipped_ratio"
SHARES = {*CLIPS, FLAT, TRUNCATED}
USED = {*SHARES, "entropy", "reward", "reward_std"}
MOST_BYTES = 500_000_000  # a step takes about a thousand


class LogError(Exception):
    """A log cannot be read; one line for the user."""


@dataclass
class Log:
    """One run's log: metric -> step -> value; the steps, in order; those that logged a reward, be it null."""

    name: str
    metrics: dict[str, dict[int, float]]
    steps: list[int]
    rewarded: set[int]
    left_out: Counter[str]
    clip: dict[int, float] = field(init=False)  # step -> share outside either bound

    def __post_init__(self) -> None:
        low, high = self.get(LOWER), self.get(UPPER)  # no token is in both: A < 0 and A > 0
        self.clip = {step: low.get(step, 0.0) + high.get(step, 0.0) for step in {**low, **high}}
        for name in (*WHOLE, EITHER):
            self.clip |= self.get(name)

    def get(self, metric: str) -> dict[int, float]:
        """Its values by step; empty where it was not logged."""
        return self.metrics.get(metric, {})

    @property
    def interval(self) -> int:
        """Steps from one entry to the next, as most are."""
        gaps = Counter(b - a for a, b in pairwise([0, *self.steps] if len(self.steps) == 1 else self.steps))
        return gaps.most_common(1)[0][0]


def _locate(path: Path) -> Path:
    """The log itself, where a folder was named."""
    if not path.is_dir():
        return path
    numbered = [p for p in path.glob("checkpoint-*/trainer_state.json") if p.parent.name[11:].isdecimal()]
    newest = sorted(numbered, key=lambda p: int(p.parent.name[11:]))[-1:]
    for found in (path / "trainer_state.json", path / "trainer_log.parquet", *newest):
        if found.is_file():
            return found
    raise LogError("a folder without trainer_state.json, checkpoint-N/trainer_state.json or trainer_log.parquet")


def _history(content: bytes) -> list[Any]:
    """log_history of a TrainerState; raises LogError for anything else."""
    if not content.strip(b"\0 \t\r\n"):
        raise LogError("the file is empty")
    try:
        state = json.loads(content)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
        where = f"line {error.lineno} column {error.colno}"
        raise LogError(f"JSON that breaks off at {where}" if cut else f"no JSON: {error.msg} at {where}") from None
    except (ValueError, RecursionError, MemoryError) as error:  # other bytes than text, endless digits, deep nesting
        raise LogError(f"no JSON that can be read: {type(error).__name__}") from None
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        raise LogError("no TrainerState: the key log_history, a list of entries, is missing")
    return history


def _rows(path: Path) -> list[Any]:
    """Our own trainer_log.parquet as entries."""
    from workflow_scripts import tables  # half a second that a JSON file need not wait

    entries: dict[int, dict[str, Any]] = {}
    try:
        for row in tables.read(path, tables.TRAINER_LOG).to_pylist():
            entries.setdefault(row["step"], {"step": row["step"]})[str(row["metric"])] = row["value"]
    except tables.TableError as error:
        raise LogError(str(error).removeprefix(f"{path}: ")) from None
    return list(entries.values())


def _number(value: Any, share: bool) -> float | None:
    """A finite number, within 0..1 if it is a share; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < 1e300 and (not share or 0 <= number <= 1) else None  # NaN is in neither


def _log(name: str, entries: Iterable[Any]) -> Log:
    """The entries of training by step; what the final summary and evaluations logged is left out."""
    kept: dict[int, dict[str, Any]] = {}
    left_out: Counter[str] = Counter()
    for entry in entries:
        if not isinstance(entry, dict):
            left_out["no entry"] += 1
        elif not ({"loss", "reward", *CLIPS} & entry.keys()):
            left_out["evaluation"] += any(key.startswith("eval_") for key in entry)
        elif (step := _number(entry.get("step"), False)) is None or step != int(step) or not 0 <= step < 2**53:
            left_out["without a step"] += 1
        else:
            left_out["repeated step"] += int(step) in kept
            kept[int(step)] = entry
    if not kept:
        raise LogError("no entries of training in its log (none has a step and a loss, reward or clip)")
    metrics: dict[str, dict[int, float]] = {}
    for step, entry in sorted(kept.items()):
        for metric in USED & entry.keys():
            number = _number(entry[metric], metric in SHARES)
            if number is None:
                left_out["no number"] += 1
            else:
                metrics.setdefault(metric, {})[step] = number
    if not set(CLIPS) & metrics.keys():
        bad = [name for name in CLIPS if any(name in entry for entry in kept.values())]
        if bad:
            raise LogError(f"no clip metric: no value of {', '.join(bad)} is a share, 0 to 1")
        raise LogError(f"no clip metric: none of {', '.join(CLIPS)} (losses without a clip log none)")
    return Log(name, metrics, sorted(kept), {s for s, entry in kept.items() if "reward" in entry}, +left_out)


def read(file: str) -> Log:
    """The log of a trainer_state.json, of a trainer_log.parquet, or of a folder with either.

    Nothing beside it is opened: training_args.bin is a pickle, which could run code. Raises LogError.
    """
    path = Path(file)
    try:
        path = _locate(path)
        with path.open("rb") as opened:
            start = opened.read(4)
            content = b"" if start == b"PAR1" else start + opened.read(MOST_BYTES)
        if len(content) > MOST_BYTES:
            raise LogError(f"larger than {MOST_BYTES // 10**6} MB, which no log of training is")
        entries = _rows(path) if start == b"PAR1" else _history(content)
        return _log(str(path), entries)
    except LogError as error:
        raise LogError(f"{path}: {error}") from None
    except OSError as error:
        raise LogError(f"{path}: {error.strerror or error}") from None
