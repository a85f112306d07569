"""Which problems and completions are shown side by side."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow_scripts import tables
from workflow_scripts.analysis import examples
from workflow_scripts.job import Job
from workflow_scripts.stages import pick_examples

BENCHMARK, OTHER = "word_problems_test", "other"
ARMS = ["fixed", "gapo"]
SETTINGS: dict[str, Any] = {
    "baseline": "fixed", "roles": dict.fromkeys(ARMS, "comparison"), "runs": {arm: [0, 1] for arm in ARMS},
    "benchmarks": [BENCHMARK], "selection": None, "pass_at": [1], "endpoint": {"pass_at": 1, "checkpoint": "last"},
    "margin": 0.05, "alpha": 0.05, "looks": [2], "last_steps": dict.fromkeys(ARMS, 8),
    "checkpoints": {arm: [4, 8] for arm in ARMS}, "base_repeats": [0], "allow_missing": False,
}  # fmt: skip
PROBLEMS = [f"p{n}" for n in range(6)]
RIGHT = {"base": [2, 2, 2, 2, 2, 2], "fixed": [4, 4, 1, 2, 2, 2], "gapo": [4, 0, 4, 2, 2, 2]}  # of 4, each run alike


def run_folder(root: Path, arm: str, seed: int) -> Path:
    """Where a run's completions and grades lie."""
    return root / (f"base/repeat-{seed}" if arm == "base" else f"evals/{arm}/seed-{seed}") / BENCHMARK


def study(root: Path) -> Job:
    """Two arms with two seeds and a base: gapo gains p2 and loses p1. Of step 4 nothing is right."""
    counts = []
    for arm, seed in [("base", 0), *((arm, seed) for arm in ARMS for seed in (0, 1))]:
        graded, written = [], []
        for step in (0,) if arm == "base" else (4, 8):
            for problem, right in zip(PROBLEMS, RIGHT[arm], strict=True):
                correct = right if step != 4 else 0
                key = {"arm": arm, "seed": seed, "step": step, "benchmark": BENCHMARK, "problem_id": problem}
                counts.append({**key, "samples": 4, "correct": correct, "truncated": 0, "unparsed": 0, "timeout": 0,
                               "completion_tokens": 40})  # fmt: skip
                for sample in range(4):
                    good = sample >= 4 - correct  # the wrong ones come first
                    both = {**key, "sample": sample, "completion_tokens": 10, "truncated": False}
                    graded.append({**both, "status": "correct" if good else "wrong", "correct": good})
                    written.append({**both, "completion": f"{arm} {seed} {step} {problem} {sample}" + "x" * 1000})
        tables.write(run_folder(root, arm, seed) / "samples.parquet", tables.SAMPLES, graded, {})
        tables.write(run_folder(root, arm, seed) / "completions.parquet", tables.COMPLETIONS, written, {})
    tables.write(root / "tables/counts.parquet", tables.COUNTS, counts, {})
    asked = [
        {"problem_id": p, "benchmark": BENCHMARK, "row": n, "question": f"Q{n} " + "y" * 2000, "answer": "7"}
        for n, p in enumerate(PROBLEMS)
    ]
    tables.write(root / "holdout.parquet", tables.PROBLEMS, asked, {})
    inputs = {"counts": [str(root / "tables/counts.parquet")], "holdout": [str(root / "holdout.parquet")]}
    return Job(SETTINGS, {}, "c" * 16, root, inputs, {"examples": [str(root / "examples.parquet")]}, ())


def picked(job: Job) -> list[dict[str, Any]]:
    """Rows of the table."""
    pick_examples.main(job)
    return tables.read(job.output("examples"), tables.EXAMPLES).to_pylist()


def test_gained_and_lost_problems_with_two_right_and_two_wrong_texts(tmp_path: Path) -> None:
    rows = picked(study(tmp_path))
    assert {row["problem_id"] for row in rows if row["picked"] == "difference"} == {"p1", "p2"}
    assert {row["problem_id"] for row in rows if row["picked"] == "random"} == {"p0", "p3", "p4", "p5"}
    here = {(row["arm"], row["problem_id"], row["sample"]): row for row in rows}
    gained = here["gapo", "p2", 0]
    assert (gained["runs"], gained["samples"], gained["correct"], gained["seed"], gained["step"]) == (2, 8, 8, 0, 8)
    assert gained["completion"].startswith("gapo 0 8 p2 0x")
    assert "[… 113 characters left out …]" in gained["completion"]
    assert gained["characters"] == 1013
    assert gained["question"].startswith("Q2 y")
    assert len(gained["question"]) < 1600
    chosen = {sample: here["fixed", "p2", sample]["status"] for sample in range(4) if ("fixed", "p2", sample) in here}
    assert chosen == {0: "wrong", 1: "wrong", 3: "correct"}  # one right, and of three wrong ones two
    assert here["base", "p2", 0]["step"] == 0


def test_texts_that_are_gone_or_of_another_making_are_not_shown(tmp_path: Path) -> None:
    job = study(tmp_path)
    for arm, seed in (("gapo", 0), ("gapo", 1), ("fixed", 0)):
        (run_folder(tmp_path, arm, seed) / "completions.parquet").unlink()
    last = run_folder(tmp_path, "fixed", 1) / "completions.parquet"
    texts = tables.read(last, tables.COMPLETIONS).to_pylist()
    other = [row | {"completion_tokens": 11} if row["problem_id"] == "p1" else row for row in texts]
    tables.write(last, tables.COMPLETIONS, other, {})
    rows = picked(job)
    gone = [row for row in rows if row["arm"] == "gapo" or (row["arm"], row["problem_id"]) == ("fixed", "p1")]
    assert {(row["sample"], row["reason"]) for row in gone} == {(None, examples.NOT_KEPT)}
    assert {row["correct"] for row in gone if row["problem_id"] == "p1"} == {0, 8}  # counts stay
    made = tables.provenance(job.output("examples"))["inputs"]
    assert made == tables.inputs_digest([job.input("counts"), job.input("holdout")], tmp_path)  # what `adopt` looks for
    assert {row["seed"] for row in rows if (row["arm"], row["problem_id"]) == ("fixed", "p2")} == {1}


def test_a_study_without_counts_has_no_examples(tmp_path: Path) -> None:
    job = study(tmp_path)
    tables.write(job.input("counts"), tables.COUNTS, [], {})
    assert picked(job) == []


def test_damaged_texts_are_named(tmp_path: Path) -> None:
    job = study(tmp_path)
    path = run_folder(tmp_path, "gapo", 0) / "completions.parquet"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(tables.TableError, match=r"gapo/seed-0/.*completions.parquet: not a readable parquet file"):
        pick_examples.main(job)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_choice_is_bounded_and_takes_the_largest_differences(data: st.DataObject) -> None:
    problems, arms = data.draw(st.integers(1, 12)), data.draw(st.integers(0, 4))
    rate = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=problems, max_size=problems)
    names = ["fixed", *(f"a{n}" for n in range(arms))]
    rates = {b: {name: np.array(data.draw(rate)) for name in names} for b in (BENCHMARK, OTHER)}
    most, at_random = data.draw(st.integers(0, 8)), data.draw(st.integers(1, 6))
    found = examples.choose(rates, "fixed", most, at_random)
    differing = [key for key, why in found.items() if why == "difference"]
    assert len(differing) <= most
    assert len(found) - len(differing) <= max(2, at_random)
    gaps = {
        (b, n): max(abs(of[a][n] - of["fixed"][n]) for a in names) for b, of in rates.items() for n in range(problems)
    }
    assert all(gaps[key] > 0 for key in differing)
    if differing:
        assert max(gaps[key] for key in differing) == max(gaps.values())
    assert found == examples.choose(dict(rates), "fixed", most, at_random)
