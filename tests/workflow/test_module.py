"""The workflow as a module of a user's own Snakefile, in a folder of its own."""

from pathlib import Path

import pytest
import yaml
from copies import STUDY, Copy, instant, jobs

from workflow_scripts import tables

USING = """
configfile: "mine.yaml"

module armslength:
    snakefile: "{workflow}/Snakefile"
    config: config["armslength"]
    {more}

use rule * from armslength{named}

rule mine:
    default_target: True
    input: "results/tiny/report.html", "results/tiny/tables/effects.parquet"
    output: "mine.txt"
    shell: "ls {{input}} > {{output}}"
"""


@pytest.fixture(scope="module")
def workflow(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A clone with instant stages and another study than the user's."""
    return instant(tmp_path_factory.mktemp("module") / "clone")


def user(workflow: Copy, folder: Path, named: str = "", more: str = "") -> Copy:
    """A user's folder: Snakefile, configuration, and the profile of the workflow."""
    folder.mkdir()
    (folder / "Snakefile").write_text(USING.format(workflow=workflow.root, named=named, more=more))
    (folder / "mine.yaml").write_text(yaml.safe_dump({"threshold": 3, "armslength": STUDY}))
    return Copy(folder)


@pytest.mark.parametrize("named", ["", " as armslength_*", " as *_of_armslength"])
def test_all_jobs_of_the_study_are_planned(named: str, workflow: Copy, tmp_path: Path) -> None:
    here = user(workflow, tmp_path / "user", named)
    pattern = named.removeprefix(" as ") or "*"
    asked = here.would_run()
    assert {pattern.replace("*", name) for name in ("train", "train_fixed", "grade", "report", "fetch_benchmark")} <= {
        job.split()[0] for job in asked
    }
    assert {job.split()[0] for job in asked if "docs_figures" in job} == set()
    assert len(asked) == len(workflow.would_run()) + 1


@pytest.mark.slow
def test_the_results_lie_in_the_folder_of_the_user(workflow: Copy, tmp_path: Path) -> None:
    here = user(workflow, tmp_path / "user", " as armslength_*")
    profile = ("--workflow-profile", str(workflow.root / "profiles" / "default"))
    here.snakemake("--cores", "2", "--quiet", "all", *profile)
    assert (here.root / "mine.txt").read_text().split() == [
        "results/tiny/report.html", "results/tiny/tables/effects.parquet"
    ]  # fmt: skip
    assert not (workflow.root / "results").exists()
    assert tables.read(here.root / "results/tiny/plan.parquet", tables.PLAN).num_rows  # its start was noticed
    assert here.would_run(*profile) == set()
    (here.root / "results/tiny/tables/rewards.parquet").unlink()
    assert here.would_run(*profile) == {"armslength_reward_again", "armslength_report", "mine"}


def test_another_place_for_results_is_refused_in_one_line(workflow: Copy, tmp_path: Path) -> None:
    here = user(workflow, tmp_path / "user", more='prefix: "elsewhere"')
    done = here.snakemake("-n", check=False)
    assert done.returncode == 1
    assert "armslength: prefix and replace_prefix of a module are not supported" in done.stdout
    assert "Traceback" not in done.stdout


def test_the_default_study_is_that_of_the_clone(workflow: Copy, tmp_path: Path) -> None:
    here = user(workflow, tmp_path / "user")
    (here.root / "Snakefile").write_text(
        f'module armslength:\n    snakefile: "{workflow.root}/Snakefile"\n\nuse rule * from armslength\n'
    )
    assert jobs(here.snakemake("-n", "all").stdout) == workflow.would_run()
