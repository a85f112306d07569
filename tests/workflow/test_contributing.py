"""CONTRIBUTING.md's additions, carried out in a copy of the repository."""

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from copies import REPOSITORY, Copy, copied, environment

BLOCK = re.compile(r"^```\w+\n# ([\w./]+)(?:, in ([^\n]*))?\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """The repository with everything that the page adds."""
    copy = copied(tmp_path_factory.mktemp("contributing") / "clone")
    for name, place, text in BLOCK.findall((REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")):
        put(copy.root / name, place, text)
    return copy


def put(path: Path, place: str, text: str) -> None:
    """Append a block to a file, or insert it below the line that is named."""
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    if place:
        line = re.compile(rf"^{re.escape(place)}.*\n", re.MULTILINE)
        assert len(line.findall(before)) == 1, place
        path.write_text(line.sub(lambda found: found[0] + text, before), encoding="utf-8")
    else:
        path.write_text(f"{before}\n\n{text}" if before else text, encoding="utf-8")


def python(copy: Copy, code: str) -> str:
    """What a program prints that imports the package of the copy."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=copy.root, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_shows_every_kind_of_addition() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = {name.split("/")[1] for name, *_ in BLOCK.findall(text) if name.startswith("workflow_scripts/")}
    assert rooms >= {"objectives", "benchmarks", "grading", "figures", "stages", "tables", "commands"}


def test_the_additions_are_part_of_a_study(extended: Copy) -> None:
    planned = extended.would_run("--config", "evaluation={benchmarks: [word_problems_test, addition_test]}")
    arms = {job.split()[1] for job in planned if job.startswith("train")}
    assert "rooted" in arms
    jobs = {job.split()[0] for job in planned}
    assert {"sum_lengths", "plot_lengths"} <= jobs
    assert {job for job in planned if "addition_test" in job}


def test_the_benchmark_can_be_fetched(extended: Copy) -> None:
    code = "from workflow_scripts.benchmarks import sources\n"
    code += "rows, source = sources.fetch({'name': 'addition_test', 'source': 'generated'}, None)\n"
    code += "print(len(rows), rows[-1]['question'], rows[-1]['answer'])"
    assert python(extended, code) == "100 What is 9 + 9? 18\n"


def test_the_command_is_listed_and_runs(extended: Copy) -> None:
    assert "the seeds of every arm of the study" in extended.command("workflow_scripts", "--help").stdout
    assert "rooted 0 1 2" in extended.command("workflow_scripts", "seeds").stdout


def test_the_grader_grades(extended: Copy) -> None:
    said = python(
        extended,
        "from workflow_scripts import grading\n"
        "rows = [('It is Paris.', 'paris', False), ('It is Rome', 'paris', False), ('', 'paris', False)]\n"
        "print([v.status for v in grading.grade_many('last_word', rows)], grading.stated('last_word', 'x'))",
    )
    assert said.split("] ") == ["['correct', 'wrong', 'unparsed'", "The answer is x.\n"]


def test_stage_and_figure_run(extended: Copy) -> None:
    python(
        extended,
        "from workflow_scripts import tables\n"
        "row = dict.fromkeys(tables.COUNTS.columns) | {'arm': 'a', 'seed': 0, 'step': 1, 'benchmark': 'b'}\n"
        "rows = [row | {'problem_id': str(n), 'completion_tokens': 10 + n} for n in range(2)]\n"
        "tables.write('counts.parquet', tables.COUNTS, rows, {})",
    )
    run_stage(extended, "sum_lengths", "{}", "counts=counts.parquet", "lengths=lengths.parquet")
    assert pd.read_parquet(extended.root / "lengths.parquet").to_dict("list") == {"arm": ["a"], "written_tokens": [21]}
    settings = python(
        extended,
        "import json\nfrom workflow_scripts.figures import catalogue\n"
        "figure = next(figure for figure in catalogue.FIGURES if figure.name == 'lengths')\n"
        "print(json.dumps(figure.settings({'arms': ['a']}, None)), end='')",
    )
    run_stage(extended, "plot", settings, "tables=lengths.parquet", "figure=lengths.html", "lengths.svg")
    assert "How much did every arm write?" in (extended.root / "lengths.svg").read_text(encoding="utf-8")


def run_stage(copy: Copy, name: str, settings: str, given: str, *outputs: str) -> None:
    """A stage as its rule calls it."""
    command = [sys.executable, "-m", f"workflow_scripts.stages.{name}", "--settings", settings, "--code", "c0de"]
    command += ["--root", ".", "--input", given, "--output", *outputs]
    done = subprocess.run(command, cwd=copy.root, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
