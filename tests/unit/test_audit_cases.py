"""`armslength audit`: constructed logs with a known truth, the logs of other versions and stacks, and other files."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_scripts.analysis.clipping import Clip
from workflow_scripts.analysis.clipping import judge as judge_shares
from workflow_scripts.commands import audit
from workflow_scripts.commands.audit.clip_verdict import Answer, Cause, judge
from workflow_scripts.commands.audit.trainer_log import LogError, read
from workflow_scripts.commands.audit.update_rhythm import Rhythm, updates_per_batch

YES, RARELY, NO, UNKNOWN = Answer.YES, Answer.RARELY, Answer.NO, Answer.UNKNOWN
LOW, HIGH, REGION = "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean"
STEPS = range(1, 41)

Entry = dict[str, Any]
History = list[Entry]


def entry(step: int, clip: float, reward: bool = True, **more: Any) -> Entry:
    """One step as TRL 0.18 and later logs it; the keys of a rollout batch only with `reward`."""
    drawn = {"reward": 0.5, "reward_std": 0.2, "frac_reward_zero_std": 0.3} if reward else {}
    shares = {REGION: clip, LOW: clip / 2, HIGH: clip / 2}
    return {"step": step, "loss": 0.1, "entropy": 0.3, **shares, **drawn, **more}


def batches(clip: Callable[[int], float], updates: int, steps: range = STEPS, **more: Any) -> History:
    """A log of so many updates per rollout batch; clip: share by position in the batch, 0 being the first update."""
    return [entry(s, clip((s - 1) % updates), (s - 1) % updates == 0, **more) for s in steps]


def first_and_later(first: float, later: float, updates: int = 4) -> History:
    """Constant shares at first updates and at later ones."""
    return batches(lambda position: later if position else first, updates)


def in_trl(history: History, learning_rate: float = 1e-6) -> History:
    """The same with what the GRPOTrainer of TRL logs beside it: tokens so far where it drew rollouts."""
    tokens = {one["step"]: {"num_tokens": 900 * one["step"]} for one in history if "reward" in one}
    return [one | {"learning_rate": learning_rate} | tokens.get(one["step"], {}) for one in history]


def old(clip: Callable[[int], float] | None, updates: int, **more: Any) -> History:
    """TRL 0.16 (with clip_ratio), or TRL up to 0.15 and Unsloth (without)."""
    history = []
    for step in STEPS:
        one: Entry = {"step": step, "loss": 0.1, "kl": 0.0, "learning_rate": 1e-6, **more}
        if (step - 1) % updates == 0:
            one |= {"reward": 0.5, "reward_std": 0.1, "completion_length": 100.0}
        history.append(one | ({"clip_ratio": clip((step - 1) % updates)} if clip else {}))
    return history


def asynchronous(ratio: float, clip: float, metric: str | None = None) -> History:
    """AsyncGRPOTrainer: rewards and a mean ratio at each step; metric: the only clip metric, in TRL 1.0 to 1.6."""
    history = [entry(step, clip, ratio=1 + (ratio - 1) * (-1) ** step, kl=1e-4) for step in STEPS]
    for one in history:
        del one["frac_reward_zero_std"]
        if metric:
            del one[LOW], one[HIGH], one[REGION]
            one[metric] = clip
    return history


def without(history: History, *keys: str) -> History:
    """The same log without some keys."""
    return [{key: value for key, value in one.items() if key not in keys} for one in history]


def spiked(history: History, shares: dict[int, float]) -> History:
    """The same log with other clip shares at some steps."""
    changed = [(one, shares.get(one["step"])) for one in history]
    return [one if share is None else one | {REGION: share, LOW: 0.0, HIGH: share} for one, share in changed]


warmed_up = [one | {"learning_rate": 1e-6 * (one["step"] < 5)} for one in first_and_later(0, 0, 2)]
flat = {"frac_reward_zero_std": 1.0}
resumed = [entry(s, 0.01 * ((s - 1) % 4 > 0), (s - 1) % 4 == 0) for s in range(1, 19)] + [
    entry(s, 0.01 * ((s - 19) % 4 > 0), (s - 19) % 4 == 0) for s in range(19, 60)
]

# name: (log, rhythm, updates per batch, could, did, cause)
LOGS: dict[str, tuple[History, Rhythm, int, Answer, Answer, Cause]] = {
    # Several updates per batch: noise at first updates against the share at later ones
    "clean": (first_and_later(0, 0.01), Rhythm.REGULAR, 4, YES, YES, Cause.BINDS),
    "noise 4, later 50": (first_and_later(0.04, 0.5), Rhythm.REGULAR, 4, YES, YES, Cause.BINDS),
    "noise 6, later 50": (first_and_later(0.06, 0.5), Rhythm.REGULAR, 4, YES, YES, Cause.BINDS),
    "noise 24, later 50": (first_and_later(0.24, 0.5), Rhythm.REGULAR, 4, YES, YES, Cause.BINDS),
    "noise 26, later 50": (first_and_later(0.26, 0.5), Rhythm.REGULAR, 4, YES, NO, Cause.NOISE),
    "noise as large": (first_and_later(0.01, 0.01), Rhythm.REGULAR, 4, YES, NO, Cause.NOISE),
    "noise alone": (first_and_later(0.01, 0), Rhythm.REGULAR, 4, YES, NO, Cause.NOISE),
    "one noisy first update of ten": (
        spiked(first_and_later(0, 0.01), {9: 0.5}), Rhythm.REGULAR, 4, YES, UNKNOWN, Cause.ONE_FIRST_UPDATE,
    ),
    "a small noise event": (spiked(first_and_later(0, 0.01), {9: 0.01}), Rhythm.REGULAR, 4, YES, YES, Cause.BINDS),
    "a noise event and no clip": (
        spiked(first_and_later(0, 0), {9: 1e-3}), Rhythm.REGULAR, 4, YES, NO, Cause.NOISE,
    ),
    "one share of 1e-9": (spiked(first_and_later(0, 0), {7: 1e-9}), Rhythm.REGULAR, 4, YES, RARELY, Cause.RARE),
    "below a token in 10,000": (first_and_later(0, 9e-5), Rhythm.REGULAR, 4, YES, RARELY, Cause.RARE),
    "a token in 10,000": (first_and_later(0, 1.1e-4), Rhythm.REGULAR, 4, YES, YES, Cause.BINDS),
    "resumed within a batch": (resumed, Rhythm.REGULAR, 4, YES, YES, Cause.BINDS),
    # Nothing fired
    "never fired, rate known": (in_trl(first_and_later(0, 0)), Rhythm.REGULAR, 4, YES, NO, Cause.NEVER_FIRED),
    "never fired, nothing shows that it moved": (
        first_and_later(0, 0, 2), Rhythm.REGULAR, 2, UNKNOWN, NO, Cause.NEVER_FIRED,
    ),
    "learning rate 0": (in_trl(first_and_later(0, 0, 2), 0.0), Rhythm.REGULAR, 2, NO, NO, Cause.RATE_ZERO),
    "learning rate 0 after warm-up": (
        warmed_up, Rhythm.REGULAR, 2, YES, NO, Cause.NEVER_FIRED,
    ),
    "every group flat": (
        [one | (flat if "reward" in one else {}) for one in first_and_later(0, 0)],
        Rhythm.REGULAR, 4, NO, NO, Cause.ALL_FLAT,
    ),
    "every group flat, no such metric": (
        [one | {"reward_std": 0.0} for one in without(first_and_later(0, 0), "frac_reward_zero_std")],
        Rhythm.REGULAR, 4, NO, NO, Cause.ALL_FLAT,
    ),
    "nearly every group flat": (
        in_trl([one | ({"frac_reward_zero_std": 0.99} if "reward" in one else {}) for one in first_and_later(0, 0)]),
        Rhythm.REGULAR, 4, YES, NO, Cause.NEVER_FIRED,
    ),
    # A reward at each step: TRL with one update, or a stack that repeats the last reward
    "U = 1 in TRL": (in_trl([entry(s, 0) for s in STEPS]), Rhythm.ONE, 0, NO, NO, Cause.ONE_UPDATE),
    "U = 1 or a stack that repeats rewards": (
        [entry(s, 0) for s in STEPS], Rhythm.ONE_IN_TRL, 0, UNKNOWN, NO, Cause.NEVER_FIRED,
    ),
    "tokens so far stand still": (
        [entry(s, 0, num_tokens=(s - 1) // 4) for s in STEPS], Rhythm.ONE_IN_TRL, 0, UNKNOWN, NO, Cause.NEVER_FIRED,
    ),
    "flat at half of the steps": (
        [entry(s, 0) | {"frac_reward_zero_std": 1.0 if s % 2 else 0.9} for s in STEPS],
        Rhythm.ONE_IN_TRL, 0, UNKNOWN, NO, Cause.NEVER_FIRED,
    ),
    "rewards at each step, one clip": (
        [entry(s, 0.01 * (s == 7)) for s in STEPS], Rhythm.NEW_YET_FIRES, 0, UNKNOWN, UNKNOWN, Cause.NO_RHYTHM,
    ),
    "rewards at each step, one tiny clip": (
        [entry(s, 1e-6 * (s == 7)) for s in STEPS], Rhythm.NEW_YET_FIRES, 0, UNKNOWN, RARELY, Cause.RARE,
    ),
    "rewards at each step, a period": (
        [entry(s, 0.01 * ((s - 1) % 4 > 0)) for s in STEPS], Rhythm.BY_CLIP, 4, YES, YES, Cause.BINDS,
    ),
    "each step draws rollouts, and the clip has a period": (
        in_trl([entry(s, 0.01 * ((s - 1) % 4 > 0)) for s in STEPS]),
        Rhythm.NEW_YET_FIRES, 0, UNKNOWN, UNKNOWN, Cause.NO_RHYTHM,
    ),
    "uneven batches, one later entry": (
        [entry(5 * s, 3e-3 * (s == 3), s != 3) for s in range(1, 5)],
        Rhythm.UNEVEN, 0, YES, UNKNOWN, Cause.MIXED,
    ),
    "no rewards, fires always": (
        without([entry(s, 0.01) for s in STEPS], "reward"), Rhythm.NO_PERIOD, 0, UNKNOWN, UNKNOWN, Cause.NO_RHYTHM,
    ),
    "no rewards, never fires": (
        without([entry(s, 0) for s in STEPS], "reward"), Rhythm.NO_REWARDS, 0, UNKNOWN, NO, Cause.NEVER_FIRED,
    ),
    "one step": ([entry(1, 0.1)], Rhythm.ONE_STEP, 0, UNKNOWN, UNKNOWN, Cause.NO_RHYTHM),
    # Means over several steps
    "every 10": ([entry(10 * s, 0.01) for s in range(1, 9)], Rhythm.MEANS, 10, UNKNOWN, UNKNOWN, Cause.MIXED),
    "every 10, never": ([entry(10 * s, 0) for s in range(1, 9)], Rhythm.MEANS, 10, UNKNOWN, NO, Cause.NEVER_FIRED),
    "every 4, never": ([entry(4 * s, 0) for s in range(1, 20)], Rhythm.MEANS, 4, UNKNOWN, NO, Cause.NEVER_FIRED),
    "every 2 after the first": (
        [entry(1, 0), *(entry(2 * s, 0.01) for s in range(1, 20))], Rhythm.MEANS, 2, UNKNOWN, UNKNOWN, Cause.MIXED,
    ),
    "every 2, half of the entries with new rollouts, noise alone": (
        [entry(2 * s, 0.05, s % 2 == 1) for s in STEPS], Rhythm.REGULAR, 4, YES, UNKNOWN, Cause.MIXED,
    ),
    "every 2, silent with new rollouts": (
        [entry(2 * s, 0.05 * (s % 2 == 0), s % 2 == 1) for s in STEPS], Rhythm.REGULAR, 4, YES, YES, Cause.BINDS,
    ),
    "every 2, rare": ([entry(2 * s, 1e-6, s % 2 == 1) for s in STEPS], Rhythm.REGULAR, 4, YES, RARELY, Cause.RARE),
    # Other versions and trainers
    "TRL 0.16": (old(lambda i: 0.01 * (i > 0), 2), Rhythm.REGULAR, 2, YES, UNKNOWN, Cause.NOT_COUNTED),
    "TRL 0.16, nothing counted": (old(lambda i: 0.0, 2), Rhythm.REGULAR, 2, YES, UNKNOWN, Cause.NOT_COUNTED),
    "TRL 0.16, one update": (old(lambda i: 0.0, 1), Rhythm.ONE, 0, NO, NO, Cause.ONE_UPDATE),
    "Liger in TRL 0.17": (
        without(old(lambda i: 0.01 * (i > 0), 2, **{"completions/mean_length": 9.0}), "completion_length"),
        Rhythm.REGULAR, 2, YES, YES, Cause.BINDS,
    ),
    "clip_ratio of an unknown version": (
        without(old(lambda i: 0.01 * (i > 0), 2), "completion_length"),
        Rhythm.REGULAR, 2, YES, UNKNOWN, Cause.NOT_COUNTED,
    ),
    "TRL 0.15, Unsloth": (old(None, 1), Rhythm.ONE, 0, NO, NO, Cause.ONE_UPDATE),
    "Unsloth with two updates": (old(None, 2), Rhythm.REGULAR, 2, YES, UNKNOWN, Cause.NOT_COUNTED),
    "a loss without a clip": (
        without(in_trl(first_and_later(0, 0)), REGION, LOW, HIGH),
        Rhythm.REGULAR, 4, UNKNOWN, UNKNOWN, Cause.NOT_COUNTED,
    ),
    "asynchronous": (asynchronous(1.01, 0.02), Rhythm.ASYNCHRONOUS, 0, YES, YES, Cause.BINDS),
    "asynchronous, never fired": (asynchronous(1.001, 0.0), Rhythm.ASYNCHRONOUS, 0, YES, NO, Cause.NEVER_FIRED),
    "asynchronous, rare": (asynchronous(1.001, 1e-6), Rhythm.ASYNCHRONOUS, 0, YES, RARELY, Cause.RARE),
    "asynchronous, ratio 1": (asynchronous(1.0, 0.0), Rhythm.ONE_IN_TRL, 0, NO, NO, Cause.RATIO_ONE),
    "asynchronous, TRL 1.0": (
        asynchronous(1.01, 0.02, "clip_ratio"), Rhythm.ASYNCHRONOUS, 0, YES, UNKNOWN, Cause.NOT_COUNTED,
    ),
    "asynchronous, TRL 1.0, never": (
        asynchronous(1.01, 0.0, "clip_ratio"), Rhythm.ASYNCHRONOUS, 0, YES, NO, Cause.NEVER_FIRED,
    ),
}  # fmt: skip


def write(path: Path, history: History) -> str:
    """A trainer_state.json."""
    path.write_text(json.dumps({"log_history": history}))
    return str(path)


@pytest.mark.parametrize("name", LOGS)
def test_constructed_logs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history, rhythm, count, could, did, cause = LOGS[name]
    path = write(tmp_path / "log.json", history)
    log = read(path)
    updates = updates_per_batch(log)
    found = judge(log, updates)
    assert (updates.rhythm, updates.count) == (rhythm, count)
    assert (found.could, found.did, found.cause) == (could, did, cause)
    words = audit.verdict(log, audit.updates_per_batch(log))
    assert words[:2] == (could.value, did.value) and words[2]
    assert audit.main([path]) == 0
    assert f"could bind: {could}; did: {did}: {words[2]}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("history", "words"),
    [
        (first_and_later(0.06, 0.5), "mean share 50.0 %; up to 6.0 % of tokens are numerical noise, as at first"),
        (first_and_later(0.26, 0.5), "clips 26.0 % at first updates, where the ratio is 1, and 50.0 % at later ones"),
        (spiked(first_and_later(0, 0), {7: 3e-9}), "in 1 of 30 steps that could clip, on a share of 1e-10 of tokens"),
        (old(lambda i: 0.01, 2), "the clip_ratio of TRL 0.16 counts tokens that the clip leaves alone"),
        (in_trl([entry(10 * s, 0) for s in STEPS]), "updates per batch: cannot be determined: logged every 10 steps"),
        (first_and_later(0, 0), "no learning rate is logged, so whether the ratio moved at all cannot be determined"),
        (old(None, 1), "the log has no values of a clip metric (TRL up to 0.15 and Unsloth log none)"),
        (asynchronous(1.01, 0.02), "the logged ratio differs from 1 by up to 0.01"),
        (warmed_up, "is 0 in 36 of 40 steps"),
    ],
)  # fmt: skip
def test_the_sentence_has_the_numbers(history: History, words: str, tmp_path: Path) -> None:
    log = read(write(tmp_path / "log.json", history))
    assert words in audit.verdict(log, updates_per_batch(log))[2]


def test_a_clip_metric_that_counts_other_tokens_is_not_shown_as_a_clip(tmp_path: Path) -> None:
    log = read(write(tmp_path / "log.json", old(lambda i: 0.01 * (i > 0), 2)))
    cells = dict(zip(audit.ROWS, audit.column(log), strict=True))
    assert (cells["clip metrics"], cells["updates per batch"]) == ("clip_ratio", "2")
    assert cells["steps with a clip"] == cells["clip share"] == cells["clip at first updates"] == "-"


# Shares that cannot be


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({LOW: 0.6, HIGH: 0.6}, "inconsistent: clip_ratio/low_mean 0.6 and clip_ratio/high_mean 0.6 at step 2 add up"),
        ({LOW: 0.6, HIGH: 0.6, REGION: 0.6}, "inconsistent"),
        ({LOW: 0.6, HIGH: 0.1, REGION: 0.2}, "inconsistent: clip_ratio/region_mean 0.2 is less than the sum of"),
        ({LOW: 0.6, HIGH: 0.6, REGION: 1.2}, "clip_ratio/region_mean is 1.2 at step 2: a share lies between 0 and 1"),
        ({REGION: 1.2}, "if the values are per cent, divide them by 100"),
        ({"clip_ratio": 43.0}, "per cent"),
        ({"cispo_clip_ratio": 1.01}, "per cent"),
        ({REGION: -0.1}, "clip_ratio/region_mean is -0.1 at step 2: a share lies between 0 and 1"),
        ({HIGH: 1e9}, "clip_ratio/high_mean is 1e+09 at step 2: a share lies between 0 and 1"),
    ],
)
def test_impossible_shares_are_refused(shares: Entry, words: str, tmp_path: Path) -> None:
    history = [{"step": s, "loss": 0.1, "reward": 0.5, **(shares if s == 2 else {})} for s in STEPS]
    with pytest.raises(LogError) as error:
        read(write(tmp_path / "log.json", history))
    assert words in str(error.value)


@pytest.mark.parametrize(
    "shares",
    [
        {LOW: 0.5, HIGH: 0.5, REGION: 1.0},
        {LOW: 0.5, HIGH: 0.50000003, REGION: 1.0000001},  # float32
        {LOW: 0.01, HIGH: 0.01, REGION: 0.01},  # 0.006 and 0.006, rounded to two digits
        {LOW: 0.1, HIGH: 0.1, REGION: 0.5},  # two-sided bounds of ours clip on the other sides too
        {LOW: 0.6, HIGH: float("nan"), REGION: 0.7},
    ],
)
def test_possible_shares_are_read(shares: Entry, tmp_path: Path) -> None:
    log = read(write(tmp_path / "log.json", [{"step": s, "reward": 0.5, **shares} for s in STEPS]))
    assert max(log.clip.values()) <= 1


# Files of other formats


def tfevents() -> bytes:
    """The first record of a tensorboard event file: length, checksum, wall time and file version."""
    event = b"\x09" + struct.pack("<d", 1.7e9) + b"\x1a\x0dbrain.Event:2"
    return struct.pack("<Q", len(event)) + b"\x9a\x3b\x1c\x2d" + event + b"\x12\x34\x56\x78"


VERL = b'{"step": 1, "data": {"actor/pg_clipfrac": 0.01, "critic/rewards/mean": 0.5}}\n'
FILES: dict[str, tuple[bytes, str]] = {
    "tensorboard": (tfevents(), "a tensorboard event file"),
    "verl": (VERL * 2, "a JSON Lines file of verl's file logger"),
    "verl, one step": (VERL, "a JSON Lines file of verl's file logger"),
    "JSON Lines": (b'{"step": 1, "loss": 1}\n{"step": 2, "loss": 1}\n', "a JSON Lines file (one object per line)"),
    "W&B chart": (
        b'"Step","run-7 - train/clip_ratio/region_mean","run-7 - train/clip_ratio/region_mean__MIN"\n"1","0.1","0.1"\n',
        "a csv file exported from W&B",
    ),
    "W&B history": (b"_step,_runtime,train/reward\n0,1.5,0.5\n", "a csv file exported from W&B"),
    "csv": (b"step,loss\n1,2\n", "a csv file"),
    "csv of Windows": (b"\xef\xbb\xbfstep,loss\r\n1,2\r\n", "a csv file"),
    "csv in Latin-1": ("step,Größe\n1,2\n".encode("latin-1"), "a csv file"),
    "csv with semicolons": (b"step;loss\n1;2,5\n", "a csv file"),
    "bytes": (b"\xff\xfe\xfd\x00\x00\x01", "a binary file of an unknown format"),
    "printed list": (b"[{'loss': 0.1, 'step': 1}, {'loss': 0.2, 'step': 2}]\n", "the console output of a trainer"),
    "list of others": (b'[{"_step": 1}]', "a list of JSON objects"),
    "bare list": (json.dumps([entry(1, 0.1)]).encode(), 'a bare log_history list; save it as {"log_history": [...]}'),
    "bare list, indented": (json.dumps([entry(1, 0.1)], indent=2).encode(), "a bare log_history list"),
    "W&B summary": (b'{"_step": 40, "_runtime": 3, "train/reward": 0.5}', "a summary of a W&B run"),
    "W&B run": (b":W&B\xbe\xee\x00" + bytes(64), "a W&B run file"),
    "printed": (b"  0%| | 0/40\n{'loss': 0.1, 'reward': 0.5}\n{'loss': 0.1}\n", "the console output of a trainer"),
    "pickle": (b"\x80\x04\x95\xff", "a Python pickle"),
    "zip": (b"PK\x03\x04\x00\x00", "a zip archive"),
    "gzip": (b"\x1f\x8b\x08\x00", "a gzip archive"),
    "SQLite": (b"SQLite format 3\0\x10\x00", "an SQLite database"),
}


@pytest.mark.parametrize("name", FILES)
def test_other_formats_are_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, words = FILES[name]
    path = tmp_path / "log"
    path.write_bytes(content)
    assert audit.main([str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith(f"armslength audit: {path}: {words}")
    assert "audit reads trainer_state.json" in err and "trainer_log.parquet" in err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (json.dumps({"log_history": [entry(s, 0.1) for s in range(5000)]})[:-100], "JSON that breaks off at line 1"),
        ("[1,\n2,\n3", "JSON that breaks off at line 3"),
        ("x" * 200_000 + "\n1,2\n", "no JSON: Expecting value"),
        ("import os, sys\nimport json, re\n", "no JSON: Expecting value"),
        ("[]", "no TrainerState"),
    ],
)
def test_files_without_a_name_are_not_given_one(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(content)
    with pytest.raises(LogError, match=words):
        read(str(tmp_path / "log"))


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("events.out.tfevents.1.host.2.0", "it holds tensorboard event files, which audit does not read"),
        ("runs/Dec01/events.out.tfevents.1", "it holds tensorboard event files, which audit does not read"),
        ("wandb/run-1/run-1.wandb", "it holds the files of a W&B run, which audit does not read"),
    ],
)
def test_folders_of_other_formats_are_named(file: str, words: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_bytes(b"")
    with pytest.raises(LogError, match=words):
        read(str(tmp_path))


# The rule

shares = st.floats(0, 1)
ORDER = [Clip.NEVER, Clip.NOISE, Clip.RARE, Clip.ACTS]


@given(shares, shares, shares)
def test_more_clipping_at_later_updates_never_weakens_the_verdict(first: float, a: float, b: float) -> None:
    low, high = (judge_shares(first, later) for later in sorted((a, b)))
    assert ORDER.index(low) <= ORDER.index(high)


@given(shares, shares, shares)
def test_more_noise_never_strengthens_the_verdict(later: float, a: float, b: float) -> None:
    low, high = (judge_shares(first, later) for first in sorted((a, b)))
    assert low is Clip.NEVER or ORDER.index(low) >= ORDER.index(high)
