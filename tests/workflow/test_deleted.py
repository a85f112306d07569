"""A declared result that is missing is made again, even while later results are there."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from copies import STUDY, Copy

from workflow_scripts.launch import declared
from workflow_scripts.study import load

from .test_adopt import END as DRAWN
from .test_adopt import adopt, clone
from .test_matrix import (
    BASE,
    BENCHMARK,
    END,
    EVERY_RUN,
    FROM_COUNTS,
    FROM_RUNS,
    OF_DYNAMICS,
    OF_OBJECTIVES,
    PLOT_OBJECTIVES,
    setting,
)

RESULTS = "results/tiny"
RUN, EVALS = "runs/gapo/seed-1", f"evals/gapo/seed-1/{BENCHMARK}"
AGAIN = {"train gapo 1", f"sample_checkpoints gapo 1 {BENCHMARK}", f"grade gapo 1 {BENCHMARK}"} | FROM_RUNS

# What is deleted, and the jobs that run: those that make it, and what lies below them.
KINDS: dict[str, tuple[list[str], set[str]]] = {
    "a run": ([RUN], AGAIN),
    "all runs and evaluations": (["runs", "evals"], EVERY_RUN),
    "the checkpoints of a run": ([f"{RUN}/checkpoints.parquet"], AGAIN),
    "a record that the report does not need": ([f"{RUN}/trainer_log.parquet"], AGAIN),
    "the state that a branch starts from": (
        ["runs/fixed/seed-0/branch_states/step-4.tar"],
        {"train_fixed fixed 0", "train late 0"}
        | {f"{rule} {arm} 0 {BENCHMARK}" for rule in ("sample_checkpoints", "grade") for arm in ("fixed", "late")}
        | FROM_RUNS,
    ),
    "completions": (
        [f"{EVALS}/completions.parquet"],
        {f"sample_checkpoints gapo 1 {BENCHMARK}", f"grade gapo 1 {BENCHMARK}"} | FROM_COUNTS,
    ),
    "samples": ([f"{EVALS}/samples.parquet"], {f"grade gapo 1 {BENCHMARK}"} | FROM_COUNTS),
    "the base": (["base/manifest.parquet"], {"prepare_base"} | BASE | EVERY_RUN),
    "samples of the base": (
        [f"base/repeat-1/{BENCHMARK}/samples.parquet"],
        {f"grade_base 1 {BENCHMARK}"} | FROM_COUNTS,
    ),
    "the train rows": (["data/train.parquet"], {"select_train"} | EVERY_RUN),
    "an audit": ([f"gold_audit/{BENCHMARK}.parquet"], {f"audit_gold {BENCHMARK}"} | FROM_COUNTS),
    "a table": (["tables/rewards.parquet"], {"reward_again", "report"}),
    "a table that is only drawn": (["tables/objectives.parquet"], OF_OBJECTIVES | {"report"}),
    "all tables": (["tables"], FROM_RUNS | OF_OBJECTIVES),
    "a figure that the page does not need": (["figures/effects.html"], {"plot_effects", "report"}),
    "all figures": (["figures"], END | PLOT_OBJECTIVES),
    "a figure and a table": (
        ["figures/costs.svg", "tables/dynamics.parquet"],
        {"summarise_dynamics", "plot_costs", "report"} | OF_DYNAMICS,
    ),
    "the page": (["report.html"], {"report"}),
    "all of it": ([""], set()),
}


def delete(copy: Copy, paths: list[str]) -> None:
    """Files or folders below the results."""
    for path in paths:
        target = copy.root / RESULTS / path
        shutil.rmtree(target) if target.is_dir() else target.unlink()


def said_missing(copy: Copy, command: str, *arguments: str) -> int:
    """How many declared results `plan` or `status` finds missing."""
    said = copy.command("workflow_scripts", command, *arguments).stdout
    found = re.search(r"^(\d+) of (\d+) declared results exist", said, re.MULTILINE)
    assert found, said
    return int(found[2]) - int(found[1])


QUICK = ("a run", "completions", "a table", "a figure and a table", "all of it")  # the others are slow


@pytest.mark.parametrize("kind", [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in KINDS])
def test_what_is_deleted_is_made_again(kind: str, copy: Copy) -> None:
    paths, expected = KINDS[kind]
    before = {path for path in (copy.root / RESULTS).rglob("*") if path.is_file()}
    delete(copy, paths)
    gone = sum(not path.exists() for path in before if path.suffix != ".log" and path.suffix != ".tsv")
    gone -= sum(path.name == "plan.parquet" and not path.exists() for path in before)
    if kind == "all of it":
        expected = copy.would_run("--forceall")
    assert copy.would_run() == expected
    said = [said_missing(copy, command) for command in ("plan", "status")]
    assert said == [gone, gone] if kind != "all of it" else said[0] == said[1] > 100


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--until", "train"), {"train gapo 1"}),
        ((f"{RESULTS}/tables/rewards.parquet",), {"train gapo 1", "reward_again"}),
        ((f"{RESULTS}/report.html",), AGAIN),
        ((f"{RESULTS}/data/train.parquet",), set()),
    ],
)
def test_targets_ask_only_for_what_they_need(arguments: tuple[str, ...], expected: set[str], copy: Copy) -> None:
    delete(copy, [RUN])
    assert copy.would_run(*arguments) == expected


def absent_completions(copy: Copy) -> None:
    """Completions that are dropped once they are graded."""
    setting("compute.keep.completions", False)(copy)
    for file in (copy.root / RESULTS).rglob("completions.parquet"):
        file.unlink()


def absent_run(copy: Copy) -> None:
    """A run without which the study is analysed."""
    setting("allow_missing", True)(copy)
    copy.snakemake("--cores", "2", "--quiet", "all")
    delete(copy, [f"{RUN}/trainer_log.parquet", f"{EVALS}/completions.parquet"])


def absent_seed(copy: Copy) -> None:
    """A seed and an arm that the study no longer has, once it has been analysed so."""
    copy.study(lambda study: study["arms"].pop("late"))
    copy.study(lambda study: study.update(seeds=1))
    copy.snakemake("--cores", "2", "--quiet", "all")
    delete(copy, [RUN, "runs/late", "runs/fixed/seed-0/branch_states"])


def absent_weights(copy: Copy) -> None:
    """Weights, which no rule declares: checkpoints.parquet, with their hashes, stays."""
    weights = copy.root / RESULTS / RUN / "checkpoints/step-8"
    weights.mkdir(parents=True)
    shutil.rmtree(weights.parent)


@pytest.mark.parametrize(
    "absent",
    [absent_completions, *(pytest.param(f, marks=pytest.mark.slow) for f in (absent_run, absent_seed)), absent_weights],
)
def test_what_is_absent_on_purpose_stays_absent(absent: Callable[[Copy], None], copy: Copy) -> None:
    absent(copy)
    assert copy.would_run() == set()
    assert [said_missing(copy, command) for command in ("plan", "status")] == [0, 0]


@pytest.mark.slow
def test_completions_that_were_dropped_are_not_drawn_again_where_they_are_kept_from_now_on(copy: Copy) -> None:
    setting("compute.keep.completions", False)(copy)
    delete(copy, ["evals/gapo", f"base/repeat-0/{BENCHMARK}"])
    copy.snakemake("--cores", "2", "--quiet", "all")
    setting("compute.keep.completions", True)(copy)
    assert copy.would_run() == set()


@pytest.mark.slow
def test_what_was_not_shipped_with_adopted_results_is_made_again_once_it_was_there(copy: Copy) -> None:
    clone(copy, "equal", without=("evals", "holdouts", "base"))
    adopt(copy)
    assert copy.would_run() == DRAWN
    holdout = f"{RESULTS}/holdouts/{BENCHMARK}.parquet"
    assert holdout in json.loads((copy.root / RESULTS / "absent.json").read_text())
    copy.snakemake(holdout, "--cores", "1", "--quiet", "all")
    (copy.root / holdout).unlink()
    assert f"fetch_benchmark {BENCHMARK}" in copy.would_run()


def test_a_deleted_file_that_is_made_again_alone_reruns_nothing_below_it(copy: Copy) -> None:
    """Made again with the same content; a run of everything also makes what lies below it, once."""
    table = f"{RESULTS}/{RUN}/checkpoints.parquet"
    delete(copy, [RUN])
    before = copy.ran()
    copy.snakemake(table, "--cores", "1", "--quiet", "all")
    assert copy.ran() - before == Counter({f"{RESULTS}/{RUN}/rollout_updates.parquet": 1})
    assert copy.would_run() == set()


def test_status_names_the_run_that_is_trained_again(copy: Copy) -> None:
    delete(copy, [f"{RUN}/trainer_log.parquet"])
    said = copy.command("workflow_scripts", "status").stdout
    assert re.search(r"^gapo +evaluated +waiting$", said, re.MULTILINE)
    assert f"missing: {RESULTS}/{RUN}/trainer_log.parquet; the next run makes" in said


def test_every_output_of_the_rules_is_declared(finished: Copy) -> None:
    """`plan`, `status` and Snakemake read one list; the rules are another."""
    ours = {"plan.parquet", "absent.json"}
    made = [path for path in (finished.root / RESULTS).rglob("*") if path.is_file()]
    kinds = {".parquet", ".tar", ".html", ".svg", ".md"}
    outputs = [path for path in made if path.suffix in kinds and path.name not in ours]
    said = finished.command("workflow_scripts", "status").stdout
    assert f"{len(outputs)} of {len(outputs)} declared results exist" in said


def test_a_line_says_the_first_missing_results(tmp_path: Path) -> None:
    study = load(STUDY)
    paths = declared.declared(study)
    assert len(paths) == len(set(paths))
    assert declared.missing(study, tmp_path) == [f"{tmp_path}/{path}" for path in paths]
    assert "missing: a, b, c and 1 more" in declared.line(study, ["a", "b", "c", "d"])
