"""What the code digest sees, and what it must not see, on a small package and on our own."""

import ast
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workflow_scripts import digest as digests

PACKAGE = {
    "__init__.py": "",
    "stages/__init__.py": "",
    "stages/train.py": '''
"""Train."""
from importlib import import_module
from workflow_scripts import tables
from workflow_scripts.objectives.advantage import scaled
from workflow_scripts.training import loop

LIBRARIES = ("pyarrow",)


def main(job):
    """Train one run."""
    policy = getattr(import_module("workflow_scripts.objectives.bounds"), job["policy"])
    return loop.run(policy, scaled(job["reward"]), tables.ROLLOUTS)


if __name__ == "__main__":
    main({})
''',
    "training/__init__.py": "",
    "training/loop.py": '''
from pathlib import Path

from workflow_scripts.grading import math


def run(policy, advantage, table):
    """Run it."""
    words = Path(__file__).with_name("words.json").read_text()  # read at run time
    return policy(advantage), table, math.grade(words)


def unused():
    return 1
''',
    "training/words.json": "[1]",
    "training/other.json": "[1]",
    "grading/__init__.py": "",
    "grading/math.py": "def grade(text):\n    return text == '1'\n",
    "objectives/__init__.py": "",
    "objectives/advantage.py": """
def scaled(reward):
    return reward


def focal(reward):
    return 2 * reward
""",
    "objectives/bounds.py": '''
def _clamp(x, low):
    """Not below low."""
    return max(x, low)


def ppo(group, *, eps_low):
    """Fixed."""
    return 1 - eps_low


def gapo(group, *, eps_low):
    """Adaptive."""
    return _clamp(1 - eps_low * group, 0)
''',
    "tables/__init__.py": "from workflow_scripts.tables.schemas import *\n",
    "tables/schemas.py": "ROLLOUTS = ('reward',)\nCOUNTS = ('n', 'c')\n",
}

Digest = Callable[..., str]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Digest]]:
    """A small package in the place of ours, and its digest computed afresh at each call."""
    root = tmp_path / "workflow_scripts"
    for name, text in PACKAGE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(digests, "HERE", root)
    yield root, _fresh
    _clear()


def _clear() -> None:
    for function in vars(digests).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def _fresh(policy: str = "gapo", cut: tuple[str, ...] = ()) -> str:
    _clear()
    return digests.digest("train", (f"objectives.bounds:{policy}",), cut)


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text that must be there."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


SILENT = {
    "comment": ("stages/train.py", "LIBRARIES", "# why\nLIBRARIES"),
    "docstring of the module": ("stages/train.py", '"""Train."""', '"""Train a run."""'),
    "docstring of a function": ("objectives/bounds.py", '"""Adaptive."""', '"""Follows rarity."""'),
    "docstring removed": ("objectives/bounds.py", '    """Adaptive."""\n', ""),
    "formatting": ("objectives/bounds.py", "_clamp(1 - eps_low * group, 0)", "_clamp((1 -\n eps_low*group), 0)"),
    "quotes": ("training/loop.py", '"words.json"', "'words.json'"),
    "order of functions": ("objectives/advantage.py", "def focal", "def later():\n    return 0\n\n\ndef focal"),
    "function nobody reaches": ("training/loop.py", "return 1", "return 2"),
    "another policy": ("objectives/bounds.py", "return 1 - eps_low\n", "return 2 - eps_low\n"),
    "a policy added": ("objectives/bounds.py", "def ppo", "def fresh(group):\n    return 3\n\n\ndef ppo"),
    "another table": ("tables/schemas.py", "('n', 'c')", "('n', 'c', 'x')"),
    "a data file that no code names": ("training/other.json", "1", "2"),
}  # fmt: skip

SEEN = {
    "the stage": ("stages/train.py", 'job["reward"]', '-job["reward"]'),
    "a module it imports": ("training/loop.py", "policy(advantage)", "policy(-advantage)"),
    "a function it imports by name": ("objectives/advantage.py", "return reward", "return -reward"),
    "the chosen policy": ("objectives/bounds.py", "eps_low * group", "2 * eps_low * group"),
    "a helper of the chosen policy": ("objectives/bounds.py", "max(x, low)", "min(x, low)"),
    "a default": ("objectives/bounds.py", "gapo(group, *, eps_low)", "gapo(group, *, eps_low=0.2)"),
    "its table": ("tables/schemas.py", "('reward',)", "('reward', 'status')"),
    "a data file its code names": ("training/words.json", "1", "2"),
    "the grader, where it is not cut": ("grading/math.py", "'1'", "'2'"),
    "a statement that runs on import": ("training/loop.py", "def unused", "print('x')\n\n\ndef unused"),
    "the list of libraries": ("stages/train.py", '("pyarrow",)', '("pyarrow", "numpy")'),
}


@pytest.mark.parametrize(("file", "old", "new"), SILENT.values(), ids=SILENT)
def test_what_cannot_change_a_result_does_not_change_the_digest(package, file: str, old: str, new: str) -> None:
    root, digest = package
    before = digest()
    edit(root / file, old, new)
    assert digest() == before


@pytest.mark.parametrize(("file", "old", "new"), SEEN.values(), ids=SEEN)
def test_what_can_change_a_result_changes_the_digest(package, file: str, old: str, new: str) -> None:
    root, digest = package
    before = digest()
    edit(root / file, old, new)
    assert digest() != before


def test_a_policy_changes_only_the_arms_that_use_it(package) -> None:
    root, digest = package
    before = {name: digest(name) for name in ("ppo", "gapo")}
    assert before["ppo"] != before["gapo"]
    edit(root / "objectives/bounds.py", "eps_low * group", "eps_low / group")
    assert digest("ppo") == before["ppo"]
    assert digest("gapo") != before["gapo"]


def test_what_is_cut_does_not_count(package) -> None:
    root, digest = package
    before = digest(cut=("grading",))
    edit(root / "grading/math.py", "'1'", "'2'")
    assert digest(cut=("grading",)) == before
    assert before != digest()


def test_of_a_data_file_the_named_key_alone_counts(package) -> None:
    root, _ = package
    (root / "training/words.json").write_text('{"plain": [1], "chat": [2]}')

    def digest(*keys: str) -> str:
        _clear()
        return digests.digest("train", tuple(f"training/words.json:{key}" for key in keys))

    before = {keys: digest(*keys) for keys in ((), ("plain",), ("chat",))}
    assert len(set(before.values())) == 3
    edit(root / "training/words.json", "[2]", '[3], "new": 0')
    assert [digest(*keys) == value for keys, value in before.items()] == [False, True, False]


def test_library_version_counts(package, monkeypatch: pytest.MonkeyPatch) -> None:
    _, digest = package
    before = digest()
    monkeypatch.setattr(digests, "version", lambda name: "0.0.1")
    assert digest() != before


def test_digest_does_not_depend_on_where_the_package_lies(package, tmp_path: Path, monkeypatch) -> None:
    root, digest = package
    before = digest()
    shutil.copytree(root, tmp_path / "elsewhere" / "workflow_scripts")
    monkeypatch.setattr(digests, "HERE", tmp_path / "elsewhere" / "workflow_scripts")
    assert digest() == before


def test_import_inside_a_function_is_followed(package) -> None:
    root, digest = package
    edit(
        root / "training/loop.py",
        "    return policy",
        "    from workflow_scripts.grading import late\n\n    late.x()\n    return policy",
    )
    (root / "grading/late.py").write_text("def x():\n    return 1\n")
    before = digest()
    edit(root / "grading/late.py", "return 1", "return 2")
    assert digest() != before


def test_recursion_ends(package) -> None:
    root, digest = package
    edit(root / "objectives/bounds.py", "return max(x, low)", "return gapo(x, eps_low=low)")
    assert len(digest()) == 16


def test_keyword_arguments_without_import(package) -> None:
    root, _ = package
    (root / "objectives/bounds.py").write_text(
        "import nothing\ndef a(g, *, needed, free=1): ...\ndef _hidden(*, x): ...\n"
    )
    _clear()
    assert digests.keyword_arguments("objectives.bounds") == {"a": (("needed",), ("free",))}


def test_our_own_policies_are_told_apart() -> None:
    _clear()
    reached = {
        name: digests.reached("list_runs", (f"objectives.bounds:{name}",)) for name in ("ppo", "gapo", "gapo_matched")
    }
    bounds = "workflow_scripts.objectives.bounds"
    assert (bounds, "gapo") not in reached["ppo"]
    assert (bounds, "_adaptive_width") in reached["gapo"]
    assert (bounds, "_mean_correct") not in reached["gapo"]
    assert (bounds, "_mean_correct") in reached["gapo_matched"]


def test_an_empty_text_in_a_nested_format_counts_for_nothing() -> None:
    """Python 3.12.0 and 3.12.1 parse the same code with one."""
    plain = ast.parse('f"{x:{width}}"')
    padded = ast.parse('f"{x:{width}}"')
    nested = [node for node in ast.walk(padded) if isinstance(node, ast.JoinedStr)][1]
    nested.values = [*[part for part in nested.values if not isinstance(part, ast.Constant)], ast.Constant("")]
    assert digests._dump(plain) == digests._dump(padded)
    assert digests._dump(ast.parse('f"{x:{width}}."')) != digests._dump(plain)


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_another_python_has_the_same_digests(version: str, tmp_path: Path) -> None:
    """What was made under one version of Python is current under another."""
    script = (
        "import sys; from pathlib import Path; from workflow_scripts.digest import source_digest;"
        "print(sys.version_info[:2], *map(source_digest, sorted(Path().glob('*/**/*.py'))))"
    )
    (tmp_path / "reward").mkdir()
    (tmp_path / "reward" / "own.py").write_text('def say(x, width):\n    return f"{x:>{width}} {{}} {x!r:{width}}"\n')
    shutil.copytree(digests.HERE, tmp_path / "workflow_scripts", ignore=shutil.ignore_patterns("__pycache__"))
    python = shutil.which(f"python{version}")
    here = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    other = python and subprocess.run([python, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    if not other or not other.stdout:
        pytest.skip(f"Python {version} is not installed here")
    assert other.stdout.partition(") ")[2] == here.stdout.partition(") ")[2]
    assert other.stdout.startswith(f"({version.replace('.', ', ')})")
