"""A row for every declared run: is it there, if not why, what made it, how long did it take."""

import csv
import json
from pathlib import Path
from typing import Any

from workflow_scripts import tables
from workflow_scripts.analysis.records import run_files
from workflow_scripts.job import Job, run
from workflow_scripts.training.finished import HANDED_OUT, RESUMES, read_divergence

LIBRARIES = ()
SAID = "armslength: "  # how a job's last line begins where it knew what was wrong


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
        "status": "diverged" if made.get("diverged") else "done",
        "reason": made.get("diverged"),
        "steps": max(steps, default=None),
        "settings_digest": tables.text_digest(json.dumps(made.get("settings"), sort_keys=True)),
        "code_digest": made.get("code"),
        "inputs_digest": made.get("inputs"),
        **{name: made.get(name) for name in ("initial_weights", "final_weights", "frozen_weights_drift")},
        "reward_version": made.get("reward_version"),
        "rollout_engine": _each([_rollout_engine(part["rollout_engine"]) for part in made.get("made_by", [])]),
        "hardware": _each([part["hardware"] for part in made.get("made_by", [])]),
        "micro_batch": made.get("micro_batch"),
        "processes": made.get("processes"),
        "train_problems": made.get("train_problems"),
        "long_prompts": made.get("long_prompts"),
    }


def _each(parts: list[str]) -> str | None:
    """Of one run, in the order of the jobs that made it; each once."""
    return ", then ".join(dict.fromkeys(parts)) or None


def _rollout_engine(said: dict[str, Any]) -> str:
    """What drew the rollouts, and how it was set: "vllm 0.31.0, mode colocate"."""
    settings = {key: value for key, value in said.items() if key != "engine"}
    said_of = {key: _rollout_engine(value) if isinstance(value, dict) else value for key, value in settings.items()}
    return ", ".join([*([said["engine"]] if "engine" in said else []), *(f"{k} {v}" for k, v in said_of.items())])


def _sampling_engine(paths: list[Path]) -> str | None:
    """What drew the completions; several names where benchmarks differ."""
    names = {tables.provenance(path).get("engine") for path in paths if path.is_file()}
    return ", ".join(sorted(name for name in names if name)) or None


def _absent(root: Path, arm: str, seed: int) -> dict[str, Any]:
    """Why a run has no checkpoints.parquet, as far as its log and what its trainer has left tell."""
    if (cause := read_divergence(root / "state" / arm / f"seed-{seed}")) is not None:
        return {"status": "diverged", "reason": cause}
    log = root / "logs" / "train" / f"{arm}-{seed}.log"
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    if lines and lines[-1].startswith(SAID):
        return {"status": "missing", "reason": lines[-1].removeprefix(SAID)}
    try:
        said = json.loads((root / "state" / arm / f"seed-{seed}" / "progress.json").read_text(encoding="utf-8"))
        return {"status": "missing", "reason": f"stopped at update {said['step']} of {said['steps']}"}
    except (OSError, ValueError, KeyError, TypeError):  # not begun, or lost since
        return {"status": "missing", "reason": "no checkpoints.parquet"}


def _not_sampled(samples: dict[str, Path]) -> dict[str, Any]:
    """A trained run that lacks an evaluation is in no table of scores."""
    lacking = [name for name, path in samples.items() if not path.is_file()]
    return {"status": "not evaluated", "reason": f"no samples of {', '.join(lacking)}"} if lacking else {}


def _in_parts(root: Path, arm: str, seed: int) -> bool:
    """Whether the training job that ended was not the one that began: it says so, and its time is not the run's."""
    try:
        said = (root / "logs" / "train" / f"{arm}-{seed}.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(line.startswith((RESUMES, HANDED_OUT)) for line in said.splitlines())


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
            evals = job.root / "evals" / arm / f"seed-{seed}"
            samples = {name: evals / name / "samples.parquet" for name in settings["benchmarks"]}
            known = _from_checkpoints(path) | _not_sampled(samples) if path else _absent(job.root, arm, seed)
            rows.append(
                {
                    "arm": arm,
                    "seed": seed,
                    "role": settings["roles"][arm],
                    "sampling_engine": _sampling_engine(list(samples.values())),
                    "train_seconds": None
                    if _in_parts(job.root, arm, seed)
                    else _seconds(times / "train" / f"{arm}-{seed}.tsv"),
                    "sample_seconds": None if None in sampling else sum(s for s in sampling if s is not None),
                    **known,
                }
            )
    job.write("runs", tables.RUNS, rows)


if __name__ == "__main__":
    run(main, LIBRARIES)
