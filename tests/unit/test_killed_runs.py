"""A training that dies, whenever and by whatever, started again: it ends as if nothing had happened, to the bit.

As real processes: by SIGKILL before each single change they would have made to the disk, or by either signal at random
moments; from states that are damaged; with more steps; and after the end. In process for every objective: test_resume.
"""

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from deaths import Deaths, calls, said
from training_run import LORA
from training_stage import Stage

from workflow_scripts.training.state import StateFolder

# --- processes that die ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def deaths() -> Iterator[Deaths]:
    made = Deaths()
    yield made
    made.close()


def three_batches(folder: Path, keep: str = "none", adapter: dict[str, Any] | None = None, **training: Any) -> Stage:
    """A run of three rollout batches of two updates, that leaves two checkpoints and a state to branch off."""
    stage = Stage(folder, adapter)
    stage.settings["rollout"] |= {"prompts": 2, "group_size": 3, "minibatches": 1, "max_completion": 4}
    stage.settings["training"] |= {"steps": 6, "checkpoints": [2, 6], "reward": "rewards:counted"} | training
    stage.compute["keep"] = {**stage.compute["keep"], "state": keep}
    stage.branch_states = [stage.run / "branch_states" / "step-2.tar"]
    return stage


def branch(parent: Stage, folder: Path, optimizer: str) -> Stage:
    """An arm that branches off a finished run at step 2 and draws three batches."""
    stage = parent.copied(folder)
    (folder / "drawn").unlink()
    stage.branch, stage.branch_states = stage.branch_states[0], []
    stage.settings["branch"] = {"step": 2, "optimizer": optimizer}
    stage.settings["objective"] |= {"eps_high": 0.1}
    stage.settings["training"] |= {"steps": 8, "checkpoints": [4, 8]}
    stage.run = stage.root / "runs" / "branch" / "seed-0"
    return stage


KINDS: dict[str, Callable[[Path], Stage]] = {
    "plain": lambda folder: three_batches(folder),
    "state kept": lambda folder: three_batches(folder, keep="last"),
    "lora": lambda folder: three_batches(folder, adapter=LORA),
    "diverging": lambda folder: three_batches(folder, learning_rate=1e30),  # in its second batch
}


@pytest.fixture(scope="module")
def undisturbed(deaths: Deaths, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Stage, Stage]]:
    """Kind -> a run that has not begun, and the same one ended undisturbed; not to be changed."""

    @lru_cache(None)
    def made(kind: str) -> tuple[Stage, Stage]:
        folder = tmp_path_factory.mktemp("run")
        if kind in KINDS:
            fresh = KINDS[kind](folder / "fresh")
        else:
            fresh = branch(made("plain")[1], folder / "fresh", kind)
        whole = fresh.copied(folder / "whole")
        assert deaths.run(whole) == 0, said(whole)
        assert len(whole.drawn) == (2 if kind == "diverging" else 3)
        return fresh, whole

    return made


def ended_as(stage: Stage, whole: Stage, kills: int) -> None:
    """All files equal in name and content, and at most one rollout batch drawn again for each kill."""
    assert len(whole.files()) > 8
    mine, theirs = stage.files(), whole.files()
    assert {k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k)} == set(), said(stage)[-2000:]
    assert len(stage.drawn) <= len(whole.drawn) + kills and set(stage.drawn) == set(whole.drawn)


def killed_before(call: int, kind: str, deaths: Deaths, undisturbed: Any, folder: Path) -> None:
    fresh, whole = undisturbed(kind)
    stage = fresh.copied(folder)
    assert deaths.run(stage, at=call) == -signal.SIGKILL
    assert deaths.run(stage) == 0, said(stage)
    ended_as(stage, whole, kills=1)
    shutil.rmtree(folder)


def test_killed_between_any_two_changes_of_the_disk(deaths: Deaths, undisturbed: Any, tmp_path: Path) -> None:
    """A sample; the next test has all."""
    chance = random.Random(0)
    lasting = calls(undisturbed("plain")[1])
    late = next(place for place, call in enumerate(lasting) if "finished" in call)  # the run is trained
    for call in (chance.randint(1, late), chance.randint(late, len(lasting))):
        killed_before(call, "plain", deaths, undisturbed, tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "carry", "reset"])
def test_killed_between_all_two_changes_of_the_disk(
    kind: str, deaths: Deaths, undisturbed: Any, tmp_path: Path
) -> None:
    lasting = calls(undisturbed(kind)[1])
    assert len(lasting) > 60
    every = 1 if kind in ("plain", "carry") else 3  # all of them is half an hour
    for call in range(1, len(lasting) + 1, every):
        killed_before(call, kind, deaths, undisturbed, tmp_path / "killed")


def killed_at_random(kind: str, seed: int, deaths: Deaths, undisturbed: Any, folder: Path) -> None:
    """Up to five times, with SIGKILL or SIGTERM."""
    fresh, whole = undisturbed(kind)
    begun = time.monotonic()
    assert deaths.run(fresh.copied(folder / "timed")) == 0
    length, chance = time.monotonic() - begun, random.Random(seed)
    stage, kills = fresh.copied(folder / "killed"), 0
    while kills < 5:
        process = deaths.start(stage)
        time.sleep(chance.uniform(0, length))
        number = chance.choice([signal.SIGKILL, signal.SIGTERM])
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(process, number)
        code = deaths.end()
        assert code in (-number, 0, 1), said(stage)
        if code == 0:
            break
        kills += 1
        if code == 1:
            assert "its state is kept" in said(stage) or "terminated" in said(stage)
    else:
        assert deaths.run(stage) == 0, said(stage)
    ended_as(stage, whole, kills)


def test_killed_at_random_moments(deaths: Deaths, undisturbed: Any, tmp_path: Path) -> None:
    killed_at_random("plain", 1, deaths, undisturbed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "carry", "reset"])
@pytest.mark.parametrize("seed", range(5))
def test_killed_at_many_random_moments(kind: str, seed: int, deaths: Deaths, undisturbed: Any, tmp_path: Path) -> None:
    killed_at_random(kind, seed, deaths, undisturbed, tmp_path)


@pytest.mark.slow
def test_the_stage_itself_killed_at_random_moments(tmp_path: Path) -> None:
    """Its command line, as the rule has it: also while Python still imports. States are as rare as in real runs."""
    whole = three_batches(tmp_path / "whole")
    cut = whole.copied(tmp_path / "cut")
    begun = time.monotonic()
    whole.trained()
    length, chance = time.monotonic() - begun, random.Random(2)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        process = cut.start()
        time.sleep(chance.uniform(0.3, 1.0) * length)
        process.send_signal(number)
        process.communicate()
    cut.trained()
    assert cut.files() == whole.files()


# --- states that are damaged ----------------------------------------------------------------------------------------

GARBAGE = [b"", b"{", b"[]", b"{}", b"null", b"\xff\xfe", b'{"identity": "x", "files": {}}']


@pytest.fixture(scope="module")
def two_states(deaths: Deaths, undisturbed: Any, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Killed in its third batch, with the states of two batches, as a kill between renaming and removing leaves them;
    not to be changed."""
    fresh, _ = undisturbed("plain")
    stage = fresh.copied(tmp_path_factory.mktemp("states") / "run")
    (stage.root.parent / "die").touch()
    assert deaths.run(stage) == -signal.SIGKILL
    shutil.move(stage.root.parent / "aside", newest(stage).with_name("checkpoint-2"))
    return stage


def newest(stage: Stage) -> Path:
    return next(stage.root.glob("state/*/*/*/checkpoint-4"))


def test_a_damaged_state_gives_way_to_the_one_before(two_states: Stage, tmp_path: Path) -> None:
    stage = two_states.copied(tmp_path / "damaged")
    state, runs = newest(stage), stage.run

    def step() -> int | None:
        found = StateFolder(state.parents[1], state.parent.name).newest(6, [2, 6], [2], runs)
        return found[1]["step"] if found else None

    assert step() == 4
    for file in sorted(state.iterdir()):
        content = file.read_bytes()
        damaged = [content[:-1], content[: len(content) // 2], b"", content[:-1] + bytes([content[-1] ^ 1])]
        for bad in [*damaged, *(GARBAGE if file.name == "state.json" else [])]:
            file.write_bytes(bad)
            assert step() == 2, file.name
        file.unlink()
        assert step() == 2, file.name
        file.write_bytes(content)
    (state / "more").touch()
    assert step() == 2
    (state / "more").unlink()
    shutil.copytree(state, state.with_name("checkpoint-4.bak"))  # somebody's copy
    assert step() == 4
    (state.parent / "branch-2.tar").unlink()
    assert step() is None


@pytest.mark.parametrize(
    ("damaged", "file", "drawn"),
    [((), "", 4), ((4,), "optimizer.pt", 5), ((4, 2), "model.safetensors", 6)],
    ids=["none", "newest", "both"],
)
def test_a_run_with_damaged_states_ends_as_an_undisturbed_one(
    damaged: tuple[int, ...], file: str, drawn: int, deaths: Deaths, two_states: Stage, undisturbed: Any, tmp_path: Path
) -> None:
    """drawn: batches in all, three of them before the kill."""
    stage = two_states.copied(tmp_path / "damaged")
    for step in damaged:
        path = newest(stage).with_name(f"checkpoint-{step}") / file
        path.write_bytes(path.read_bytes()[:-1])
    assert deaths.run(stage) == 0, said(stage)
    assert stage.files() == undisturbed("plain")[1].files()
    assert len(stage.drawn) == drawn


# --- more steps, and after the end ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("schedule", "first"), [("constant", 4), pytest.param("linear", 0, marks=pytest.mark.slow)])
def test_more_steps_go_on_or_begin_anew(schedule: str, first: int, deaths: Deaths, tmp_path: Path) -> None:
    """Where the rates depend on the number of steps nothing of the shorter run holds. first: step it goes on from."""
    long = three_batches(tmp_path / "long", keep="last", schedule=schedule)
    short = long.copied(tmp_path / "short")
    short.settings["training"] |= {"steps": 4, "checkpoints": [2, 4]}
    assert deaths.run(long) == deaths.run(short) == 0, said(short)
    before = {k: v for k, v in short.files().items() if k.startswith("runs")}
    short.settings = long.settings
    assert deaths.run(short) == 0, said(short)
    assert short.drawn == [0, 2, *range(first, 6, 2)]
    mine, theirs = ({k: v for k, v in run.files().items() if k.startswith("runs")} for run in (short, long))
    assert mine.pop("runs/arm/seed-0/checkpoints/step-4/model.safetensors")  # of the shorter run
    assert {k: v for k, v in mine.items() if "step-4" not in k} == theirs
    assert before != mine


def test_finished_before_snakemake_knew(deaths: Deaths, undisturbed: Any, tmp_path: Path) -> None:
    """It removes the outputs of a job that it did not see ending, and runs it again."""
    whole = undisturbed("plain")[1]
    stage = whole.copied(tmp_path / "run")

    def again(drawn: int) -> None:
        for path in [*stage.run.glob("*.parquet"), *stage.branch_states]:
            path.unlink(missing_ok=True)
        assert deaths.run(stage) == 0, said(stage)
        assert len(stage.drawn) == drawn

    again(3)
    assert stage.files() == whole.files() and "its outputs are handed out again" in said(stage)
    assert deaths.run(stage) == 0 and len(stage.drawn) == 3  # with the outputs still in place
    assert stage.files() == whole.files()
    for path in stage.root.glob("state/*/*/*/finished/rollouts.parquet"):
        path.unlink()
    again(6)  # a part is missing
    (stage.run / "checkpoints" / "step-2" / "model.safetensors").unlink()
    again(9)  # a checkpoint is
    assert stage.files() == whole.files()
    stage.settings["training"]["learning_rate"] = 2e-2
    again(12)
    assert stage.footer["settings"]["training"]["learning_rate"] == 2e-2
    assert stage.footer["final_weights"] != whole.footer["final_weights"]
