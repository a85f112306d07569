"""Every parquet file of the pipeline: its columns and types.

Units and meanings of the columns lie in ``schemas.toml`` (no digest reads that file, so a better wording reruns
nothing); both are written into the metadata of each file.
A stage needs only the tables it names: a new column in one reruns only what uses that one.
"""

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

TEXT, INT, REAL, FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
SMALL, SINGLE = pa.int32(), pa.float32()  # per-rollout and per-token records: many rows, four bytes are enough


@dataclass(frozen=True)
class Table:
    """Name of a table (its section in schemas.toml), its columns in order, and the columns that identify a row."""

    name: str
    columns: dict[str, pa.DataType]
    key: tuple[str, ...]


PROBLEMS = Table(
    "problems",
    {"problem_id": TEXT, "benchmark": TEXT, "row": INT, "question": TEXT, "answer": TEXT, "difficulty": INT},
    ("problem_id",),
)
GOLD_AUDIT = Table(
    "gold_audit",
    {
        "benchmark": TEXT,
        "problem_id": TEXT,
        "row": INT,
        "answer": TEXT,
        "status": TEXT,
        "dropped": FLAG,
        "reason": TEXT,
        "copy": TEXT,
        "copy_paid": FLAG,
    },
    ("benchmark", "row"),
)
CONTAMINATION = Table(
    "contamination",
    {
        "benchmark": TEXT, "kind": TEXT, "holdout_problem_id": TEXT, "other_problem_id": TEXT, "coverage": REAL,
        "similarity": REAL, "removed": FLAG, "caught": FLAG, "holdout_question": TEXT, "other_question": TEXT,
    },
    ("benchmark", "kind", "holdout_problem_id", "other_problem_id"),
)  # fmt: skip
MANIFEST = Table("manifest", {"file": TEXT, "sha256": TEXT, "bytes": INT}, ("file",))
CHECKPOINTS = Table("checkpoints", {"step": INT, "file": TEXT, "sha256": TEXT, "bytes": INT}, ("step", "file"))
ROLLOUTS = Table(
    "rollouts",
    {
        "batch": SMALL, "prompt_position": SMALL, "rollout": SMALL, "problem_id": TEXT, "group_size": SMALL,
        "group_correct": SMALL, "reward": SINGLE, "success": FLAG, "status": TEXT, "advantage": SINGLE,
        "completion_tokens": SMALL, "truncated": FLAG, "completion": TEXT, "old_log_prob": pa.list_(SINGLE),
    },
    ("batch", "prompt_position", "rollout"),
)  # fmt: skip
ROLLOUT_UPDATES = Table(
    "rollout_updates",
    {
        "step": SMALL, "batch": SMALL, "update_index": SMALL, "epoch": SMALL, "minibatch": SMALL,
        "prompt_position": SMALL, "rollout": SMALL, "group_size": SMALL, "group_correct": SMALL, "reward": SINGLE,
        "advantage": SINGLE, "completion_tokens": SMALL, "truncated": FLAG, "mean_log_ratio": SINGLE,
        "sum_abs_ratio_deviation": SINGLE, "sum_entropy": SINGLE, "clipped_upper_tokens": SMALL,
        "clipped_lower_tokens": SMALL, "upper_bound": SINGLE, "lower_bound": SINGLE,
    },
    ("step", "prompt_position", "rollout"),
)  # fmt: skip
TAIL_TOKENS = Table(
    "tail_tokens",
    {
        "step": SMALL, "prompt_position": SMALL, "rollout": SMALL, "position": SMALL, "log_ratio": SINGLE,
        "old_log_prob": SINGLE,
    },
    ("step", "prompt_position", "rollout", "position"),
)  # fmt: skip
TAIL_LOG_RATIO = 0.015  # tail_tokens holds the tokens whose |log ratio| is larger; a fixed number, so that runs compare
TRAINER_LOG = Table("trainer_log", {"step": INT, "metric": TEXT, "value": REAL}, ("step", "metric"))
COMPLETIONS = Table(
    "completions",
    {
        "arm": TEXT, "seed": INT, "step": INT, "benchmark": TEXT, "problem_id": TEXT, "sample": INT,
        "completion": TEXT, "completion_tokens": INT, "truncated": FLAG,
    },
    ("arm", "seed", "step", "benchmark", "problem_id", "sample"),
)  # fmt: skip
SAMPLES = Table(
    "samples",
    {
        "arm": TEXT, "seed": INT, "step": INT, "benchmark": TEXT, "problem_id": TEXT, "sample": INT, "status": TEXT,
        "correct": FLAG, "answer": TEXT, "completion_tokens": INT, "truncated": FLAG,
    },
    ("arm", "seed", "step", "benchmark", "problem_id", "sample"),
)  # fmt: skip
COUNTS = Table(
    "counts",
    {
        "arm": TEXT, "seed": INT, "step": INT, "benchmark": TEXT, "problem_id": TEXT, "samples": INT, "correct": INT,
        "truncated": INT, "unparsed": INT, "timeout": INT, "completion_tokens": INT, "excluded": TEXT,
    },
    ("arm", "seed", "step", "benchmark", "problem_id"),
)  # fmt: skip
SCORES = Table(
    "scores",
    {
        "level": TEXT, "arm": TEXT, "seed": INT, "step": INT, "benchmark": TEXT, "metric": TEXT, "pass_at": INT,
        "score": REAL, "se": REAL, "ci_low": REAL, "ci_high": REAL, "seeds": INT, "problems": INT, "samples": INT,
        "truncated_share": REAL, "unparsed_share": REAL, "mean_completion_tokens": REAL, "reason": TEXT,
    },
    ("level", "arm", "seed", "step", "benchmark", "metric", "pass_at"),
)  # fmt: skip
EFFECTS = Table(
    "effects",
    {
        "arm": TEXT, "baseline": TEXT, "role": TEXT, "benchmark": TEXT, "step": INT, "metric": TEXT, "pass_at": INT,
        "estimand": TEXT, "delta": REAL, "se": REAL, "df": REAL, "ci_low": REAL, "ci_high": REAL, "level": REAL,
        "p": REAL, "p_holm": REAL, "p_bh": REAL, "primary": FLAG, "look": INT, "planned_look": FLAG, "seeds": INT,
        "baseline_seeds": INT, "problems": INT, "samples": INT, "var_seed": REAL, "var_seed_problem": REAL,
        "var_eval": REAL, "var_arm_problem": REAL, "seed_correlation": REAL, "margin": REAL, "mde80": REAL,
        "seeds_needed": INT, "verdict": TEXT, "reason": TEXT,
    },
    ("arm", "benchmark", "step", "metric", "pass_at", "estimand"),
)  # fmt: skip
NOISE_FLOORS = Table(
    "noise_floors",
    {
        "kind": TEXT, "arm": TEXT, "benchmark": TEXT, "step": INT, "pass_at": INT, "runs": INT, "sd": REAL,
        "sd_low": REAL, "sd_high": REAL, "expected_sd": REAL, "band": REAL, "p": REAL, "eval_share": REAL,
        "verdict": TEXT, "reason": TEXT,
    },
    ("kind", "arm", "benchmark", "step", "pass_at"),
)  # fmt: skip
POWER = Table(
    "power",
    {
        "seeds": INT, "run_sd": REAL, "run_sd_upper80": REAL, "run_sd_of": TEXT, "mde80_one": REAL,
        "mde80_family": REAL, "mde80_family_upper80": REAL, "resolves_margin": FLAG, "seconds_per_run": REAL,
        "extra_seconds": REAL, "reason": TEXT,
    },
    ("seeds",),
)  # fmt: skip
DIFFICULTY = Table(
    "difficulty",
    {
        "arm": TEXT, "baseline": TEXT, "benchmark": TEXT, "step": INT, "split_by": TEXT, "place": INT, "bin": TEXT,
        "pass_at": INT, "problems": INT, "baseline_score": REAL, "score": REAL, "delta": REAL, "se": REAL,
        "ci_low": REAL, "ci_high": REAL,
    },
    ("arm", "benchmark", "step", "split_by", "place", "pass_at"),
)  # fmt: skip
COVERAGE = Table(
    "coverage",
    {
        "level": TEXT, "arm": TEXT, "seed": INT, "benchmark": TEXT, "step": INT, "seeds": INT, "problems": INT,
        "solved": REAL, "against": TEXT, "gained": REAL, "lost": REAL, "placebo": TEXT, "placebo_gained": REAL,
        "placebo_lost": REAL, "gained_from_base": REAL, "lost_from_base": REAL, "solve_rate_histogram": pa.list_(INT),
    },
    ("level", "arm", "seed", "benchmark", "step"),
)  # fmt: skip
EXAMPLES = Table(
    "examples",
    {
        "benchmark": TEXT, "problem_id": TEXT, "picked": TEXT, "question": TEXT, "answer": TEXT, "arm": TEXT,
        "runs": INT, "samples": INT, "correct": INT, "seed": INT, "step": INT, "sample": INT, "status": TEXT,
        "completion": TEXT, "characters": INT, "reason": TEXT,
    },
    ("benchmark", "problem_id", "arm", "sample"),
)  # fmt: skip
DYNAMICS = Table(
    "dynamics",
    {
        "arm": TEXT, "seed": INT, "step": INT, "update_index": INT, "group_correct": INT, "rollouts": INT,
        "positive_rollouts": INT, "negative_rollouts": INT, "clipped_quadrant_1_share": REAL,
        "clipped_quadrant_2_share": REAL, "clipped_quadrant_3_share": REAL, "clipped_quadrant_4_share": REAL,
        "positive_tokens": INT, "negative_tokens": INT, "mean_abs_ratio_deviation": REAL,
        "mean_entropy": REAL, "mean_upper_width": REAL, "mean_completion_tokens": REAL, "truncated_share": REAL,
        "mean_reward": REAL, "flat_group_share": REAL, "starved_group_share": REAL, "saturated_group_share": REAL,
        "identical_rollout_share": REAL, "ratio_advantage_correlation": REAL,
    },
    ("arm", "seed", "step", "group_correct"),
)  # fmt: skip
POLICIES = Table(
    "policies",
    {
        "arm": TEXT, "seed": INT, "policy": TEXT, "own": FLAG, "group_correct": INT, "rollouts": INT, "tokens": INT,
        "positive_rollouts": INT, "negative_rollouts": INT, "positive_tokens": INT, "negative_tokens": INT,
        "clipped_quadrant_1_tokens": INT, "clipped_quadrant_2_tokens": INT, "clipped_quadrant_3_tokens": INT,
        "clipped_quadrant_4_tokens": INT, "mean_upper_width": REAL, "decisive_tokens": INT, "quadrant_1_tokens": INT,
        "quadrant_2_tokens": INT, "quadrant_3_tokens": INT, "quadrant_4_tokens": INT, "reason": TEXT,
    },
    ("arm", "seed", "policy", "group_correct"),
)  # fmt: skip
OBJECTIVES = Table(
    "objectives",
    {
        "arm": TEXT, "ratio": TEXT, "group_size": INT, "positive": FLAG, "group_correct": INT, "old_probability": REAL,
        "log_ratio": REAL, "lower_bound": REAL, "upper_bound": REAL, "gradient_weight": REAL, "reason": TEXT,
    },
    ("arm", "positive", "group_correct", "old_probability", "log_ratio"),
)  # fmt: skip
REACHABILITY = Table(
    "reachability",
    {
        "arm": TEXT, "check": TEXT, "verdict": TEXT, "value": REAL, "ci_low": REAL, "ci_high": REAL, "message": TEXT,
    },
    ("arm", "check"),
)  # fmt: skip
REWARDS = Table(
    "rewards",
    {
        "arm": TEXT, "seed": INT, "grader": TEXT, "rollouts": INT, "regraded": INT, "changed": INT,
        "changed_share": REAL, "to_correct": INT, "to_wrong": INT, "reward_version": INT, "code_reward_version": INT,
        "reason": TEXT,
    },
    ("arm", "seed"),
)  # fmt: skip
RUNS = Table(
    "runs",
    {
        "arm": TEXT, "seed": INT, "role": TEXT, "status": TEXT, "reason": TEXT, "steps": INT, "settings_digest": TEXT,
        "code_digest": TEXT, "inputs_digest": TEXT, "initial_weights": TEXT, "final_weights": TEXT,
        "frozen_weights_drift": FLAG, "reward_version": INT, "rollout_engine": TEXT, "sampling_engine": TEXT,
        "hardware": TEXT, "micro_batch": INT, "processes": INT, "train_problems": INT, "long_prompts": INT,
        "train_seconds": REAL, "sample_seconds": REAL,
    },
    ("arm", "seed"),
)  # fmt: skip
SIMULATION = Table(
    "simulation",
    {
        "part": TEXT, "problems": INT, "run_sd": REAL, "var_arm_problem": REAL, "distribution": TEXT, "delta": REAL,
        "looks": TEXT, "arms": INT, "estimand": TEXT, "method": TEXT, "quantity": TEXT, "value": REAL, "mc_se": REAL,
        "repetitions": INT, "expected": REAL, "target_low": REAL, "target_high": REAL, "met": FLAG,
    },
    ("part", "problems", "var_arm_problem", "distribution", "delta", "looks", "arms", "estimand", "method", "quantity"),
)  # fmt: skip
PLAN = Table("plan", {"recorded": TEXT, "commit": TEXT, "key": TEXT, "value": TEXT}, ("recorded", "key"))
TRAINING_BEGUN = "training_begun"  # key of the plan: how many runs had been begun when a run of the study started


@lru_cache(None)
def _wording() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def describe(table: Table, column: str) -> dict[str, str]:
    """Unit and meaning of a column: the table's own wording, else the one that all tables share."""
    wording = _wording()
    entry = wording.get(table.name, {}).get(column) or wording["columns"][column]
    return {"unit": entry[0], "meaning": entry[1]}


def schema(table: Table) -> pa.Schema:
    """The Arrow schema, each field with its unit and meaning as metadata."""
    return pa.schema([pa.field(n, t, metadata=describe(table, n)) for n, t in table.columns.items()])
