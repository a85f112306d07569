"""The training log of a GRPO run, ours or anybody's, as `armslength audit` reads it."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

from workflow_scripts.commands.audit.log_formats import READS, name_of_bytes, name_of_folder, name_of_json, name_of_text
from workflow_scripts.errors import UserError

LOWER, UPPER, EITHER = "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean"
WHOLE = ("clip_ratio", "cispo_clip_ratio")  # both bounds as one: older TRL and the Liger kernel; CISPO's upper bound
CLIPS = (EITHER, LOWER, UPPER, *WHOLE)
FLAT, TRUNCATED = "frac_reward_zero_std", "completions/clipped_ratio"
SHARES = {*CLIPS, FLAT, TRUNCATED}
RATIO = "ratio"  # mean importance ratio; of TRL's trainers only AsyncGRPOTrainer logs it
TOKENS = "num_tokens"  # generated so far; TRL 0.16 and later log it where they draw rollouts
LENGTH, LENGTHS = "completion_length", "completions/mean_length"  # TRL up to 0.16 and Unsloth; TRL since 0.17
RATE = "learning_rate"
USED = {*SHARES, RATIO, TOKENS, LENGTH, LENGTHS, RATE, "entropy", "reward", "reward_std"}
MOST_BYTES = 500_000_000  # a step takes about a thousand
ABOVE_ONE = 1e-6  # by which a mean in float32 may exceed a share of 1
RATIO_ROUNDING = 1e-6  # by which a mean ratio of 1 may differ from 1 in float32
ROUNDED = 0.015  # by which three shares rounded to two digits may miss their sum


class Counted(Enum):
    """What the clip metrics of a log count."""

    CLIPPED = "tokens whose update the clip stops"
    EITHER_SIDE = "tokens outside a bound, whatever the sign of their advantage"  # AsyncGRPOTrainer of TRL 1.0 to 1.6
    UNCLIPPED = "tokens outside a bound whose update goes on"  # TRL 0.16
    UNDEFINED = "clip_ratio of an unknown version"  # TRL 0.16 and its many copies, or Liger's
    NOTHING = "no clip metric"


class LogError(UserError):
    """A log cannot be read; one line for the user."""


@dataclass
class Log:
    """One run's log: metric -> step -> value; the steps, in order; those that logged a reward, be it null."""

    name: str
    metrics: dict[str, dict[int, float]]
    steps: list[int]
    rewarded: set[int]
    left_out: Counter[str]
    clip: dict[int, float] = field(init=False)  # step -> share that the clip metrics count, both bounds
    counted: Counted = field(init=False)

    def __post_init__(self) -> None:
        low, high = self.get(LOWER), self.get(UPPER)  # no token is in both: A < 0 and A > 0
        self.clip = {step: low.get(step, 0.0) + high.get(step, 0.0) for step in {**low, **high}}
        for name in (*WHOLE, EITHER):
            self.clip |= self.get(name)
        self.counted = self._what_is_counted()

    def _what_is_counted(self) -> Counted:
        """What the clip metrics count, by the metrics next to a clip_ratio without a bound, which show the version."""
        if not self.clip:
            return Counted.NOTHING
        if any(self.get(name) for name in CLIPS if name != "clip_ratio"):
            return Counted.CLIPPED
        if self.get(RATIO):
            return Counted.EITHER_SIDE
        if self.get(LENGTHS):  # of the Liger kernel, which counts correctly in every version
            return Counted.CLIPPED
        return Counted.UNCLIPPED if self.get(LENGTH) else Counted.UNDEFINED

    @property
    def shows_clip(self) -> bool:
        """Whether the clip metrics count at least everything that the clip stops."""
        return self.counted in (Counted.CLIPPED, Counted.EITHER_SIDE)

    @property
    def ratio_moved(self) -> bool | None:
        """Whether the logged mean ratio differs from 1 anywhere; None where none is logged."""
        ratios = self.get(RATIO).values()
        return any(abs(ratio - 1) > RATIO_ROUNDING for ratio in ratios) if ratios else None

    @property
    def draws_at_each_step(self) -> bool:
        """Whether every logged step has a reward and the log shows that it drew rollouts for it.

        A stack that repeats the last reward would log one too: tokens generated so far must change at every step, or
        the log must be of a TRL (up to 0.15) or Unsloth that logs no such count.
        """
        if len(self.rewarded) < len(self.steps):
            return False
        tokens = self.get(TOKENS)
        if not tokens:
            return len(self.get(LENGTH)) == len(self.steps)
        counts = [tokens.get(step) for step in self.steps]
        return None not in counts and all(a != b for a, b in pairwise(counts))

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
    holds = name_of_folder(path)
    lacks = "a folder without trainer_state.json, checkpoint-N/trainer_state.json or trainer_log.parquet"
    raise LogError(f"{lacks}; it holds {holds}, which audit does not read" if holds else lacks)


def _foreign(name: str) -> LogError:
    return LogError(f"{name}; {READS}")


def _history(content: bytes) -> list[Any]:
    """log_history of a TrainerState; raises LogError for anything else."""
    if not content.strip(b"\0 \t\r\n"):
        raise LogError("the file is empty")
    if name := name_of_bytes(content):
        raise _foreign(name)
    try:
        state = json.loads(content)
    except json.JSONDecodeError as error:
        if name := name_of_text(content):
            raise _foreign(name) from None
        cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
        where = f"line {error.lineno} column {error.colno}"
        raise LogError(f"JSON that breaks off at {where}" if cut else f"no JSON: {error.msg} at {where}") from None
    except UnicodeDecodeError:
        raise _foreign(name_of_text(content) or "neither UTF-8 text nor JSON") from None
    except (ValueError, RecursionError, MemoryError) as error:  # endless digits, deep nesting
        raise LogError(f"no JSON that can be read: {type(error).__name__}") from None
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        if name := name_of_json(state):
            raise _foreign(name)
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
    if not abs(number) < 1e300 or (share and not 0 <= number <= 1 + ABOVE_ONE):  # NaN is in neither
        return None
    return min(number, 1.0) if share else number


def _refuse_impossible_shares(kept: dict[int, dict[str, Any]]) -> None:
    """Raises LogError if a clip metric is no share, or if lower and upper bound contradict each other."""
    for step, entry in kept.items():
        shares = {name: value for name in CLIPS if (value := _number(entry.get(name), False)) is not None}
        for name, value in shares.items():
            if not 0 <= value <= 1 + ABOVE_ONE:
                hint = "; if the values are per cent, divide them by 100" if 1 < value <= 100 else ""
                raise LogError(f"{name} is {value:g} at step {step}: a share lies between 0 and 1{hint}")
        if LOWER not in shares or UPPER not in shares:
            continue
        low, high = shares[LOWER], shares[UPPER]
        both = f"{LOWER} {low:g} and {UPPER} {high:g} at step {step}"
        if low + high > 1 + ROUNDED:
            raise LogError(f"inconsistent: {both} add up to more than 1, but no token is outside both bounds")
        if EITHER in shares and shares[EITHER] < 0.99 * (low + high) - ROUNDED:  # more: bounds for the other sign of A
            raise LogError(f"inconsistent: {EITHER} {shares[EITHER]:g} is less than the sum of {both}")


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
    _refuse_impossible_shares(kept)
    rewarded = {step for step, entry in kept.items() if "reward" in entry}
    metrics: dict[str, dict[int, float]] = {}
    for step, entry in sorted(kept.items()):
        for metric in USED & entry.keys():
            number = _number(entry[metric], metric in SHARES)
            if number is None:
                left_out["no number"] += 1
            else:
                metrics.setdefault(metric, {})[step] = number
    if not rewarded and not set(CLIPS) & metrics.keys():
        raise LogError(
            f"no clip metric and no reward: none of {', '.join(CLIPS)}, so this is not the log of a GRPO run"
        )
    return Log(name, metrics, sorted(kept), rewarded, +left_out)


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
