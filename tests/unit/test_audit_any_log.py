"""`armslength audit` on any log: the period of any clip, no crash whatever the file, and rounding in what TRL logs."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_audit import REGION, UNKNOWN, cells, entries, judged, pattern, state, write

from workflow_scripts.commands import audit
from workflow_scripts.commands.audit import clip_verdict, trainer_log, update_rhythm
from workflow_scripts.commands.audit.clip_verdict import Answer
from workflow_scripts.commands.audit.trainer_log import LogError


@st.composite
def firing(draw: st.DrawFn) -> tuple[int, int, list[bool]]:
    """Updates per batch, where in a batch the log begins, and which of 100 batches' steps fire."""
    updates, start = draw(st.integers(2, 8)), draw(st.integers(0, 7))
    rates = [draw(st.floats(0.3, 1.0)) for _ in range(updates - 1)]
    noise = random.Random(draw(st.integers(0, 2**32)))
    return updates, start, [bool(i) and noise.random() < rates[i - 1] for _ in range(100) for i in range(updates)]


@settings(max_examples=150, deadline=None)
@given(firing())
def test_the_period_is_found(drawn: tuple[int, int, list[bool]]) -> None:
    updates, start, fires = drawn
    found = update_rhythm.period(dict(enumerate(fires[start:], start=1)))
    assert found is not None
    assert found[0] == updates
    assert found[1] == {step for step in range(1, len(fires) - start + 1) if (step - 1 + start) % updates == 0}


def test_false_periods_are_rare() -> None:
    noise = random.Random(0)
    logs = [{step: noise.random() < rate for step in range(60)} for rate in (0.05, 0.2, 0.5, 0.9) for _ in range(150)]
    assert sum(update_rhythm.period(fires) is not None for fires in logs) / len(logs) < 0.03


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400)
names = st.sampled_from([*sorted(trainer_log.USED), "step", "loss", "eval_loss"])
numbered = st.fixed_dictionaries({"step": st.integers(0, 60)}, optional={REGION: st.floats(0, 1)})
entry = st.tuples(st.dictionaries(names, values | st.floats(0, 1), max_size=8), numbered | st.just({})).map(
    lambda two: two[0] | two[1]
)
junk = st.recursive(values, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all examples."""
    yield tmp_path_factory.mktemp("junk")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(entry | numbered, min_size=2, max_size=40) | st.lists(entry | junk) | junk)
def test_no_json_crashes(history: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(folder, history)
    code = audit.main([str(path)])
    out, err = capsys.readouterr()
    assert (code, err.count("\n")) in ((0, 0), (1, 1))
    assert ("could bind" in out) == (code == 0)


share = st.sampled_from([0.0, 0.0, 1e-9, 1e-4]) | st.floats(0, 0.5)
others = [*sorted(trainer_log.USED - set(trainer_log.CLIPS)), "reward"]
possible = st.fixed_dictionaries(
    {"step": st.integers(0, 40), "loss": st.just(0.1)},
    optional={
        **dict.fromkeys(("clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio", "cispo_clip_ratio"), share),
        **dict.fromkeys(others, st.sampled_from([0.0, 0.5, 1.0]) | st.floats()),
    },
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(possible, min_size=1, unique_by=lambda one: one["step"]), every=st.integers(1, 4))
def test_verdicts_never_contradict_the_log(history: list[Any], every: int, folder: Path) -> None:
    history[0]["reward"] = 0.5
    path = write(folder, [one | {"step": every * one["step"]} for one in history])
    log = trainer_log.read(str(path))
    found = clip_verdict.judge(log, update_rhythm.updates_per_batch(log))
    fired = any(log.clip.values())
    assert fired or found.did in (Answer.NO, Answer.UNKNOWN)
    assert found.could is not Answer.NO or (found.did is Answer.NO and not fired)
    assert log.shows_clip or found.did in (Answer.NO, Answer.UNKNOWN)
    assert audit.main([str(path)]) == 0


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(0, 10_000))
def test_no_cut_file_crashes(length: int, folder: Path) -> None:
    whole = json.dumps(state(entries(pattern(40, 4), 4))).encode()
    path = folder / "cut.json"
    path.write_bytes(whole[: length % len(whole)])
    with pytest.raises(LogError, match=r"cut\.json: "):
        trainer_log.read(str(path))


def test_groups_of_one_reward_are_flat_though_trl_does_not_count_them(tmp_path: Path) -> None:
    """In float32 the standard deviation of eight times 0.3 is 3.2e-8, and TRL logs no flat group."""
    log = entries([0.0] * 20, 4)
    equal = [
        one | ({"reward": 0.3, "reward_std": 3.2e-8, "frac_reward_zero_std": 0.0} if "reward" in one else {})
        for one in log
    ]
    path = write(tmp_path / "equal", equal)
    assert judged(path)[:2] == ("no", "no") and cells(path)["flat groups"].startswith("mean 100.0 %")
    apart = [one | ({"reward_std": 3e-3} if "reward_std" in one else {}) for one in equal]
    assert judged(write(tmp_path / "apart", apart))[:2] == ("yes", "no")


def test_the_first_update_of_the_only_batch_could_not_clip(tmp_path: Path) -> None:
    path = write(tmp_path, entries([0.0, 0.3, 0.5, 0.7], 4))
    assert judged(path) == ("yes", "yes", "it fired in 3 of 3 steps that could clip, mean share 50.0 %")


def test_means_over_steps_with_a_reward_in_each_do_not_tell(tmp_path: Path) -> None:
    log = [one | {"step": 10 * one["step"]} for one in entries([1e-4] * 20)]
    could, did, why = judged(write(tmp_path, log))
    assert (could, did) == (UNKNOWN, UNKNOWN) and "a mean over 10 steps" in why
