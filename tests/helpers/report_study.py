"""A small finished study written as tables, for the tests of figures and report."""

from pathlib import Path
from typing import Any

from workflow_scripts import tables
from workflow_scripts.job import Job

BENCHMARK = "word_problems_test"
ROLES = {
    "gspo_asym": "comparison", "gapo": "comparison", "gapo_matched": "comparison", "placebo": "placebo",
    "slow": "sensitivity",
}  # fmt: skip
ANALYSIS: dict[str, Any] = {
    "study": "embedded",
    "question": "Does a clip that follows rarity beat a fixed one?",
    "baseline": "gspo_asym",
    "arms": list(ROLES),
    "roles": ROLES,
    "runs": {arm: [0, 1, 2] for arm in ROLES},
    "benchmarks": [BENCHMARK],
    "pass_at": [1, 8],
    "endpoint": {"pass_at": 1, "checkpoint": "last"},
    "margin": 0.05,
    "alpha": 0.05,
    "looks": [3],
    "allow_missing": False,
}
NO_DIFFERENCE = "no difference beyond the margin"
ENDS = {"gspo_asym": 0.63, "gapo": 0.626, "gapo_matched": 0.642, "placebo": 0.633, "slow": 0.536}


def effect(arm: str, delta: float | None, low: float | None, high: float | None, verdict: str, **more: Any) -> dict:
    """A primary row of the effects."""
    return {
        "arm": arm, "baseline": "gspo_asym", "role": ROLES.get(arm, "comparison"), "benchmark": BENCHMARK, "step": 48,
        "metric": "pass@k", "pass_at": 1, "estimand": "benchmark", "delta": delta, "ci_low": low, "ci_high": high,
        "level": 0.975, "primary": True, "seeds": 3, "baseline_seeds": 3,
        "look": 3, "planned_look": True, "margin": 0.05, "verdict": verdict, **more,
    }  # fmt: skip


EFFECTS = [
    effect("gapo", -0.004, -0.021, 0.013, NO_DIFFERENCE),
    effect("gapo_matched", 0.012, -0.031, 0.053, "inconclusive: underpowered", reason="needs 9 seeds per arm"),
    effect("placebo", 0.003, -0.018, 0.023, NO_DIFFERENCE),
    effect("slow", -0.094, -0.121, -0.07, "worse"),
]


def scores() -> list[dict]:
    """Base and all arms at updates 24 and 48, three seeds each."""
    rows = []
    beside = {"problems": 400, "samples": 8, "truncated_share": 0.01, "unparsed_share": 0.004,
              "mean_completion_tokens": 18.0, "benchmark": BENCHMARK, "metric": "pass@k"}  # fmt: skip
    for k, base in ((1, 0.3), (8, 0.78)):
        rows.append(
            {"level": "arm", "arm": "base", "step": 0, "pass_at": k, "score": base, "se": 0.003, "seeds": 3, **beside}
        )
        for arm, end in ENDS.items():
            top = end if k == 1 else end + 0.3
            for step, part in ((24, 0.7), (48, 1.0)):
                mean = base + part * (top - base)
                shared = {"arm": arm, "step": step, "pass_at": k, **beside}
                rows.append({"level": "arm", "score": mean, "se": 0.01, "seeds": 3, **shared})
                rows += [
                    {"level": "run", "seed": seed, "score": mean + (seed - 1) * 0.02, "seeds": 1, **shared}
                    for seed in range(3)
                ]
    return rows


def noise_floors() -> list[dict]:
    """Evaluation and training floors of the primary endpoint."""
    shared = {"benchmark": BENCHMARK, "pass_at": 1}
    return [
        {"kind": "evaluation", "arm": "base", "step": 0, "runs": 3, "sd": 0.006, "sd_low": 0.003, "sd_high": 0.038,
         "expected_sd": 0.007, "band": 0.02, "verdict": "as expected", **shared},
        *(
            {"kind": "training", "arm": arm, "step": step, "runs": 3, "sd": 0.018 + 0.002 * i, "sd_low": 0.01,
             "sd_high": 0.05 + 0.01 * i, "band": 0.078, "verdict": "only more seeds help", **shared}
            for i, arm in enumerate(ROLES) for step in (24, 48)
        ),
    ]  # fmt: skip


def reachability() -> list[dict]:
    """All checks passed by two arms."""
    values = {"noise_control": 0.2, "clip_live": 0.12, "flat_groups": 0.21, "truncation": 0.01}
    rows = [
        {"arm": arm, "check": check, "verdict": "pass", "value": value, "message": f"{100 * value:.1f} % seen"}
        for arm in ("gspo_asym", "gapo")
        for check, value in values.items()
    ]
    decisive = {
        "arm": "gapo",
        "check": "decisive_tokens",
        "verdict": "pass",
        "value": 0.03,
        "message": "3.0 % of tokens",
    }
    return [*rows, decisive]


def dynamics() -> list[dict]:
    """One update at index 1 of each run; the clip of `gapo` follows the count, that of the others does not."""
    rows = []
    for arm in ROLES:
        for seed in range(3):
            shared = {"arm": arm, "seed": seed, "step": 2, "update_index": 1, "flat_group_share": 0.2}
            rows.append({**shared, "rollouts": 128, "positive_rollouts": 40, "mean_upper_width": 0.0043,
                         "mean_abs_ratio_deviation": 0.002, "mean_entropy": 0.4, "mean_completion_tokens": 18.0,
                         "mean_reward": 0.4, "ratio_advantage_correlation": 0.5,
                         "identical_rollout_share": 0.31})  # fmt: skip
            for correct in range(9):
                share = 0.2 - 0.02 * correct if arm == "gapo" else 0.12 + 0.005 * seed
                rows.append({**shared, "group_correct": correct, "rollouts": 16,
                             "positive_rollouts": 2 * correct if correct < 8 else 0,
                             "positive_tokens": 40 * correct if correct < 8 else 0,
                             "mean_abs_ratio_deviation": 0.002,
                             "clipped_quadrant_1_share": share if 0 < correct < 8 else None})  # fmt: skip
    return rows


def policies() -> list[dict]:
    """What two clip policies and one that cannot be asked would have done in gapo's runs, by seed; all and c = 1."""
    rows = []
    for seed in range(3):
        shared = {"arm": "gapo", "seed": seed, "rollouts": 100, "tokens": 1000 * (1 + seed), "positive_rollouts": 40,
                  "negative_rollouts": 40, "positive_tokens": 400 * (1 + seed), "negative_tokens": 500}  # fmt: skip
        for correct in (None, 1):
            counts = {
                "group_correct": correct, "clipped_quadrant_1_tokens": 60, "clipped_quadrant_2_tokens": 0,
                "clipped_quadrant_3_tokens": 25, "clipped_quadrant_4_tokens": 0,
                "quadrant_1_tokens": 60, "quadrant_2_tokens": 6, "quadrant_3_tokens": 25,
                "quadrant_4_tokens": 3,
            }  # fmt: skip
            own = {"policy": "gapo", "own": True, "mean_upper_width": 0.004, "decisive_tokens": 0}
            other = {"policy": "wide", "own": False, "mean_upper_width": 0.008, "decisive_tokens": 30}
            rows += [shared | counts | other, shared | counts | own]
        dcpo = {"policy": "dcpo", "own": False, "group_correct": None, "reason": "dcpo follows each token"}
        rows.append(shared | dcpo)
    return rows


def runs() -> list[dict]:
    """All runs done."""
    return [
        {"arm": arm, "seed": seed, "role": role, "status": "done", "steps": 48, "settings_digest": "aa" * 8,
         "code_digest": "bb" * 8, "inputs_digest": "cc" * 8, "initial_weights": "dd" * 8, "train_seconds": 31.5}
        for arm, role in ROLES.items() for seed in range(3)
    ]  # fmt: skip


def rewards() -> list[dict]:
    """All rollouts graded again, no reward changed."""
    return [
        {"arm": arm, "seed": seed, "grader": "exact_answer", "rollouts": 400, "regraded": 400, "changed": 0,
         "changed_share": 0.0, "to_correct": 0, "to_wrong": 0, "reward_version": 1, "code_reward_version": 1}
        for arm in ROLES for seed in range(3)
    ]  # fmt: skip


def examples() -> list[dict]:
    """Two problems: one that gapo gained, with a text of each arm, and one at random whose texts were not kept."""
    rows = []
    for problem, picked in (("p1", "difference"), ("p2", "random")):
        for arm in ("base", *ROLES):
            row = {"benchmark": BENCHMARK, "problem_id": problem, "picked": picked, "question": f"What is {problem}?",
                   "answer": "4", "arm": arm, "runs": 3, "samples": 24,
                   "correct": 20 if arm == "gapo" else 12}  # fmt: skip
            if problem == "p2":
                rows.append({**row, "reason": "no completions on the disk"})
                continue
            for sample, status in ((0, "correct"), (3, "unparsed")):
                said = f"{arm} says {sample}"
                rows.append({**row, "seed": 0, "step": 48, "sample": sample, "status": status, "completion": said,
                             "characters": len(said)})  # fmt: skip
    return rows


def contents() -> dict[str, list[dict]]:
    """Rows of every table the report reads."""
    planted = [
        {"benchmark": BENCHMARK, "kind": "control_spacing", "holdout_problem_id": f"h{i}", "other_problem_id": f"o{i}",
         "removed": False, "caught": True}
        for i in range(400)
    ]  # fmt: skip
    audit = [
        {"benchmark": BENCHMARK, "problem_id": f"p{i}", "row": i, "status": "correct", "dropped": False}
        for i in range(400)
    ]
    return {
        "effects": EFFECTS, "scores": scores(), "noise_floors": noise_floors(), "reachability": reachability(),
        "dynamics": dynamics(), "policies": policies(), "rewards": rewards(), "runs": runs(), "contamination": planted,
        "gold_audit": audit,
        "power": [
            {"seeds": n, "run_sd": 0.021, "run_sd_upper80": 0.028, "run_sd_of": "gapo and gspo_asym",
             "mde80_one": 0.021 * f, "mde80_family": 0.025 * f, "mde80_family_upper80": 0.03 * f,
             "resolves_margin": 0.025 * f <= 0.05, "seconds_per_run": 45.0,
             "extra_seconds": 45.0 * 5 * max(n - 3, 0)}
            for n, f in ((3, 3.07), (5, 2.02), (8, 1.51), (10, 1.32), (20, 0.91))
        ],
        "difficulty": [
            {"arm": "gapo", "baseline": "gspo_asym", "benchmark": BENCHMARK, "step": 48, "split_by": "difficulty",
             "place": 0, "bin": "1", "pass_at": 1, "problems": 130, "baseline_score": 0.8, "score": 0.79,
             "delta": -0.01}
        ],
        "coverage": [
            {"level": "arm", "arm": arm, "seeds": 3, "benchmark": BENCHMARK, "step": 48, "problems": 400,
             "solved": 370.3, "gained": 12.3, "lost": 11.7, "against": "gspo_asym", "placebo": "placebo",
             "placebo_gained": 12, "placebo_lost": 13, "solve_rate_histogram": [30, 370]}
            for arm in ROLES
        ],
        "examples": examples(),
        "counts": [
            {"arm": "gapo", "seed": 0, "step": 48, "benchmark": BENCHMARK, "problem_id": f"p{i}", "samples": 8,
             "correct": 4, "truncated": 0, "unparsed": 0, "timeout": 0, "completion_tokens": 150,
             "excluded": "gold" if i == 0 else None}
            for i in range(4)
        ],
    }  # fmt: skip


def write(root: Path, rows: dict[str, list[dict]], settings: dict[str, Any], figures: dict[str, str]) -> Job:
    """Write the tables and figures below root; returns the report's job."""
    found = {table.name: table for table in vars(tables).values() if isinstance(table, tables.Table)}
    inputs = {}
    for name, content in rows.items():
        path = root / "tables" / f"{name}.parquet"
        tables.write(path, found[name], content, {"code": "0123456789abcdef", "libraries": {"scipy": "1.17"}})
        inputs[name] = [str(path)]
    for name, svg in figures.items():
        path = root / "figures" / f"{name}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(svg, encoding="utf-8")
        inputs.setdefault("figures", []).append(str(path))
    outputs = {"report": [str(root / "report.html")], "summary": [str(root / "summary.md")]}
    return Job(settings, {}, "fedcba9876543210", root, inputs, outputs, ("jinja2",))
