"""Hand-made records of runs, for the tests of tables that are made from them."""

from pathlib import Path
from typing import Any

from workflow_scripts import tables
from workflow_scripts.job import Job
from workflow_scripts.stages import check_reachability, summarise_dynamics

SEQUENCE = {"ratio": "sequence", "surrogate": "clipped", "bounds": "ppo", "eps_low": 3e-3, "eps_high": 5e-3}
GAPO = {"ratio": "sequence", "surrogate": "clipped", "bounds": "gapo", "eps_low": 3e-3, "eps_high_max": 5e-3}
TOKEN = {"ratio": "token", "surrogate": "clipped", "bounds": "ppo", "eps_low": 0.2, "eps_high": 0.28}
GAPO_TOKEN = {"ratio": "token", "surrogate": "clipped", "bounds": "gapo", "eps_low": 0.2, "eps_high_max": 0.28}


def record(step: int, prompt: int, rollout: int, advantage: float, reward: float, correct: int, **more: Any) -> dict:
    """A row of rollout_updates: batches of two updates, groups of four, ten tokens; nothing clipped unless said."""
    return {
        "step": step, "batch": (step - 1) // 2, "update_index": (step - 1) % 2, "epoch": (step - 1) % 2, "minibatch": 0,
        "prompt_position": prompt, "rollout": rollout, "group_size": 4, "group_correct": correct, "reward": reward,
        "advantage": advantage, "completion_tokens": 10, "truncated": False, "mean_log_ratio": 0.0,
        "sum_abs_ratio_deviation": 0.0, "sum_entropy": 5.0, "clipped_upper_tokens": 0, "clipped_lower_tokens": 0,
        "upper_bound": 1.005 if advantage > 0 else None, "lower_bound": None if advantage > 0 else 0.997, **more,
    }  # fmt: skip


def mixed(step: int, **first: Any) -> list[dict]:
    """A group with one correct rollout (whose record `first` changes) and a flat one."""
    return [
        record(step, 0, 0, 0.75, 1.0, 1, **first),
        *(record(step, 0, i, -0.25, 0.0, 1) for i in (1, 2, 3)),
        *(record(step, 1, i, 0.0, 0.0, 0) for i in range(4)),
    ]


def completions(rows: list[dict], texts: dict[tuple[int, int, int], str | None]) -> list[dict]:
    """The rows of `rollouts` that belong to records; a text of its own for each that texts does not name."""
    found = {}
    for row in rows:
        key = row["batch"], row["prompt_position"], row["rollout"]
        shared = {name: value for name, value in row.items() if name in tables.ROLLOUTS.columns}
        found[key] = {**shared, "completion": texts.get(key, f"rollout {key}")}
    return list(found.values())


def write_run(
    root: Path,
    arm: str,
    seed: int,
    rows: list[dict],
    tail: list[dict],
    texts: dict[tuple[int, int, int], str | None] | None = None,
    **footer: Any,
) -> None:
    """The files of a run. texts: (batch, prompt, rollout) -> completion. footer: of its checkpoints."""
    folder = root / "runs" / arm / f"seed-{seed}"
    tables.write(folder / "rollouts.parquet", tables.ROLLOUTS, completions(rows, texts or {}), {})
    tables.write(folder / "rollout_updates.parquet", tables.ROLLOUT_UPDATES, rows, {})
    tables.write(folder / "tail_tokens.parquet", tables.TAIL_TOKENS, tail, {})
    checkpoint = {"step": 2, "file": "adapter.safetensors", "sha256": "00", "bytes": 1}
    made = {"settings": {"seed": seed}, "code": "c0de", "inputs": "1n", "frozen_weights_drift": None} | footer
    tables.write(folder / "checkpoints.parquet", tables.CHECKPOINTS, [checkpoint], made)


def job(root: Path, name: str, runs: dict[str, list[int]], **settings: Any) -> Job:
    """What a stage that makes this table gets."""
    defaults = {
        "runs": runs,
        "roles": dict.fromkeys(runs, "comparison"),
        "baseline": "fixed",
        "objectives": {"fixed": SEQUENCE, "gapo": GAPO},
        "differs_only_in_bounds": ["gapo"],
        "updates_per_batch": dict.fromkeys(runs, 2),
        "benchmarks": ["test"],
        "allow_missing": False,
    }
    return Job(defaults | settings, {}, "c0de", root, {}, {name: [str(root / f"{name}.parquet")]}, ())


def reachability(root: Path, runs: dict[str, list[int]], **settings: Any) -> dict[tuple[str, str], dict]:
    """(arm, check) -> its row."""
    check_reachability.main(job(root, "reachability", runs, **settings))
    rows = tables.read(root / "reachability.parquet", tables.REACHABILITY).to_pylist()
    return {(row["arm"], row["check"]): row for row in rows}


def dynamics(root: Path, runs: dict[str, list[int]], **settings: Any) -> list[dict]:
    """Rows of the table dynamics."""
    summarise_dynamics.main(job(root, "dynamics", runs, **settings))
    return tables.read(root / "dynamics.parquet", tables.DYNAMICS).to_pylist()
