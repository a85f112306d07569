"""The project's own files agree with each other."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from workflow_scripts.__main__ import COMMANDS, summary

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = ("data", "train", "evaluate", "analyse", "report")


def normal(name: str) -> str:
    """A package name as the index compares them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lock(name: str) -> dict[str, str]:
    """Package → version of a lock file."""
    lines = (ROOT / "envs" / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def conda(chapter: str) -> dict[str, str]:
    """Package → version of a chapter's conda environment."""
    document = yaml.safe_load((ROOT / "envs" / f"{chapter}.yaml").read_text(encoding="utf-8"))
    pip = next(part["pip"] for part in document["dependencies"] if isinstance(part, dict))
    return dict(pin.split("==") for pin in pip)


def test_locks_pin_every_direct_dependency_and_no_accelerator() -> None:
    pins = lock("requirements.lock")
    for line in (ROOT / "envs" / "requirements.in").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, wanted = line.partition("==")
            assert normal(name) in pins, name
            assert pins[normal(name)].startswith(wanted.rstrip("*")), line
    assert not [name for name in pins if name.startswith(("nvidia", "cuda", "triton"))]
    assert "+" not in "".join(pins.values())
    assert not set(pins) & set(lock("requirements-dev.lock"))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_conda_environments_pin_what_the_lock_pins(chapter: str) -> None:
    pins = lock("requirements.lock")
    environment = conda(chapter)
    assert environment == {name: pins[name] for name in environment}


def test_a_plotting_library_is_in_no_environment_that_trains() -> None:
    for chapter in ("data", "train", "evaluate"):
        assert not {"altair", "vl-convert-python", "statsmodels", "scipy"} & set(conda(chapter))


def stage_chapters() -> dict[str, str]:
    """Stage → chapter, from the rules that call it."""
    found = {}
    for chapter, file in {"base": "train", **{c: c for c in CHAPTERS}}.items():
        text = (ROOT / "rules" / f"{chapter}.smk").read_text(encoding="utf-8")
        found |= dict.fromkeys(re.findall(r"workflow_scripts\.stages\.([a-z_]+)", text), file)
    return found


def test_libraries_of_a_stage_are_pinned_in_its_environment() -> None:
    chapters = stage_chapters()
    for path in (ROOT / "workflow_scripts" / "stages").glob("[a-z]*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "LIBRARIES":
                libraries = {normal(name) for name in ast.literal_eval(node.value)}
                missing = libraries - set(conda(chapters[path.stem]))
                assert not missing, f"{path.stem}: {missing} not in envs/{chapters[path.stem]}.yaml"


def test_every_stage_has_its_rule() -> None:
    stages = {path.stem for path in (ROOT / "workflow_scripts" / "stages").glob("[a-z]*.py")}
    assert stages == set(stage_chapters())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_line_of_help(name: str) -> None:
    assert callable(import_module(f"workflow_scripts.commands.{name}").main)
    docstring = import_module(f"workflow_scripts.commands.{name}").__doc__
    assert docstring.partition("\n")[0] == f"`armslength {name}`: {summary(name)}" and len(summary(name)) > 20


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--help"], 0, "selftest"),
        ([], 0, "adopt"),
        (["stauts"], 2, "did you mean status?"),
        (["x"], 2, "one of adopt"),
    ],
)
def test_dispatcher(arguments: list[str], code: int, said: str) -> None:
    command = [sys.executable, "-m", "workflow_scripts", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_console_script_is_the_dispatcher() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, function = project["project"]["scripts"]["armslength"].partition(":")
    assert hasattr(__import__(module, fromlist=[function]), function)


def test_schema_is_up_to_date() -> None:
    """rules/schemas/ is generated; a new key of the study without it fails here with the diff."""
    before = {path: path.read_bytes() for path in (ROOT / "rules" / "schemas").glob("*.json")}
    assert before
    subprocess.run([sys.executable, "-m", "workflow_scripts", "schema"], cwd=ROOT, check=True)
    changed = [str(path.relative_to(ROOT)) for path, old in before.items() if path.read_bytes() != old]
    for path, old in before.items():
        path.write_bytes(old)
    assert not changed, f"out of date: {changed}; run `armslength schema`"


def test_version_is_said_once_and_logged() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def tracked() -> list[Path]:
    """Text files of the repository, as git would add them."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def test_no_path_of_one_machine_in_any_file() -> None:
    pattern = re.compile(rb"(?<![\w.])/(work|root|farm|Users)/|/home/\w")
    assert not [
        str(p.relative_to(ROOT)) for p in tracked() if p.name != "test_project.py" and pattern.search(p.read_bytes())
    ]


def test_modules_fit_on_a_few_screens() -> None:
    modules = [p for p in tracked() if p.suffix in (".py", ".smk") and p.relative_to(ROOT).parts[0] != "tests"]
    long = {str(p.relative_to(ROOT)): p.read_bytes().count(b"\n") for p in modules}
    assert not {name: lines for name, lines in long.items() if lines > 400}


def test_local_links_of_the_documents_exist() -> None:
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
