"""A row for every declared run: is it there, what made it, how long did it take."""

import csv
import json
from pathlib import Path
from typing import Any

from workflow_scripts import tables
from workflow_scripts.stages._command import Job, run
from workflow_scripts.stages._records import run_files

LIBRARIES = ()


def _seconds(path: Path) -> float | None:
    """Wall time of the job in Snakemake's benchmark file (its column `s`); None where the job did not run here."""
    if not path.exists():
        return None
    with path.open(encoding="utf-8", newline="") as file:
        return sum(float(row["s"]) for row in csv.DictReader(file, delimiter="\t"))


def _from_checkpoints(path: str) -> dict[str, Any]:
    """What the run's checkpoint list and its footer say."""
    made = tables.provenance(path)
    steps = tables.read(path, tables.CHECKPOINTS, ["step"])["step"].to_pylist()
    return {
        "status": "done",
        "steps": max(steps, default=None),
        "settings_digest": tables.text_digest(json.dumps(made.get("settings"), sort_keys=True)),
        "code_digest": made.get("code"),
        "inputs_digest": made.get("inputs"),
        **{name: made.get(name) for name in ("initial_weights", "final_weights", "frozen_weights_drift")},
        "reward_version": made.get("reward_version"),
        "rollout_engine": _rollout_engine(made.get("rollout_engine")),
        "micro_batch": made.get("micro_batch"),
        "processes": made.get("processes"),
    }


def _rollout_engine(said: dict[str, Any] | None) -> str | None:
    """What drew the rollouts, and how it was set: "vllm 0.31.0, mode colocate"."""
    if said is None:
        return None
    settings = {key: value for key, value in said.items() if key != "engine"}
    said_of = {key: _rollout_engine(value) if isinstance(value, dict) else value for key, value in settings.items()}
    return ", ".join([*([said["engine"]] if "engine" in said else []), *(f"{k} {v}" for k, v in said_of.items())])


def _sampling_engine(paths: list[Path]) -> str | None:
    """What drew the completions; several names where benchmarks differ."""
    names = {tables.provenance(path).get("engine") for path in paths if path.is_file()}
    return ", ".join(sorted(name for name in names if name)) or None


def main(job: Job) -> None:
    settings, times = job.settings, job.root / "benchmarks"
    files = run_files(job, tables.CHECKPOINTS)
    rows = []
    for arm, seeds in settings["runs"].items():
        for seed in seeds:
            path = files.get((arm, seed))
            sampling = [
                _seconds(times / "sample_checkpoints" / f"{arm}-{seed}-{name}.tsv") for name in settings["benchmarks"]
            ]
            samples = [job.root / f"evals/{arm}/seed-{seed}/{name}/samples.parquet" for name in settings["benchmarks"]]
            known = _from_checkpoints(path) if path else {"status": "missing", "reason": "no checkpoints.parquet"}
            rows.append(
                {
                    "arm": arm,
                    "seed": seed,
                    "role": settings["roles"][arm],
                    "sampling_engine": _sampling_engine(samples),
                    "train_seconds": _seconds(times / "train" / f"{arm}-{seed}.tsv"),
                    "sample_seconds": None if None in sampling else sum(s for s in sampling if s is not None),
                    **known,
                }
            )
    job.write("runs", tables.RUNS, rows)


if __name__ == "__main__":
    run(main, LIBRARIES)
