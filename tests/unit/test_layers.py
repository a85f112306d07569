"""Imports go one way: stages → {training, sampling, benchmarks, figures} → {objectives, grading, …} → nothing."""

import ast
from pathlib import Path

import pytest

from workflow_scripts import digest

PACKAGE = "workflow_scripts"
ROOT = Path(__file__).resolve().parents[2] / PACKAGE
UPPER = {"training", "sampling", "benchmarks", "figures"}
LOWER = {"objectives", "grading", "decontamination", "statistics"}
ANYWHERE = {"tables", "file_kinds", "platforms"}  # may be imported by all
ALLOWED = {
    **dict.fromkeys(UPPER, LOWER | ANYWHERE),
    **dict.fromkeys(LOWER, ANYWHERE),
    "training": LOWER | ANYWHERE | {"sampling"},  # rollouts are sampled as evaluations are
    "stages": UPPER | LOWER | ANYWHERE,
    "tables": set(),
    "file_kinds": set(),
    "platforms": set(),
    "home": set(),
    "digest": set(),
}
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
    """The parts of our package among the names."""
    return {name.split(".")[1] for name in names if name.startswith(PACKAGE + ".")}


@pytest.mark.parametrize("module", modules())
def test_imports_go_one_way(module: str) -> None:
    layer = module.split(".")[0]
    if layer in ALLOWED:
        assert layers(imported(module)) - {layer} <= ALLOWED[layer]


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
    return [m.split(".")[1] for m in modules() if m.startswith("stages.") and not m.split(".")[1].startswith("_")]


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
