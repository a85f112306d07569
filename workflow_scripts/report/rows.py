"""What the page and its summary show of each table: which rows, in which order, and what is pooled."""

from collections import Counter, defaultdict
from typing import Any

import pyarrow.compute as pc

from workflow_scripts import tables
from workflow_scripts.report.findings import known
from workflow_scripts.statistics.effects import Verdict

Row = dict[str, Any]

PAIRS = 10  # contaminated pairs shown of each kind and benchmark
LONGEST = 300  # characters of a problem beside another
KINDS = ("exact", "ngram", "near", "holdout_duplicate", "partial", "template_twin")  # gravest first


def last_step(rows: list[Row], arm: str) -> int:
    """The last step of an arm among the rows; 0 without any."""
    return max((row["step"] for row in rows if row["arm"] == arm), default=0)


def place(arms: list[str], arm: str) -> int:
    """Where an arm stands in the study; -1 for any other."""
    return arms.index(arm) if arm in arms else -1


def score_tables(scores: list[Row], arms: list[str]) -> list[Row]:
    """One table per benchmark: base and arms at their last evaluated step, a column per pass@k."""
    means = [row for row in scores if (row["level"], row["metric"]) == ("arm", "pass@k")]
    found = []
    for benchmark in sorted({row["benchmark"] for row in means}):
        here = [row for row in means if row["benchmark"] == benchmark]
        pass_at = sorted({row["pass_at"] for row in here})
        lines = []
        for arm in ["base", *arms]:
            step = last_step(here, arm)
            cells = {row["pass_at"]: row for row in here if row["arm"] == arm and row["step"] == step}
            if cells:
                row = cells[min(cells)]  # lengths and truncated shares are the same for every k
                lines.append({"arm": arm, "step": step, "cells": [cells.get(k) for k in pass_at], "first": row})
        found.append({"benchmark": benchmark, "pass_at": pass_at, "lines": lines})
    return found


def run_scores(scores: list[Row], arms: list[str]) -> list[Row]:
    """A row per run and benchmark at the run's last step: score by pass@k, beside what was cut off."""
    last: dict[tuple[str, int, str], int] = {}
    runs = [row for row in scores if (row["level"], row["metric"]) == ("run", "pass@k") and row["benchmark"] != "macro"]
    for row in runs:
        key = row["arm"], row["seed"], row["benchmark"]
        last[key] = max(row["step"], last.get(key, 0))
    found: dict[tuple[str, int, str], Row] = {}
    for row in runs:
        key = row["arm"], row["seed"], row["benchmark"]
        if row["step"] == last[key]:
            line = found.setdefault(key, {**row, "scores": {}})
            line["scores"][row["pass_at"]] = row["score"]
    return sorted(found.values(), key=lambda row: (row["benchmark"], place(arms, row["arm"]), row["seed"] or 0))


def training_table(dynamics: list[Row], arms: list[str]) -> list[Row]:
    """Per arm, means over runs and updates: realised width of the upper bound, drift, entropy, length, groups."""
    names = (
        "mean_upper_width", "mean_abs_ratio_deviation", "mean_entropy", "mean_completion_tokens", "mean_reward",
        "starved_group_share", "saturated_group_share", "identical_rollout_share",
    )  # fmt: skip
    by_arm: dict[str, list[Row]] = defaultdict(list)
    for row in dynamics:
        if row["group_correct"] is None:
            by_arm[row["arm"]].append(row)
    found = []
    for arm in arms:
        line: Row = {"arm": arm}
        for name in names:
            values = [row[name] for row in by_arm[arm] if known(row[name])]
            line[name] = sum(values) / len(values) if values else None
        if by_arm[arm]:
            found.append(line)
    return found


def policy_table(policies: list[Row], arms: list[str]) -> list[Row]:
    """Per arm and clip policy asked about, pooled over runs: shares of tokens clipped, decisive and by quadrant."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in policies:
        if row["group_correct"] is None:
            groups[row["arm"], row["policy"]].append(row)
    quadrants = {f"quadrant_{n}_tokens": "tokens" for n in (1, 2, 3, 4)}
    clipped = {1: "positive_tokens", 2: "positive_tokens", 3: "negative_tokens", 4: "negative_tokens"}
    shares = {f"clipped_quadrant_{n}_tokens": whole for n, whole in clipped.items()}
    shares |= {"decisive_tokens": "tokens", **quadrants}

    def order(item: tuple[tuple[str, str], Any]) -> tuple[int, bool, int, str]:
        arm, policy = item[0]
        return place(arms, arm), policy not in arms, place(arms, policy), policy

    found = []
    for (arm, policy), rows in sorted(groups.items(), key=order):
        line: Row = {"arm": arm, "policy": policy, "own": any(row["own"] for row in rows)}
        line["reason"] = next((row["reason"] for row in rows if row["reason"]), None)
        for part, whole in shares.items():
            total = sum(row[whole] for row in rows)
            counted = total and all(row[part] is not None for row in rows)
            line[part] = sum(row[part] for row in rows) / total if counted else None
        widths = [row["mean_upper_width"] for row in rows if row["mean_upper_width"] is not None]
        line["width"] = sum(widths) / len(widths) if widths else None
        found.append(line)
    return found


def coverage_table(coverage: list[Row], arms: list[str]) -> list[Row]:
    """The rows of the arms at their last step, in the study's order by benchmark."""
    last = [row for row in coverage if row["level"] == "arm" and row["step"] == last_step(coverage, row["arm"])]
    return sorted(last, key=lambda row: (row["benchmark"], place(arms, row["arm"])))


def last_effects(effects: list[Row], arms: list[str]) -> list[Row]:
    """Every arm at its last step, the primary rows first."""
    ends = {arm: last_step(effects, arm) for arm in {row["arm"] for row in effects}}
    last = [row for row in effects if row["step"] == ends[row["arm"]] or row["primary"]]

    def order(row: Row) -> tuple[Any, ...]:
        return not row["primary"], row["benchmark"], row["pass_at"], row["estimand"], place(arms, row["arm"])

    return sorted(last, key=order)


def endpoint_floors(noise_floors: list[Row], primary: list[Row]) -> list[Row]:
    """The noise floors of the primary endpoint: of each arm at its last step there is."""
    asked = {(row["benchmark"], row["pass_at"]) for row in primary}
    here = [row for row in noise_floors if (row["benchmark"], row["pass_at"]) in asked]
    kinds = ("evaluation", "training", "placebo", "sensitivity")
    last = [row for row in here if row["step"] == last_step(here, row["arm"])]
    return sorted(last, key=lambda row: (kinds.index(row["kind"]), row["arm"]))


def excluded_counts(path: str) -> list[Row]:
    """Problems left out of the scores by benchmark and reason."""
    counts = tables.read(path, tables.COUNTS, ["benchmark", "problem_id", "excluded"], coded=True)
    left_out = counts.filter(pc.is_valid(counts["excluded"])).group_by(["benchmark", "excluded"])
    rows = left_out.aggregate([("problem_id", "count_distinct")]).to_pylist()
    return sorted(rows, key=lambda row: (row["benchmark"], row["excluded"]))


def similar_pairs(contamination: list[Row]) -> list[Row]:
    """The pairs of problems most alike, of each benchmark and kind so many; planted ones left out. Each with `found`,
    how many there are of its kind."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in contamination:
        if row["caught"] is None:
            groups[row["benchmark"], row["kind"]].append(row)
    counts = Counter({key: len(rows) for key, rows in groups.items()})

    def order(key: tuple[str, str]) -> tuple[str, int]:
        return key[0], KINDS.index(key[1]) if key[1] in KINDS else len(KINDS)

    def alike(row: Row) -> tuple[Any, ...]:
        return -(row["similarity"] or 0.0), -(row["coverage"] or 0.0), row["holdout_problem_id"]

    return [
        {**row, "found": counts[key]} | {name: short(row[name]) for name in ("holdout_question", "other_question")}
        for key in sorted(groups, key=order)
        for row in sorted(groups[key], key=alike)[:PAIRS]
    ]


def short(text: str | None, most: int = LONGEST) -> str:
    """The text in one line, cut."""
    line = " ".join((text or "").split())
    return line if len(line) <= most else f"{line[:most]}…"


def costs(runs: list[Row]) -> Row:
    """Machine time of all jobs that were timed here: seconds of training and of sampling, and of how many runs."""
    train = [row["train_seconds"] for row in runs if known(row["train_seconds"])]
    sample = [row["sample_seconds"] for row in runs if known(row["sample_seconds"])]
    return {
        "runs": len(runs), "done": sum(row["status"] == "done" for row in runs), "timed": len(train),
        "train": sum(train), "sample": sum(sample),
    }  # fmt: skip


def open_questions(primary: list[Row], seconds: float | None) -> list[Row]:
    """What each comparison without a verdict needs: seeds of the arm, and the machine time with the baseline's; where
    seeds do not help or there is no interval yet, why.

    primary: the primary rows of the comparisons. seconds: of one run, None where it was not measured.
    """
    found = []
    for row in primary:
        why = f"no number of seeds helps: {row['void']}" if row.get("void") else None
        if row["verdict"] == Verdict.NOT_ASSESSABLE and not why:
            why = row["reason"]
        if not why and not Verdict(row["verdict"]).inconclusive:
            continue
        line = {"arm": row["arm"], "have": row["seeds"], "needed": row["seeds_needed"], "seconds": None, "why": why}
        if not why and known(row["seeds_needed"]) and seconds is not None:
            lacking = max(0, row["seeds_needed"] - row["seeds"]) + max(0, row["seeds_needed"] - row["baseline_seeds"])
            line["seconds"] = seconds * lacking
        found.append(line)
    return found


def libraries(provenance: list[dict[str, str]]) -> str:
    """All versions named in the footers of tables, each once."""
    versions = {f"{name} {version}" for made in provenance for name, version in made.items()}
    return ", ".join(sorted(versions))


def engines(runs: list[Row]) -> list[tuple[str, str]]:
    """What computed and drew, and how much at once, as far as the runs tell: pairs of a heading and all there was."""
    columns = {"Trained on": "hardware", "Rollouts by": "rollout_engine", "Completions by": "sampling_engine",
               "Rollouts at once": "micro_batch", "Processes of a training": "processes"}  # fmt: skip
    found = {title: sorted({str(row[name]) for row in runs if known(row[name])}) for title, name in columns.items()}
    return [(title, "; ".join(values)) for title, values in found.items() if values]
