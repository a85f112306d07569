"""Made-up counts, what a study asks of them, and the stages that answer: for the tests of the analysis stages."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workflow_scripts import tables
from workflow_scripts.job import Job
from workflow_scripts.stages import (
    estimate_effects,
    estimate_power,
    estimate_scores,
    measure_noise_floors,
    summarise_coverage,
    summarise_difficulty,
)

STAGES: dict[str, tuple[Any, tables.Table]] = {
    "scores": (estimate_scores, tables.SCORES),
    "effects": (estimate_effects, tables.EFFECTS),
    "noise_floors": (measure_noise_floors, tables.NOISE_FLOORS),
    "power": (estimate_power, tables.POWER),
    "difficulty": (summarise_difficulty, tables.DIFFICULTY),
    "coverage": (summarise_coverage, tables.COVERAGE),
}
PROBLEMS, SAMPLES = 40, 8
SOLVE_RATES = {"base": 0.3, "fixed": 0.6, "gapo": 0.62, "matched": 0.61, "placebo": 0.6, "slow": 0.4}
ROLES = dict.fromkeys(("fixed", "gapo", "matched"), "comparison") | {"placebo": "placebo", "slow": "sensitivity"}


def settings(**changes: Any) -> dict[str, Any]:
    """What the rules hand to every analysis stage, for a study like the default one."""
    return {
        "baseline": "fixed",
        "roles": ROLES,
        "runs": {arm: [10, 11, 12, 13, 14] if arm == "placebo" else [0, 1, 2, 3, 4] for arm in ROLES},
        "benchmarks": ["sums"],
        "pass_at": [1, 8],
        "endpoint": {"pass_at": 1, "checkpoint": "last"},
        "margin": 0.05,
        "alpha": 0.05,
        "looks": [5],
        "last_steps": dict.fromkeys(ROLES, 48),
        "base_repeats": [0, 1, 2],
        "allow_missing": False,
    } | changes


def problem_rows(arm: str, seed: int, step: int, benchmark: str, correct: Iterable[int]) -> list[dict[str, Any]]:
    """Rows of counts of one run at one step."""
    return [
        {
            "arm": arm, "seed": seed, "step": step, "benchmark": benchmark, "problem_id": f"{benchmark}-{i:03}",
            "samples": SAMPLES, "correct": int(c), "truncated": 1, "unparsed": 2, "timeout": 0, "completion_tokens": 80,
        }
        for i, c in enumerate(correct)
    ]  # fmt: skip


def counts(chosen: dict[str, Any]) -> list[dict[str, Any]]:
    """Counts of all declared runs at steps 24 and 48, and of the base model; the same for every call."""
    rows = []
    for benchmark in chosen["benchmarks"]:
        easiness = np.random.default_rng(1).normal(0, 1, PROBLEMS)
        runs = [("base", repeat, 0) for repeat in chosen["base_repeats"]]
        runs += [(arm, seed, step) for arm, seeds in chosen["runs"].items() for seed in seeds for step in (24, 48)]
        for number, (arm, seed, step) in enumerate(runs):
            rng = np.random.default_rng(number)
            run = rng.normal(0, 0.0 if arm == "base" else 0.1)
            rate = 1 / (1 + np.exp(-easiness - run - np.log(SOLVE_RATES[arm] / (1 - SOLVE_RATES[arm]))))
            rows += problem_rows(arm, seed, step, benchmark, rng.binomial(SAMPLES, rate))
    return rows


Run = Callable[..., pd.DataFrame]


def analysis_in(tmp_path: Path) -> Run:
    """analyse(table, settings, rows of counts) -> the table as the stage wrote it, in a folder."""

    def run(table: str, chosen: dict[str, Any], rows: list[dict[str, Any]], **more: list[str]) -> pd.DataFrame:
        tables.write(tmp_path / "tables/counts.parquet", tables.COUNTS, rows, {})
        timed = [{"arm": "fixed", "seed": 0, "train_seconds": 20.0, "sample_seconds": 5.0}, {"arm": "gapo", "seed": 0}]
        tables.write(tmp_path / "tables/runs.parquet", tables.RUNS, timed, {})
        stage, schema = STAGES[table]
        inputs = {name: [str(tmp_path / f"tables/{name}.parquet")] for name in ("counts", "runs")} | more
        output = tmp_path / f"tables/{table}.parquet"
        stage.main(Job(chosen, {}, "c0de", tmp_path, inputs, {table: [str(output)]}, stage.LIBRARIES))
        return tables.read(output, schema).to_pandas()

    return run


def primary(effects: pd.DataFrame) -> pd.DataFrame:
    """The primary rows by arm."""
    return effects[effects["primary"]].set_index("arm")


def run_scores(rows: list[dict[str, Any]], arm: str, benchmark: str = "sums", step: int = 48) -> np.ndarray:
    """pass@1 of each run of an arm, straight from the rows."""
    frame = pd.DataFrame(rows).query("arm == @arm and benchmark == @benchmark and step == @step")
    return frame.groupby("seed")["correct"].mean().to_numpy() / SAMPLES
