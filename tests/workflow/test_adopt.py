"""A fresh clone with cached results: whatever the modification times, nothing above what is missing runs again."""

import hashlib
import os
import random
import re
import shutil
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from copies import STUDY, Copy

from .test_matrix import ALL, BENCHMARK, FROM_COUNTS, FROM_RUNS, OF_OBJECTIVES, PLOT_OBJECTIVES, evaluate, train
from .test_matrix import END as ASKED

END = ASKED | PLOT_OBJECTIVES  # figures are never taken over

RESULTS = "results/tiny"


def clone(copy: Copy, times: str, *, without: tuple[str, ...] = ()) -> None:
    """What a clone with cached parquet holds: no .snakemake, no modification times, no pages, no logs."""
    shutil.rmtree(copy.root / ".snakemake")
    for name in ("logs", "benchmarks", "figures", "report.html", "ran.txt", *without):
        path = copy.root / RESULTS / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    rng, now = random.Random(3), time.time()
    for path in (copy.root / "results").rglob("*"):
        if path.is_file():
            moment = now - 500 if times == "equal" else now - rng.uniform(0, 1e6)
            os.utime(path, (moment, moment))


def contents(copy: Copy) -> dict[str, str]:
    """Every result with its hash, without the list of those that are absent on purpose."""
    files = [path for path in (copy.root / "results").rglob("*") if path.is_file() and path.name != "absent.json"]
    return {str(p.relative_to(copy.root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def adopt(copy: Copy, *arguments: str) -> str:
    """Run `armslength adopt`; what it says."""
    return copy.command("workflow_scripts", "adopt", *arguments).stdout


@pytest.mark.parametrize("times", ["shuffled", pytest.param("equal", marks=pytest.mark.slow)])
def test_a_clone_with_all_tables_draws_its_pages_and_does_nothing_else(times: str, copy: Copy) -> None:
    clone(copy, times)
    before = contents(copy)
    assert " 0 do not match" in adopt(copy)
    assert contents(copy) == before
    assert copy.would_run() == END


@pytest.mark.parametrize("times", [pytest.param("shuffled", marks=pytest.mark.slow), "equal"])
def test_what_the_study_no_longer_asks_for_is_named_and_made_again(times: str, copy: Copy) -> None:
    clone(copy, times)
    copy.study(lambda study: study["arms"]["gapo"].update(eps_high_max=4.0e-3))
    before = contents(copy)
    said = adopt(copy)
    assert "runs/gapo/seed-0" in said
    assert "objective.eps_high_max is 0.005 in the file, 0.004 in the study" in said
    assert "runs/fixed" not in said
    assert contents(copy) == before
    assert copy.would_run() == train("gapo") | evaluate("gapo") | FROM_RUNS | OF_OBJECTIVES


@pytest.mark.slow
def test_other_code_is_told_from_other_settings(copy: Copy) -> None:
    clone(copy, "shuffled")
    with open(copy.root / "workflow_scripts/sampling/transformers_engine.py", "a") as file:
        file.write("\nprint('another sampler')\n")
    said = adopt(copy)
    assert "made by other code or other library versions" in said
    assert train(*ALL) <= copy.would_run()


def test_changes_after_adopting_are_seen(copy: Copy) -> None:
    """Adopted files have what Snakemake compares: times, params, inputs and their checksums."""
    clone(copy, "shuffled")
    adopt(copy)
    copy.study(lambda study: study["arms"]["gapo"].update(eps_high_max=4.0e-3))
    assert copy.would_run() == train("gapo") | evaluate("gapo") | FROM_RUNS | OF_OBJECTIVES


@pytest.mark.slow
def test_runs_without_what_they_were_evaluated_on_are_not_trained_again(copy: Copy) -> None:
    """Shipped: data, the manifest of the base (no weights) and the runs."""
    clone(copy, "shuffled", without=("evals", "tables"))
    adopt(copy)
    would = copy.would_run()
    assert not would & (train(*ALL) | {"prepare_base", "select_train", "fetch_train_set"})
    assert evaluate(*ALL) <= would


def test_tables_alone_are_enough_for_the_pages(copy: Copy) -> None:
    clone(copy, "shuffled", without=("evals", "holdouts", "base"))
    assert "as far as can be told" in adopt(copy)
    assert copy.would_run() == END


def test_a_missing_piece_is_made_and_what_lies_below_it(copy: Copy) -> None:
    clone(copy, "shuffled")
    for path in (f"evals/gapo/seed-1/{BENCHMARK}/samples.parquet", "tables/counts.parquet"):
        (copy.root / RESULTS / path).unlink()
    adopt(copy)
    assert copy.would_run() == {f"grade gapo 1 {BENCHMARK}"} | FROM_COUNTS | END


def test_a_truncated_file_is_named_and_made_again(copy: Copy) -> None:
    clone(copy, "equal")
    path = copy.root / RESULTS / "runs/gapo/seed-1/checkpoints.parquet"
    path.write_bytes(path.read_bytes()[:50])
    said = adopt(copy)
    assert "runs/gapo/seed-1/checkpoints.parquet: not a readable parquet file" in said
    assert "Traceback" not in said
    assert "train gapo 1" in copy.would_run()
    assert "train gapo 0" not in copy.would_run()


@pytest.mark.slow
def test_results_edited_by_hand_do_not_pass(copy: Copy) -> None:
    """The content digest of an input is part of what a file says of itself."""
    clone(copy, "shuffled")
    samples = copy.root / RESULTS / "evals/gapo/seed-1" / BENCHMARK / "samples.parquet"
    shutil.copy(copy.root / RESULTS / "evals/fixed/seed-1" / BENCHMARK / "samples.parquet", samples)
    assert pq.read_table(samples).num_rows
    said = adopt(copy)
    assert re.search(rf"evals/gapo/seed-1/{BENCHMARK}/samples.parquet: .*sampled", said)
    assert f"grade gapo 1 {BENCHMARK}" in copy.would_run()


def test_move_aside_moves_and_never_deletes(copy: Copy) -> None:
    clone(copy, "equal")
    weights = copy.root / RESULTS / "runs/gapo/seed-0/checkpoints/step-8/model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_text("weights")
    copy.study(lambda study: study["arms"]["gapo"].update(eps_high_max=4.0e-3))
    before = contents(copy)
    adopt(copy, "--move-aside")
    after = contents(copy)
    assert sorted(before.values()) == sorted(after.values())
    moved = [name for name in after if "/aside/" in name]
    assert any(name.endswith("runs/gapo/seed-0/checkpoints/step-8/model.safetensors") for name in moved)
    assert not (copy.root / RESULTS / "runs/gapo/seed-0/checkpoints.parquet").exists()
    assert (copy.root / RESULTS / "runs/fixed/seed-0/checkpoints.parquet").exists()
    assert copy.would_run() == train("gapo") | evaluate("gapo") | FROM_RUNS | OF_OBJECTIVES


@pytest.mark.slow
def test_adopting_another_study_by_configfile(copy: Copy) -> None:
    clone(copy, "shuffled")
    other = copy.root / "studies" / "same.yaml"
    other.write_text(yaml.safe_dump(STUDY))
    (copy.root / "config.yaml").unlink()
    assert " 0 do not match" in adopt(copy, "--configfile", str(Path("studies/same.yaml")))
    assert copy.would_run("--configfile", "studies/same.yaml") == END
