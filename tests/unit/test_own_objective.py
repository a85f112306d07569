"""Clip policy, surrogate and advantage of the user's own: package.module:function, with the file in the key."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from test_study import faults, small
from training_stage import Stage

from workflow_scripts import stage_settings
from workflow_scripts.analysis.decisive import Unanswerable, bounds
from workflow_scripts.objectives.checked import PolicyError
from workflow_scripts.objectives.lookup import named
from workflow_scripts.stages.tabulate_objectives import tabulate
from workflow_scripts.study import Study, load

OWN = """
import torch

from workflow_scripts.objectives.bounds import Bounds


def fixed(group, *, eps_low, slope, tilt=0.0):
    one = torch.ones_like(group.advantage)
    positive = group.advantage > 0
    lower = torch.where(positive, torch.full_like(one, -float("inf")), (1 - eps_low) * one)
    return Bounds(lower, torch.where(positive, (1 + slope) * one, torch.full_like(one, float("inf"))))


def clipped(ratio, advantage, log_prob, bounds):
    return -torch.clamp(*torch.broadcast_tensors(ratio, bounds.lower, bounds.upper)) * advantage


def centred(reward):
    return reward - reward.mean(1, keepdim=True)


def broken(group):
    raise RuntimeError("not today")


number = 3
"""
ARM = {"ratio": "token", "bounds": "own_clips:fixed", "surrogate": "own_clips:clipped", "aggregation": "token-mean",
       "advantage": {"scale": "own_clips:centred"}, "eps_low": 0.2, "own": {"slope": 0.3}}  # fmt: skip
OURS = {"ratio": "token", "bounds": "ppo", "surrogate": "clipped", "aggregation": "token-mean",
        "advantage": {"scale": "none"}, "eps_low": 0.2, "eps_high": 0.3}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_clips.py").write_text(OWN)
    return tmp_path


def study(**arm: Any) -> Study:
    return load(small(**{"arms.mine": ARM | arm}))


def test_a_study_takes_them_with_their_keys(here: Path) -> None:
    resolved = study().resolved("mine").objective
    assert resolved == {k: v for k, v in ARM.items() if k != "own"} | {"slope": 0.3}
    inherited = load(small(**{"arms.mine": ARM, "arms.other": {"same_as": "mine", "own": {"tilt": 0.1}}}))
    assert inherited.resolved("other").objective == resolved | {"tilt": 0.1}
    changed = load(small(**{"arms.mine": ARM, "arms.other": {"same_as": "mine", "bounds": "ppo", "eps_high": 0.3}}))
    assert "slope" not in changed.resolved("other").objective


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        ({"bounds": "own_clips"}, "arms.mine.bounds: 'own_clips': one of ppo, "),
        ({"bounds": "own_clips:"}, "a function of your own is written package.module:function"),
        ({"bounds": "no_clips:fixed"}, "arms.mine.bounds: 'no_clips:fixed': no module no_clips in the working"),
        ({"bounds": "own_clips:fxied"}, "own_clips has no fxied; did you mean 'fixed'?"),
        ({"advantage": {"scale": "own_clips:nothing"}}, "mine.advantage.scale: 'own_clips:nothing': own_clips has no"),
        ({"own": {}}, "arms.mine.own.slope: missing: own_clips:fixed needs it"),
        ({"own": {"slope": 0.3, "slop": 1}}, "arms.mine.own.slop: 1.0: not a key of own_clips:fixed"),
        ({"own": {"slope": 0.3, "eps_high": 1}}, "arms.mine.own.eps_high: 1.0: write it as arms.mine.eps_high"),
        ({"eps_high": 0.3}, "arms.mine.eps_high: 0.3: not a key of own_clips:fixed"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(here: Path, arm: dict[str, Any], said: str) -> None:
    (line,) = faults(small(**{"arms.mine": ARM | arm}))
    assert said in line


def test_the_file_is_part_of_the_key_and_its_comments_are_not(here: Path) -> None:
    def keys() -> list[str]:
        found, clips = study(), load(small(**{"arms.mine": ARM | {"surrogate": "clipped"}}))
        made = [stage_settings.train(found, "mine", 0, 1), stage_settings.records(found, 1)]
        made += [stage_settings.objectives(found), stage_settings.ask_policies(clips)]
        return [json.dumps(part, sort_keys=True) for part in made]

    first, path = keys(), here / "own_clips.py"
    path.write_text("# why\n" + path.read_text())
    assert keys() == first
    path.write_text(path.read_text().replace("1 + slope", "1 + 2 * slope"))
    assert all(one != other for one, other in zip(keys(), first, strict=True))
    assert "objective_sources" not in stage_settings.train(study(), "gapo", 0, 1)
    assert not any("own_clips" in root for root in stage_settings.train_roots(study(), "mine"))


def test_finished_runs_can_be_asked_about_them(here: Path) -> None:
    config = small(
        **{"analysis.policies": {"tight": {"bounds": "own_clips:fixed", "eps_low": 0.1, "own": {"slope": 0.1}}}}
    )
    assert stage_settings.clip_policies(load(config))["tight"] == {
        "bounds": "own_clips:fixed", "eps_low": 0.1, "slope": 0.1,
    }  # fmt: skip
    import pandas as pd

    rows = pd.DataFrame({"advantage": [1.0, -1.0], "group_correct": [2.0, 2.0], "group_size": [4, 4]})
    lower, upper = bounds(rows, {"bounds": "own_clips:fixed", "eps_low": 0.1, "slope": 0.2}, np.log([0.5, 0.5]))
    assert (lower[:, 0].tolist(), upper[:, 0].tolist()) == (
        pytest.approx([-math.inf, 0.9]),
        pytest.approx([1.2, math.inf]),
    )
    with pytest.raises(Unanswerable, match="clip policy broken: RuntimeError: not today"):
        bounds(rows, {"bounds": "own_clips:broken"}, np.log([0.5, 0.5]))
    own, ours = (tabulate({"arm": keys}, {"arm": 4}) for keys in (study().resolved("mine").objective, OURS))
    assert own.equals(ours)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_clips:number", "bounds: own_clips:number: a function, not 3"),
        ("own_clips:none", "bounds: own_clips:none: module 'own_clips' has no attribute 'none'"),
        ("no_clips:none", "bounds: no_clips:none: No module named 'no_clips'"),
    ],
)
def test_a_function_that_cannot_be_had_is_one_line(here: Path, name: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        named("bounds", name)
    assert str(caught.value) == said


def test_they_train_what_ours_train(tmp_path: Path) -> None:
    weights = {}
    for name, objective in (("own", {k: v for k, v in ARM.items() if k != "own"} | {"slope": 0.3}), ("ours", OURS)):
        stage = Stage(tmp_path / name)
        (tmp_path / name / "own_clips.py").write_text(OWN)
        stage.settings["objective"] = objective
        done = stage.train()
        assert done.returncode == 0, done.stdout
        weights[name] = stage.footer["final_weights"]
        assert sum(row["clipped_upper_tokens"] for row in stage.rows("rollout_updates")) > 0
    assert weights["own"] == weights["ours"]


def test_one_that_fails_ends_the_training_with_one_line(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    (tmp_path / "own_clips.py").write_text(OWN)
    stage.settings["objective"] = OURS | {"bounds": "own_clips:broken"}
    done = stage.train()
    assert done.returncode == 1
    assert done.stdout.strip().splitlines()[-1] == "armslength: clip policy broken: RuntimeError: not today"


def test_the_example_of_the_documentation_works(here: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "objectives.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n# my_clips.py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (arms,) = re.findall(r"^```yaml\n(arms:\n  confident:.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (here / "my_clips.py").write_text(code)
    found = load(small(**{"arms.confident": yaml.safe_load(arms)["arms"]["confident"]}))
    (row,) = tabulate({"arm": found.resolved("confident").objective}, {"arm": 4}).query("positive")["reason"].unique()
    assert row is pd.NA or row is None
