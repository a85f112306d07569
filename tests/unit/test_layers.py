"""The rooms of the package, and what each may import: the table of CONTRIBUTING.md is held by the imports."""

import ast
import re
from pathlib import Path

import pytest

from workflow_scripts import digest

PACKAGE = "workflow_scripts"
REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = REPOSITORY / PACKAGE
# Pure functions of arrays: no table library, no files.
BARE = {
    "statistics": {"pandas", "pyarrow", "torch"},
    "objectives": {"pandas", "pyarrow", "numpy", "transformers", "trl"},
}
# Stages that train or sample; all others must start without a second of imports.
WITH_TORCH = {"prepare_base", "sample_base", "train", "sample_checkpoints"}
HEAVY = {"torch", "transformers", "trl", "peft", "accelerate", "datasets"}


def modules() -> list[str]:
    """Dotted names below the package: "stages.train"."""
    files = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))
    return [".".join(path.with_suffix("").parts) for path in files]


def imported(module: str, *, top_only: bool = False) -> set[str]:
    """Dotted names that a module imports, inside functions too."""
    tree = ast.parse(ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
    names = set()
    for node in tree.body if top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: relative import"
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def layers(names: set[str]) -> set[str]:
    """The rooms of our package among the names."""
    return {name.split(".")[1] for name in names if name.startswith(PACKAGE + ".")}


def said_rooms() -> dict[str, set[str]]:
    """Room → rooms that it may import, by the table of CONTRIBUTING.md."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Additions")[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| [^|]+ \|([^|]*)\|$", text, flags=re.MULTILINE)
    return {room: set(re.findall(r"`(\w+)`", seen)) for rooms, seen in rows for room in re.findall(r"`(\w+)`", rooms)}


def test_every_room_imports_what_contributing_says_and_nothing_else() -> None:
    found: dict[str, set[str]] = {}
    for module in modules():
        room = module.split(".")[0]
        found[room] = found.get(room, set()) | layers(imported(module)) - {room}
    del found["__init__"], found["__main__"]
    assert found == said_rooms()


def test_no_two_rooms_import_each_other() -> None:
    said = said_rooms()
    reached: dict[str, set[str]] = {}

    def below(room: str) -> set[str]:
        if room not in reached:
            reached[room] = set().union(*(below(other) | {other} for other in said[room]))
        return reached[room]

    assert all(room not in below(room) for room in said)


@pytest.mark.parametrize("room", ["stages", "commands"])
def test_a_room_of_rules_or_commands_holds_no_helpers(room: str) -> None:
    assert not [path.name for path in (ROOT / room).glob("_[a-z]*.py")]


@pytest.mark.parametrize("module", [m for m in modules() if m.split(".")[0] in BARE])
def test_pure_parts_stay_pure(module: str) -> None:
    found = {name.split(".")[0] for name in imported(module)}
    assert not found & BARE[module.split(".")[0]]


@pytest.mark.parametrize("module", modules())
def test_only_what_extends_the_trainer_of_trl_imports_it(module: str) -> None:
    if "trl.GRPOTrainer" in imported(module):
        assert module in ("training.log_probs", "training.trainer")


def stage_names() -> list[str]:
    """All stage modules."""
    return [m.split(".")[1] for m in modules() if m.startswith("stages.") and m != "stages.__init__"]


@pytest.mark.parametrize("stage", stage_names())
def test_what_a_stage_reaches_never_holds_the_study(stage: str) -> None:
    reached = {module for module, _ in digest.reached(stage)}
    assert not {m for m in reached if m.split(".")[1:2] in (["study"], ["stage_settings"], ["commands"], ["launch"])}


@pytest.mark.parametrize("stage", [s for s in stage_names() if s not in WITH_TORCH])
def test_a_stage_that_needs_no_torch_reaches_none(stage: str) -> None:
    """By the top-level imports of all modules of ours that it imports at its top."""
    todo, seen = [f"stages.{stage}"], set()
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        names = imported(module, top_only=True)
        heavy = {name.split(".")[0] for name in names} & HEAVY
        assert not heavy, f"stages.{stage} → {module} → {', '.join(sorted(heavy))}"
        for name in names:
            if name.startswith(PACKAGE):
                inner = name.removeprefix(PACKAGE).lstrip(".")
                path = ROOT.joinpath(*inner.split(".")) if inner else ROOT
                if path.with_suffix(".py").is_file() and inner:
                    todo.append(inner)
                elif (path / "__init__.py").is_file():
                    todo.append(f"{inner}.__init__".lstrip("."))
