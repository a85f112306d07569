"""The stage that counts samples: sums, exclusions, and what it refuses."""

from pathlib import Path

import pandas as pd
import pytest

from workflow_scripts import tables
from workflow_scripts.errors import UserError
from workflow_scripts.job import Job
from workflow_scripts.stages import count

SETTINGS = {
    "runs": {"gapo": [0, 1], "fixed": [0, 1]},
    "base_repeats": [0, 1],
    "benchmarks": ["one", "two"],
    "decontaminated": ["one"],
    "allow_missing": False,
}
PROBLEMS = ["a", "b", "c"]
STATUSES = ["correct", "wrong", "unparsed", "truncated", "timeout"]


def samples(arm: str, seed: int, benchmark: str, steps: list[int], number: int) -> list[dict]:
    rows = []
    for step in steps:
        for position, problem in enumerate(PROBLEMS):
            for sample in range(number):
                status = STATUSES[(step + position + sample + seed) % len(STATUSES)]
                rows.append(
                    {
                        "arm": arm,
                        "seed": seed,
                        "step": step,
                        "benchmark": benchmark,
                        "problem_id": problem,
                        "sample": sample,
                    }
                    | {"status": status, "correct": status == "correct", "answer": None}
                    | {"completion_tokens": 10 + sample, "truncated": status in {"truncated", "wrong"}}
                )
    return rows


def write_samples(
    folder: Path, arm: str, seed: int, benchmark: str, number: int = 6, sampled: dict | None = None
) -> None:
    place = f"base/repeat-{seed}" if arm == "base" else f"evals/{arm}/seed-{seed}"
    rows = samples(arm, seed, benchmark, [0] if arm == "base" else [4, 8], number)
    tables.write(
        folder / place / benchmark / "samples.parquet", tables.SAMPLES, rows, {"settings": {"sampled": sampled or {}}}
    )


def checkpoints(folder: Path, arm: str, seed: int, **footer: object) -> None:
    footer = {"code": f"code of {arm}", "libraries": {"torch": "2.13", "trl": "1.16"}, **footer}
    tables.write(folder / f"runs/{arm}/seed-{seed}/checkpoints.parquet", tables.CHECKPOINTS, [], footer)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    for arm, seeds in SETTINGS["runs"].items():
        for seed in seeds:
            checkpoints(tmp_path, arm, seed)
    for benchmark in SETTINGS["benchmarks"]:
        for arm, seeds in [*SETTINGS["runs"].items(), ("base", SETTINGS["base_repeats"])]:
            for seed in seeds:
                write_samples(tmp_path, arm, seed, benchmark)
        gold = [
            {
                "benchmark": benchmark,
                "problem_id": problem,
                "row": row,
                "answer": "1",
                "status": "correct",
                "reason": None,
            }
            | {"dropped": benchmark == "two" and problem == "b"}
            for row, problem in enumerate(PROBLEMS)
        ]
        tables.write(tmp_path / f"gold_audit/{benchmark}.parquet", tables.GOLD_AUDIT, gold, {})
        pairs = [
            {
                "benchmark": benchmark,
                "kind": kind,
                "holdout_problem_id": problem,
                "other_problem_id": "t",
                "coverage": 1.0,
            }
            | {"similarity": 1.0, "removed": kind == "ngram", "caught": True if kind.startswith("control") else None}
            | {"holdout_question": "", "other_question": ""}
            for kind, problem in (("ngram", "a"), ("ngram", "b"), ("template_twin", "c"), ("control_words", "c"))
        ]
        tables.write(tmp_path / f"contamination/{benchmark}.parquet", tables.CONTAMINATION, pairs, {})
    return tmp_path


def counted(folder: Path, **settings: object) -> pd.DataFrame:
    inputs = {
        name: [str(folder / where / f"{benchmark}.parquet") for benchmark in SETTINGS["benchmarks"]]
        for name, where in (("contamination", "contamination"), ("audit", "gold_audit"))
    }
    outputs = {"counts": [str(folder / "tables/counts.parquet")]}
    count.main(Job({**SETTINGS, **settings}, {}, "code", folder, inputs, outputs, ()))
    return tables.read(folder / "tables/counts.parquet", tables.COUNTS).to_pandas()


def test_sums_agree_with_a_loop_over_the_samples(study):
    counts = counted(study)
    runs = [(arm, seed, step) for arm, seeds in SETTINGS["runs"].items() for seed in seeds for step in (4, 8)]
    runs += [("base", repeat, 0) for repeat in SETTINGS["base_repeats"]]
    assert len(counts) == len(runs) * len(SETTINGS["benchmarks"]) * len(PROBLEMS)
    assert counts.equals(counts.sort_values(list(tables.COUNTS.key)).reset_index(drop=True))
    for row in counts.to_dict("records"):
        every = samples(row["arm"], row["seed"], row["benchmark"], [row["step"]], 6)
        mine = [sample for sample in every if sample["problem_id"] == row["problem_id"]]
        assert row["samples"] == 6
        assert row["correct"] == sum(sample["correct"] for sample in mine)
        assert row["truncated"] == sum(sample["truncated"] for sample in mine)
        assert row["unparsed"] == sum(sample["status"] == "unparsed" for sample in mine)
        assert row["timeout"] == sum(sample["status"] == "timeout" for sample in mine)
        assert row["completion_tokens"] == sum(range(10, 16))


def test_what_is_left_out_of_scores(study):
    counts = counted(study)
    reasons = {
        (row.benchmark, row.problem_id): row.excluded if isinstance(row.excluded, str) else None
        for row in counts.itertuples()
    }
    # "one" was taken out of the train set, so its items may stay; "two" came later.
    assert reasons == {
        ("one", "a"): None,
        ("one", "b"): None,
        ("one", "c"): None,
        ("two", "a"): "contaminated",
        ("two", "b"): "gold",
        ("two", "c"): None,
    }


def test_equal_inputs_give_equal_bytes(study):
    counted(study)
    first = (study / "tables/counts.parquet").read_bytes()
    counted(study)
    assert (study / "tables/counts.parquet").read_bytes() == first


def test_seeds_with_different_code_are_refused(study):
    checkpoints(study, "gapo", 1, code="other code")
    with pytest.raises(UserError, match=r"gapo/seed-1/.* and .*gapo/seed-0/.* were trained with different code"):
        counted(study)


def test_arms_with_different_libraries_are_refused(study):
    for seed in (0, 1):
        checkpoints(study, "fixed", seed, libraries={"torch": "2.14", "trl": "1.16"})
    with pytest.raises(UserError, match=r"fixed/seed-0/.* and .*gapo/seed-0/.* different versions of torch"):
        counted(study)


@pytest.mark.parametrize("missing", ["runs/gapo/seed-1/checkpoints.parquet", "evals/gapo/seed-1/two/samples.parquet"])
def test_a_missing_run_is_named_or_left_out(study, missing):
    (study / missing).unlink()
    with pytest.raises(UserError, match=f"{missing}: the file is missing"):
        counted(study)
    counts = counted(study, allow_missing=True)
    gone = counts[(counts["arm"] == "gapo") & (counts["seed"] == 1) & (counts["benchmark"] == "two")]
    assert gone.empty  # also where its evaluation is there, but no record of how the run was made


def test_nothing_to_count_is_said(study):
    for path in study.rglob("samples.parquet"):
        path.unlink()
    with pytest.raises(UserError, match=r"no samples\.parquet of any run"):
        counted(study, allow_missing=True)


def test_samples_of_another_run_are_refused(study):
    target = study / "evals/gapo/seed-1/one/samples.parquet"
    target.write_bytes((study / "evals/gapo/seed-0/one/samples.parquet").read_bytes())
    with pytest.raises(UserError, match=r"seed-1/one/samples\.parquet: holds samples of another run than gapo, seed 1"):
        counted(study)


def test_different_numbers_of_samples_are_refused(study):
    write_samples(study, "fixed", 1, "two", number=4)
    with pytest.raises(UserError, match="two: between 4 and 6 samples a problem"):
        counted(study)


def test_a_truncated_file_is_named(study):
    path = study / "evals/fixed/seed-0/one/samples.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(tables.TableError, match=r"fixed/seed-0/one/samples\.parquet: not a readable parquet file"):
        counted(study)


def test_samples_drawn_otherwise_are_not_compared(study: Path) -> None:
    for arm, seeds in SETTINGS["runs"].items():
        for seed in seeds:
            for benchmark in SETTINGS["benchmarks"]:
                write_samples(
                    study, arm, seed, benchmark, sampled={"seed": seed, "benchmark": benchmark, "temperature": 1.0}
                )
    for seed in SETTINGS["base_repeats"]:
        for benchmark in SETTINGS["benchmarks"]:
            write_samples(study, "base", seed, benchmark, sampled={"benchmark": benchmark, "temperature": 1.0})
    counted(study)
    write_samples(study, "fixed", 1, "two", sampled={"benchmark": "two", "temperature": 0.5})
    with pytest.raises(UserError, match=r"fixed/seed-1/two/samples.parquet and .* sampled with different temperature"):
        counted(study)
