"""A reward function of the user's own: found before anything is spent, and trained again when its code changes."""

from pathlib import Path
from typing import Any

import pytest
from test_study import small

from workflow_scripts import stage_settings
from workflow_scripts.errors import UserError
from workflow_scripts.launch import sources
from workflow_scripts.launch.study_file import DEFAULT_STUDY, configuration
from workflow_scripts.objectives.lookup import imported
from workflow_scripts.study import Study, StudyFaults, load, own_code


def study(reward: str, **changes: Any) -> Study:
    return load(small(**{"training.reward": reward, "training.success_threshold": 0.5, **changes}))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a module, and a package that cannot be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_rewards.py").write_text("def short(completions, **_):\n    return [1.0 for _ in completions]\n")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "__init__.py").write_text("raise RuntimeError('not today')\n")
    (tmp_path / "broken" / "inner.py").write_text("from somewhere import *\nnumber = 3\n")
    return tmp_path


NOWHERE = "in the working directory or the installed packages"


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        ("own_rewards:short", None),
        ("broken.inner:anything", None),  # it may come from somewhere
        ("nowhere:short", f"no module nowhere {NOWHERE}"),
        ("own_rewards.deeper:short", f"no module own_rewards.deeper {NOWHERE}"),
        ("own_rewards:shrot", "own_rewards has no shrot; did you mean 'short'?"),
    ],
)
def test_what_jobs_will_not_find_is_said_before_the_first(here: Path, reward: str, said: str | None) -> None:
    assert sources.reward_faults(study(reward)) == ([f"training.reward: {reward!r}: {said}"] if said else [])


def test_the_default_study_asks_for_the_threshold_of_a_reward_from_the_command_line() -> None:
    with pytest.raises(StudyFaults, match=r"^training\.success_threshold: missing: own_rewards:short "):
        load(configuration(str(DEFAULT_STUDY), ["training={reward: 'own_rewards:short'}"]))


def test_comments_of_a_reward_train_nothing_again_and_its_code_does(here: Path) -> None:
    def source() -> Any:
        return stage_settings.train(study("own_rewards:short"), "gapo", 0, 1)["reward_source"]

    first, path = source(), here / "own_rewards.py"
    path.write_text("# why\n" + path.read_text().replace("    return", '    """What."""\n    return'))
    assert source() == first
    path.write_text(path.read_text().replace("1.0", "2.0"))
    assert source() != first
    path.write_text("def short(:\n")
    assert source() not in (None, first)
    assert own_code.source("broken.inner:number") and own_code.source("nowhere:short") is None


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        ("broken.inner:number", "training.reward: broken.inner:number: RuntimeError: not today"),
        ("own_rewards:__name__", "training.reward: own_rewards:__name__: a function, not 'own_rewards'"),
        ("own_rewards:long", "training.reward: own_rewards:long: module 'own_rewards' has no attribute 'long'"),
    ],
)
def test_a_module_that_fails_is_one_line(here: Path, reward: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        imported(reward, "training.reward")
    assert str(caught.value) == said
