"""Tables of a finished study of any size, random but in the real schemas, for the tests of figures."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from workflow_scripts import tables
from workflow_scripts.stages.tabulate_objectives import tabulate

PASS_AT, STEPS, GROUP_SIZE, SAMPLES = (1, 8), (12, 24, 36, 48), 8, 8
POLICY = {"ratio": "sequence", "surrogate": "clipped", "bounds": "gapo", "eps_low": 3e-3}


def frame(table: tables.Table, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """As a stage reads it: nulls and types of a parquet file."""
    return pa.Table.from_pylist(rows, schema=tables.schema(table)).to_pandas()


class Made:
    """A study with these arms (the first is the baseline) and numbers of seeds; every method is a table."""

    def __init__(self, arms: list[str], seeds: int, benchmark: str = "word_problems_test", problems: int = 120) -> None:
        self.arms, self.seeds, self.benchmark, self.problems = arms, seeds, benchmark, problems
        self.random = np.random.default_rng(0)
        self.runs_of = [(arm, seed) for arm in arms for seed in range(seeds)]

    def around(self, value: float, spread: float = 0.02) -> float:
        """A number near the value."""
        return float(value + spread * self.random.standard_normal())

    def scores(self) -> list[dict[str, Any]]:
        shared = {"benchmark": self.benchmark, "metric": "pass@k", "problems": self.problems, "samples": SAMPLES}
        rows = []
        for k in PASS_AT:
            rows.append({**shared, "level": "arm", "arm": "base", "step": 0, "pass_at": k, "score": 0.35})
            for step in STEPS:
                for arm in self.arms:
                    row = {**shared, "arm": arm, "step": step, "pass_at": k}
                    found = [self.around(0.4 + step / 100) for _ in range(self.seeds)]
                    rows += [{**row, "level": "run", "seed": seed, "score": one} for seed, one in enumerate(found)]
                    rows.append({**row, "level": "arm", "score": sum(found) / len(found)})
        return rows

    def effects(self) -> list[dict[str, Any]]:
        known = self.seeds > 1
        rows = []
        for arm in self.arms[1:]:
            delta = self.around(0.0)
            rows.append({
                "arm": arm, "baseline": self.arms[0], "role": "comparison", "benchmark": self.benchmark, "step": 48,
                "metric": "pass@k", "pass_at": 1, "estimand": "benchmark", "delta": delta, "level": 0.95,
                "ci_low": delta - 0.03 if known else None, "ci_high": delta + 0.03 if known else None, "primary": True,
                "look": self.seeds, "planned_look": True, "seeds": self.seeds, "baseline_seeds": self.seeds,
                "margin": 0.05, "verdict": "inconclusive: underpowered" if known else "not assessable",
            })  # fmt: skip
        return rows

    def noise_floors(self) -> list[dict[str, Any]]:
        shared = {"benchmark": self.benchmark, "pass_at": 1}
        rows = [
            {**shared, "kind": "evaluation", "arm": "base", "step": 0, "runs": 3, "expected_sd": 0.007, "band": 0.02}
        ]
        for arm in self.arms if self.seeds > 1 else []:
            sd = abs(self.around(0.02, 0.005)) + 0.001
            rows.append({**shared, "kind": "training", "arm": arm, "step": 48, "runs": self.seeds, "sd": sd,
                         "sd_low": sd / 2, "sd_high": 3 * sd, "band": 2.8 * sd, "expected_sd": 0.007,
                         "eval_share": 0.14, "verdict": "only more seeds help"})  # fmt: skip
        return rows

    def power(self) -> list[dict[str, Any]]:
        if self.seeds < 2 or len(self.arms) < 2:
            return []
        return [
            {"seeds": n, "run_sd": 0.02, "run_sd_upper80": 0.024, "mde80_one": 0.1 / n, "mde80_family": 0.12 / n,
             "mde80_family_upper80": 0.15 / n, "resolves_margin": 0.12 / n <= 0.05, "seconds_per_run": 27.0,
             "extra_seconds": 27.0 * len(self.arms) * max(0, n - self.seeds)}
            for n in (3, 5, 8, 10, 20)
        ]  # fmt: skip

    def difficulty(self) -> list[dict[str, Any]]:
        rows = []
        for arm in self.arms[1:]:
            for split, bins in (("base_solve_rate", ("0", "(0, 0.5]", "(0.5, 1]")), ("difficulty", ("1", "2"))):
                for place, name in enumerate(bins):
                    delta = self.around(0.0)
                    rows.append({"arm": arm, "baseline": self.arms[0], "benchmark": self.benchmark, "step": 48,
                                 "split_by": split, "place": place, "bin": name, "pass_at": 1, "problems": 40,
                                 "delta": delta, "ci_low": delta - 0.05 if self.seeds > 1 else None,
                                 "ci_high": delta + 0.05 if self.seeds > 1 else None})  # fmt: skip
        return rows

    def counts(self) -> list[dict[str, Any]]:
        runs = [("base", 0, 0), *((arm, seed, 48) for arm, seed in self.runs_of)]
        return [
            {"arm": arm, "seed": seed, "step": step, "benchmark": self.benchmark, "problem_id": f"p{i}",
             "samples": SAMPLES, "correct": int(c)}
            for arm, seed, step in runs
            for i, c in enumerate(self.random.integers(0, SAMPLES + 1, self.problems))
        ]  # fmt: skip

    def coverage(self) -> list[dict[str, Any]]:
        return [
            {"level": "arm", "arm": arm, "benchmark": self.benchmark, "step": 0 if arm == "base" else 48,
             "seeds": self.seeds, "problems": self.problems,
             "solve_rate_histogram": self.random.integers(1, 90, SAMPLES + 1).tolist()}
            for arm in ("base", *self.arms)
        ]  # fmt: skip

    def objectives(self) -> pd.DataFrame:
        axes = {arm: {**POLICY, "eps_high_max": 4e-3 + 1e-3 * place} for place, arm in enumerate(self.arms)}
        made = tabulate(axes, dict.fromkeys(self.arms, GROUP_SIZE))
        return pa.Table.from_pandas(made, schema=tables.schema(tables.OBJECTIVES), preserve_index=False).to_pandas()

    def dynamics(self) -> list[dict[str, Any]]:
        rows = []
        for arm, seed in self.runs_of:
            for step in range(1, 49):
                shared = {"arm": arm, "seed": seed, "step": step, "update_index": (step - 1) % 4, "rollouts": 128}
                later = (step - 1) % 4 > 0
                rows.append({
                    **shared, "positive_rollouts": 40, "mean_abs_ratio_deviation": 0.002 * later,
                    "mean_entropy": abs(self.around(0.2)), "mean_completion_tokens": self.around(18.0, 1.0),
                    "truncated_share": 0.01, "ratio_advantage_correlation": self.around(0.5, 0.1) if later else None,
                })  # fmt: skip
                for c in range(GROUP_SIZE + 1):
                    mixed = 0 < c < GROUP_SIZE
                    rows.append({
                        **shared, "group_correct": c, "rollouts": 16, "positive_rollouts": 2 * c if mixed else 0,
                        "positive_tokens": 40 * c if mixed else 0,
                        "mean_abs_ratio_deviation": abs(self.around(0.002, 0.001)) * later,
                        "clipped_quadrant_1_share": float(self.random.random()) * later if mixed else None,
                    })  # fmt: skip
        return rows

    def policies(self) -> list[dict[str, Any]]:
        rows = []
        for arm, seed in self.runs_of:
            for policy in self.arms:
                counts = {f"quadrant_{n}_tokens": int(self.random.integers(1, 200)) for n in (1, 2, 3, 4)}
                own = policy == arm
                rows.append({"arm": arm, "seed": seed, "policy": policy, "own": own, "rollouts": 100, "tokens": 1000,
                             "positive_tokens": 400, "negative_tokens": 400, **counts,
                             "decisive_tokens": 0 if own else int(self.random.integers(0, 90))})  # fmt: skip
        return rows

    def runs(self) -> list[dict[str, Any]]:
        return [
            {"arm": arm, "seed": seed, "role": "comparison", "status": "done", "steps": 48,
             "train_seconds": self.around(30.0, 2.0), "sample_seconds": self.around(9.0, 0.5)}
            for arm, seed in self.runs_of
        ]  # fmt: skip

    def tables(self) -> dict[str, pd.DataFrame]:
        """All that figures are drawn from."""
        names = (
            "scores", "effects", "noise_floors", "power", "difficulty", "counts", "coverage", "dynamics", "policies",
            "runs",
        )  # fmt: skip
        found = {name: frame(getattr(tables, name.upper()), getattr(self, name)()) for name in names}
        return found | {"objectives": self.objectives()}
