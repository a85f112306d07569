"""Stopped after a rollout batch and resumed, a run ends as if nothing had happened, to the bit: for every objective.

Processes that die are tests/unit/test_killed_runs.py's.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from training_run import LORA, Run, half_right

from workflow_scripts import stage_settings, tables
from workflow_scripts.objectives.presets import PRESETS
from workflow_scripts.study import load
from workflow_scripts.training import callbacks
from workflow_scripts.training.run import log_rows

ZOO = yaml.safe_load((Path(__file__).parents[2] / "studies" / "embedded-zoo.yaml").read_text(encoding="utf-8"))
BY_PRESET = {arm["preset"]: name for name, arm in reversed(ZOO["arms"].items())}
STARTS = ("base", "carry", "reset")


@lru_cache(None)
def objectives() -> dict[str, dict[str, Any]]:
    """Objective of each arm of the zoo."""
    study = load(ZOO)
    return {arm: stage_settings.train(study, arm, 0, 1)["objective"] for arm in study.arms}


def some() -> list[Any]:
    """Every fourth preset, and spread over these all weights, KL penalties, and places where a run starts."""
    cases = []
    for place, preset in enumerate(sorted(PRESETS)[::4]):
        adapter, beta = (None, LORA)[place % 2], (0.0, 0.05)[place // 2 % 2]
        cases.append((BY_PRESET[preset], adapter, beta, STARTS[place % 3]))
    return cases


def all_others() -> list[Any]:
    """Every arm of the zoo with all weights, KL penalties, and places where a run starts."""
    every = [
        (arm, adapter, beta, start)
        for arm in ZOO["arms"] for adapter in (None, LORA) for beta in (0.0, 0.05) for start in STARTS
    ]  # fmt: skip
    return [case for case in every if case not in some()]


def named(case: Any) -> str:
    arm, adapter, beta, start = case
    return f"{arm}-{'lora' if adapter else 'full'}-{'kl' if beta else 'free'}-{start}"


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """States to branch off at step 4, of full weights and of an adapter."""
    found = {}
    for adapter in (None, LORA):
        folder = tmp_path_factory.mktemp("parent")
        run = Run(folder, adapter=adapter, steps=4, checkpoints=[4], branches=(4,)).train()
        found[bool(adapter)] = run.state.branch_state(4)
    return found


class Case:
    """Runs of one objective, KL weight, kind of weights, and beginning: the base, or a branch of another arm."""

    def __init__(self, case: Any, parents: dict[bool, Path]) -> None:
        arm, self.adapter, beta, self.start = case
        self.objective = objectives()[arm] | ({"kl": "k3"} if beta else {})
        self.begins = 0 if self.start == "base" else 4
        self.packed = parents[bool(self.adapter)]
        self.training = {"beta": beta, "steps": self.begins + 8, "checkpoints": [self.begins + 2, self.begins + 8]}

    def run(self, folder: Path, stop: bool = False) -> Run:
        """stop: as SIGTERM in the first batch does."""

        def reward(completions: list[str], **_: Any) -> list[float]:
            made.keeper.terminated = stop
            return half_right(completions)

        branches = (self.begins + 4,)
        made = Run(folder, self.objective, adapter=self.adapter, reward=reward, branches=branches, **self.training)
        newest = made.state.newest(self.training["steps"], self.training["checkpoints"], list(branches), made.folder)
        resume = newest[0] if newest else None
        if newest:
            assert newest[1]["step"] == self.begins + 4
            made.recorder.load(newest[0])
            made.keeper.manifest, made.keeper.weights = newest[1]["checkpoints"], newest[1]["weights"]
        elif self.begins:
            resume = callbacks.unpack(self.packed, folder / "branch", self.start)
        return made.train(resume)


def left(run: Run) -> dict[str, Any]:
    """All that a run leaves."""
    files = [p for p in run.folder.rglob("*") if p.is_file() and {"checkpoints", "branch"} & {p.parts[-3], p.name[:6]}]
    return {
        "weights": run.weights,
        "records": run.records(),
        "log": log_rows(run.trainer.state.log_history),
        "manifest": run.keeper.manifest,
        "hashes": run.keeper.weights,
        "files": {p.relative_to(run.folder).as_posix(): tables.file_sha256(p) for p in files},
    }


def resumed_equals_undisturbed(case: Any, parents: dict[bool, Path], folder: Path) -> None:
    made = Case(case, parents)
    whole = left(made.run(folder / "whole"))
    cut = made.run(folder / "cut", stop=True)
    assert cut.trainer.state.global_step == made.begins + 4
    rest = left(made.run(folder / "cut"))
    assert len(whole["files"]) >= 4 and len(whole["records"]["rollout_updates"]) == 8 * 8
    assert len(set(whole["hashes"].values())) >= 2  # it has moved
    rest["hashes"].pop(str(made.begins + 4))  # where it went on
    for what, value in whole.items():
        assert rest[what] == value, what


@pytest.mark.parametrize("case", some(), ids=named)
def test_stopped_after_a_batch_and_resumed(case: Any, parents: dict[bool, Path], tmp_path: Path) -> None:
    resumed_equals_undisturbed(case, parents, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", all_others(), ids=named)
def test_stopped_after_a_batch_and_resumed_in_every_way(case: Any, parents: dict[bool, Path], tmp_path: Path) -> None:
    resumed_equals_undisturbed(case, parents, tmp_path)
