"""The whole chain for real, small: a model is warm-started, trained, sampled and judged."""

import os
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from copies import Copy
from smoke_study import ROOT, STUDY

from workflow_scripts import tables


def read(copy: Copy, table: tables.Table) -> list[dict]:
    """Rows of a table of the study."""
    return tables.read(copy.root / ROOT / "tables" / f"{table.name}.parquet", table).to_pylist()


def test_it_ends_in_a_page_and_there_is_nothing_left_to_do(done: Copy) -> None:
    page = (done.root / ROOT / "report.html").read_text(encoding="utf-8")
    assert "gapo" in page
    assert done.would_run() == set()
    assert "6 runs: 6 trained, 6 evaluated" in done.command("workflow_scripts", "status").stdout


def test_every_stored_reward_is_given_again(done: Copy) -> None:
    """What the trainer hands to the grader, and what is kept of it, are the same rows."""
    rewards = read(done, tables.REWARDS)
    assert [(r["regraded"], r["changed"]) for r in rewards] == [(64, 0)] * 4 + [(32, 0)] * 2


@pytest.mark.slow
def test_a_new_reward_version_regrades_and_trains_nothing(done: Copy, tmp_path: Path) -> None:
    copy = Copy(tmp_path / "regraded")
    shutil.copytree(done.root, copy.root, symlinks=True)
    manifest = copy.root / ROOT / "runs/gapo/seed-0/checkpoints.parquet"
    before = manifest.stat().st_mtime_ns
    copy.edit("workflow_scripts/grading/exact_answer.py", "REWARD_VERSION = 3", "REWARD_VERSION = 4")
    copy.snakemake("--cores", "2", "--quiet", "rules", "host")
    assert "what was trained under 3 stays valid" in (copy.root / ROOT / "report.html").read_text(encoding="utf-8")
    grader = "workflow_scripts/grading/exact_answer.py"
    copy.edit(grader, "if value == _value(answer)", "if abs(value - (_value(answer) or 0)) <= 1")
    copy.snakemake("--cores", "2", "--quiet", "rules", "host")
    assert all(0 < row["to_correct"] == row["changed"] < row["regraded"] for row in read(copy, tables.REWARDS))
    assert "retrain_on_reward_change=true" in (copy.root / ROOT / "summary.md").read_text(encoding="utf-8")
    assert manifest.stat().st_mtime_ns == before
    assert copy.would_run() == set()


def test_every_sample_is_counted(done: Copy) -> None:
    counts = read(done, tables.COUNTS)
    assert {(r["arm"], r["seed"], r["step"]) for r in counts} == {
        *(("base", repeat, 0) for repeat in range(2)),
        *((arm, seed, step) for arm in ("fixed", "gapo") for seed in range(2) for step in (4, 8)),
        *(("late", seed, 8) for seed in range(2)),
    }
    assert all(r["samples"] == 4 and 0 <= r["correct"] <= 4 for r in counts)
    assert len(counts) == 12 * STUDY["evaluation"]["problems"]


def test_the_untrained_base_can_do_some_problems(done: Copy) -> None:
    base = [r for r in read(done, tables.COUNTS) if r["arm"] == "base"]
    assert 0.1 < sum(r["correct"] for r in base) / sum(r["samples"] for r in base) < 0.7


def test_effects_compare_the_arm_with_the_baseline(done: Copy) -> None:
    effects = read(done, tables.EFFECTS)
    assert {(r["arm"], r["baseline"]) for r in effects} == {("gapo", "fixed"), ("late", "fixed")}
    assert all(r["verdict"] or r["reason"] for r in effects)


def test_a_branch_starts_where_its_parent_was(done: Copy) -> None:
    runs = {(r["arm"], r["seed"]): r for r in read(done, tables.RUNS)}
    updates = tables.read(done.root / ROOT / "runs/late/seed-0/rollout_updates.parquet", tables.ROLLOUT_UPDATES)
    assert set(updates["step"].to_pylist()) == {5, 6, 7, 8}
    assert runs["late", 0]["final_weights"] != runs["fixed", 0]["final_weights"]
    first = []
    for arm in ("late", "fixed"):
        rollouts = tables.read(done.root / ROOT / f"runs/{arm}/seed-0/rollouts.parquet", tables.ROLLOUTS).to_pylist()
        first.append([r["completion"] for r in rollouts if r["batch"] == 1])
    assert first[0] == first[1]  # same weights, same prompts, same random numbers


@pytest.mark.slow
def test_more_steps_go_on_from_the_kept_state(done: Copy, tmp_path: Path) -> None:
    root = tmp_path / "longer"
    shutil.copytree(done.root, root, symlinks=True)
    copy = Copy(root)
    manifest = root / ROOT / "runs/gapo/seed-0/checkpoints.parquet"
    before = tables.read(manifest, tables.CHECKPOINTS).to_pylist()
    copy.study(lambda study: study["training"].update({"steps": 12, "checkpoints": [4, 8, 12]}))
    copy.snakemake(str(manifest.relative_to(root)), "--cores", "2", "--quiet", "rules", "host")
    assert "resumes at step 8" in (root / ROOT / "logs/train/gapo-0.log").read_text(encoding="utf-8")
    after = tables.read(manifest, tables.CHECKPOINTS).to_pylist()
    assert [row for row in after if row["step"] < 12] == before
    assert {row["step"] for row in after} == {4, 8, 12}


def test_every_parquet_describes_itself(done: Copy) -> None:
    for path in (done.root / ROOT).rglob("*.parquet"):
        schema = pq.read_schema(path)
        assert all(field.metadata and field.metadata[b"meaning"] for field in schema), path
        if path.name != "plan.parquet" and "state" not in path.parts:
            assert {"settings", "code", "inputs", "content"} <= set(tables.provenance(path)), path


def test_a_clone_of_real_results_is_adopted_whole(done: Copy, tmp_path: Path) -> None:
    """The rule's inputs are what each stage says that it read, also where a stage finds its files itself."""
    root = tmp_path / "clone"
    shutil.copytree(done.root, root, ignore=shutil.ignore_patterns(".snakemake", "report.html"))
    shutil.rmtree(root / ROOT / "figures")
    for path in (root / "results").rglob("*"):
        os.utime(path, (1.7e9, 1.7e9))
    clone = Copy(root)
    said = clone.command("workflow_scripts", "adopt").stdout
    assert " 0 do not match" in said, said
    assert not [job for job in clone.would_run() if not re.match("plot_|report", job)]


def test_a_truncated_file_is_named(done: Copy, tmp_path: Path) -> None:
    root = tmp_path / "damaged"
    shutil.copytree(done.root, root, symlinks=True)
    copy = Copy(root)
    counts = root / ROOT / "tables/counts.parquet"
    counts.write_bytes(counts.read_bytes()[:100])
    (root / ROOT / "tables/scores.parquet").unlink()
    failed = copy.snakemake("--cores", "1", "--forcerun", "estimate_scores", check=False)
    assert failed.returncode == 1
    logs = [path.read_text(encoding="utf-8") for path in (root / ROOT / "logs").glob("*.log")]
    assert any("counts.parquet: not a readable parquet file" in log for log in logs)
    assert not any("Traceback" in log for log in logs)


@pytest.mark.slow
def test_a_run_that_diverges_ends_early_and_counts(done: Copy, tmp_path: Path) -> None:
    """Before its first checkpoint here: then it counts with the model it began with."""
    copy = Copy(tmp_path / "diverging")
    shutil.copytree(done.root, copy.root, symlinks=True)
    copy.study(lambda study: study["arms"].update(gapo=study["arms"]["gapo"] | {"training": {"learning_rate": 1.0e30}}))
    copy.study(lambda study: study["arms"].pop("late"))
    copy.snakemake("--cores", "2", "--quiet", "rules", "host")
    runs = {(row["arm"], row["seed"]): row for row in read(copy, tables.RUNS)}
    for seed in range(2):
        run = runs["gapo", seed]
        assert (run["status"], run["steps"]) == ("diverged", 0)
        assert "at step" in run["reason"]
    assert runs["fixed", 0]["status"] == "done"
    (effect,) = (row for row in read(copy, tables.EFFECTS) if row["primary"] and row["estimand"] == "benchmark")
    assert (effect["arm"], effect["step"], effect["seeds"], effect["delta"] < 0) == ("gapo", 8, 2, True)
    base, gapo = (
        next(row["score"] for row in read(copy, tables.SCORES) if (row["arm"], row["metric"]) == (arm, "avg@n"))
        for arm in ("base", "gapo")
    )
    assert abs(gapo - base) < 0.15  # the same model, other samples
    assert "gapo, seed 0: ended at step" in effect["reason"]
    assert {row["step"] for row in read(copy, tables.EFFECTS)} == {4, 8}
    assert "Diverged, and counted with the scores of the last checkpoint: gapo seed 0 (" in (
        copy.root / ROOT / "report.html"
    ).read_text(encoding="utf-8")
    assert copy.would_run() == set()
