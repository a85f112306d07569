"""The workflow as Snakemake sees it: lint, a dry run of every study, and how faults are said."""

import re
from pathlib import Path

import pytest
import yaml
from copies import REPOSITORY, STUDY, Copy, instant

STUDIES = ["config.yaml", *sorted(str(p.relative_to(REPOSITORY)) for p in (REPOSITORY / "studies").glob("*.yaml"))]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy in which nothing has run, with the repository's own default study."""
    copy = instant(tmp_path_factory.mktemp("studies") / "copy")
    (copy.root / "config.yaml").write_bytes((REPOSITORY / "config.yaml").read_bytes())
    return copy


def test_lint_finds_nothing(clean: Copy) -> None:
    said = clean.snakemake("--lint", check=False).stdout
    complaints = re.findall(r"^    \* (.+)$", said, re.MULTILINE)
    assert not complaints, said


# Hundreds of jobs each; their keys and arms are tests/unit/test_paper_studies.py's, in every run
LARGE = [
    f"studies/{name}.yaml"
    for name in ("abc-grpo-1.7b", "gapo-ablations", "gapo-distill", "gapo-llama", "gapo-qwen-math")
]


@pytest.mark.parametrize("study", [pytest.param(s, marks=[pytest.mark.slow] * (s in LARGE)) for s in STUDIES])
def test_dry_run_of_every_study(study: str, clean: Copy) -> None:
    configfile = [] if study == "config.yaml" else ["--configfile", study]
    config = yaml.safe_load((REPOSITORY / study).read_text(encoding="utf-8"))
    for own in config.get("sets", {}).values():
        (clean.root / own["path"]).touch()
    said = clean.snakemake("-n", "--cores", "2", "--quiet", "rules", *configfile).stdout
    assert re.search(r"^report +1$", said, re.MULTILINE)
    trained = sum(int(n) for n in re.findall(r"^train(?:_[\w-]+)? +(\d+)$", said, re.MULTILINE) if n)
    assert trained >= 2 * (len(config["arms"]) > 1)


@pytest.mark.parametrize("study", STUDIES)
def test_first_line_names_the_schema(study: str) -> None:
    path = REPOSITORY / study
    first = path.read_text(encoding="utf-8").splitlines()[0]
    named = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert named
    assert (path.parent / named[1]).is_file()


FAULTS = {
    "unknown key": ({"sedes": 3}, ["sedes", "seeds"]),
    "baseline that is no arm": ({"baseline": "fixd"}, ["baseline", "fixd", "fixed"]),
    "two at once": ({"baseline": "fixd", "seeds": []}, ["baseline", "seeds"]),
    "reward that is not there": (
        {"training": {**STUDY["training"], "reward": "json:loadz", "success_threshold": 0.5}},
        ["training.reward: 'json:loadz': json has no loadz; did you mean 'load'"],
    ),
    "negative margin": ({"analysis": {"margin": -1}}, ["analysis.margin", "-1"]),
    "unknown benchmark": (
        {"evaluation": {**STUDY["evaluation"], "benchmarks": ["word_problem_test"]}},
        ["word_problems_test"],
    ),
}


@pytest.mark.parametrize(("change", "said"), FAULTS.values(), ids=FAULTS)
def test_faults_come_before_anything_runs(change: dict, said: list[str], clean: Copy, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({**STUDY, **change}))
    done = clean.snakemake("--cores", "1", "--configfile", str(tmp_path / "study.yaml"), check=False)
    assert done.returncode == 1
    for word in said:
        assert word in done.stdout
    assert "Traceback" not in done.stdout
    assert "File " not in done.stdout
    assert not (clean.root / "results").exists()


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "a: [1", "study"], ids=["empty", "a list", "no YAML", "a word"])
def test_a_file_that_is_no_study(text: str, clean: Copy, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(text)
    done = clean.snakemake("-n", "--configfile", str(tmp_path / "study.yaml"), check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout
    assert len(done.stdout.strip().splitlines()) < 12, done.stdout


def test_more_gpus_than_here_only_matter_where_jobs_run(clean: Copy) -> None:
    config = ["--config", "compute={gpus: 1}"]
    clean.snakemake("-n", "--cores", "1", *config)
    done = clean.snakemake("--cores", "1", *config, check=False)
    assert done.returncode == 1
    assert "compute.gpus" in done.stdout
    assert "Traceback" not in done.stdout


def test_commands_name_the_faults_of_a_study_too(clean: Copy) -> None:
    for command in ("plan", "status"):
        done = clean.command("workflow_scripts", command, "--config", "baseline=fixd", check=False)
        assert done.returncode == 1
        assert "baseline" in done.stdout
        assert "Traceback" not in done.stdout


def test_a_truncated_plan_is_named(clean: Copy) -> None:
    plan = clean.root / "results/embedded/plan.parquet"
    plan.parent.mkdir(parents=True)
    plan.write_bytes(b"PAR1")
    try:
        done = clean.snakemake("-n", check=False)
        assert done.returncode == 1
        assert "plan.parquet" in done.stdout
        assert "Traceback" not in done.stdout
    finally:
        plan.unlink()
        plan.parent.rmdir()
        plan.parent.parent.rmdir()


def test_a_key_that_stands_twice_is_a_fault(clean: Copy, tmp_path: Path) -> None:
    file = tmp_path / "twice.yaml"
    file.write_text((clean.root / "config.yaml").read_text(encoding="utf-8") + "\nseeds: 3\n", encoding="utf-8")
    for done in (
        clean.snakemake("-n", "--configfile", str(file), check=False),
        clean.command("workflow_scripts", "plan", "--configfile", str(file), check=False),
    ):
        assert done.returncode == 1
        assert "seeds: stands twice" in done.stdout
        assert "Traceback" not in done.stdout


def test_missing_local_files_and_packages_are_named_before_anything_runs(clean: Copy, tmp_path: Path) -> None:
    study = ["--configfile", str(clean.root / "studies" / "word-problems-smollm2.yaml")]
    config = ["--config", f"data_dir={tmp_path}", "model={name: no-such-package}"]
    dry = clean.snakemake("-n", *study, *config, check=False)
    assert dry.returncode == 1
    lines = [line for line in dry.stdout.splitlines() if line.startswith("armslength: data_dir: ")]
    assert len(lines) == 2 and "onestep_train.jsonl is not there" in lines[0], dry.stdout[-2000:]
    done = clean.snakemake("--cores", "1", *study, *config, check=False)
    assert done.returncode == 1
    for said in ("onestep_train.jsonl is not there", "onestep_test.jsonl is not there", "no-such-package"):
        assert said in done.stdout
    assert not (clean.root / "results" / "word-problems-smollm2" / "holdouts").exists()


def test_without_a_hub_a_study_ends_before_its_first_job(clean: Copy, tmp_path: Path) -> None:
    study = ["--configfile", str(clean.root / "studies" / "recipe-gsm8k.yaml")]
    hub = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}
    done = clean.snakemake("--cores", "1", *study, check=False, env=hub)
    assert done.returncode == 1
    lines = [line for line in done.stdout.splitlines() if "http://127.0.0.1:9 does not answer" in line]
    named = [line.split(":")[0].strip() for line in lines]
    assert named == ["gsm8k_train", "gsm8k_test", "model.name"], done.stdout[-2000:]
    assert "Traceback" not in done.stdout
    assert not (clean.root / "results").exists()
