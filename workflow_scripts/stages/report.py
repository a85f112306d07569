"""One self-contained page: what must be known first, the verdicts, what would change them, checks, provenance; and its
answer and tables as markdown."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from markupsafe import Markup

from workflow_scripts import tables
from workflow_scripts.figures import words
from workflow_scripts.stages import _deviations, _findings, _markdown
from workflow_scripts.stages._command import Job, StageError, run

LIBRARIES = ("jinja2",)
TEMPLATE = "report.html.jinja"
TABLES = {
    table.name: table
    for table in (
        tables.EFFECTS, tables.SCORES, tables.NOISE_FLOORS, tables.POWER, tables.DIFFICULTY, tables.COVERAGE,
        tables.DYNAMICS, tables.POLICIES, tables.REACHABILITY, tables.REWARDS, tables.RUNS,
    )
}  # fmt: skip

Row = dict[str, Any]


def _figure(path: str, name: str) -> Markup:
    """The SVG to put into the page: without prolog, its ids made unique."""
    text = Path(path).read_text(encoding="utf-8")
    start = text.find("<svg")
    if start < 0:
        raise StageError(f"{path}: not an SVG figure; delete it and run again")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text[start:])
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    return Markup(re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text))


def _last(rows: list[Row], arm: str) -> int:
    return max((row["step"] for row in rows if row["arm"] == arm), default=0)


def score_tables(scores: list[Row], arms: list[str]) -> list[Row]:
    """One table per benchmark: base and arms at their last evaluated step, a column per pass@k."""
    means = [row for row in scores if (row["level"], row["metric"]) == ("arm", "pass@k")]
    found = []
    for benchmark in sorted({row["benchmark"] for row in means}):
        here = [row for row in means if row["benchmark"] == benchmark]
        pass_at = sorted({row["pass_at"] for row in here})
        lines = []
        for arm in ["base", *arms]:
            step = _last(here, arm)
            cells = {row["pass_at"]: row for row in here if row["arm"] == arm and row["step"] == step}
            if cells:
                row = cells[min(cells)]  # lengths and truncated shares are the same for every k
                lines.append({"arm": arm, "step": step, "cells": [cells.get(k) for k in pass_at], "first": row})
        found.append({"benchmark": benchmark, "pass_at": pass_at, "lines": lines})
    return found


def training_table(dynamics: list[Row], arms: list[str]) -> list[Row]:
    """Per arm, means over runs and updates: realised width of the upper bound, drift, entropy, length, groups."""
    names = (
        "mean_upper_width", "mean_abs_ratio_deviation", "mean_entropy", "mean_completion_tokens", "mean_reward",
        "starved_group_share", "saturated_group_share", "identical_rollout_share",
    )  # fmt: skip
    found = []
    for arm in arms:
        rows = [row for row in dynamics if row["arm"] == arm and row["group_correct"] is None]
        line: Row = {"arm": arm}
        for name in names:
            values = [row[name] for row in rows if _findings.known(row[name])]
            line[name] = sum(values) / len(values) if values else None
        if rows:
            found.append(line)
    return found


def policy_table(policies: list[Row], arms: list[str]) -> list[Row]:
    """Per arm and clip policy asked about, pooled over runs: shares of tokens clipped, decisive and by quadrant."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in policies:
        if row["group_correct"] is None:
            groups[row["arm"], row["policy"]].append(row)
    quadrants = {f"quadrant_{n}_tokens": "tokens" for n in (1, 2, 3, 4)}
    shares = {"clipped_upper_tokens": "positive_tokens", "clipped_lower_tokens": "negative_tokens"}
    shares |= {"decisive_tokens": "tokens", **quadrants}

    def place(item: tuple[tuple[str, str], Any]) -> tuple[int, bool, int, str]:
        arm, policy = item[0]
        return _place(arms, arm), policy not in arms, _place(arms, policy), policy

    found = []
    for (arm, policy), rows in sorted(groups.items(), key=place):
        line: Row = {"arm": arm, "policy": policy, "own": any(row["own"] for row in rows)}
        line["reason"] = next((row["reason"] for row in rows if row["reason"]), None)
        for part, whole in shares.items():
            total = sum(row[whole] for row in rows)
            known = total and all(row[part] is not None for row in rows)
            line[part] = sum(row[part] for row in rows) / total if known else None
        widths = [row["mean_upper_width"] for row in rows if row["mean_upper_width"] is not None]
        line["width"] = sum(widths) / len(widths) if widths else None
        found.append(line)
    return found


def coverage_table(coverage: list[Row], arms: list[str]) -> list[Row]:
    """The rows of the arms at their last step, in the study's order by benchmark."""
    last = [row for row in coverage if row["level"] == "arm" and row["step"] == _last(coverage, row["arm"])]
    return sorted(last, key=lambda row: (row["benchmark"], _place(arms, row["arm"])))


def last_effects(effects: list[Row], arms: list[str]) -> list[Row]:
    """Every arm at its last step, the primary rows first."""
    last = [row for row in effects if row["step"] == _last(effects, row["arm"]) or row["primary"]]

    def place(row: Row) -> tuple[Any, ...]:
        return not row["primary"], row["benchmark"], row["pass_at"], row["estimand"], _place(arms, row["arm"])

    return sorted(last, key=place)


def endpoint_floors(noise_floors: list[Row], primary: list[Row]) -> list[Row]:
    """The noise floors of the primary endpoint: of each arm at its last step there is."""
    asked = {(row["benchmark"], row["pass_at"]) for row in primary}
    here = [row for row in noise_floors if (row["benchmark"], row["pass_at"]) in asked]
    kinds = ("evaluation", "training", "placebo", "sensitivity")
    last = [row for row in here if row["step"] == _last(here, row["arm"])]
    return sorted(last, key=lambda row: (kinds.index(row["kind"]), row["arm"]))


def _place(arms: list[str], arm: str) -> int:
    return arms.index(arm) if arm in arms else -1


def excluded_counts(path: str) -> list[Row]:
    """Problems left out of the scores by benchmark and reason."""
    counts = tables.read(path, tables.COUNTS, ["benchmark", "problem_id", "excluded"])
    left_out = counts.filter(pc.is_valid(counts["excluded"])).group_by(["benchmark", "excluded"])
    rows = left_out.aggregate([("problem_id", "count_distinct")]).to_pylist()
    return sorted(rows, key=lambda row: (row["benchmark"], row["excluded"]))


def _provenance(job: Job) -> list[Row]:
    """Per table: the digests and library versions of its footer."""
    rows = []
    for name in (*TABLES, "counts"):
        made = tables.provenance(job.input(name))
        versions = ", ".join(f"{k} {v}" for k, v in sorted(made.get("libraries", {}).items()))
        rows.append({"table": name, "code": made.get("code"), "content": made.get("content"), "libraries": versions})
    return rows


def _environment() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=words.percent, points=words.points, span=words.span, number=words.number,
    )  # fmt: skip
    environment.tests["known"] = _findings.known
    return environment


def context(job: Job) -> dict[str, Any]:
    """Everything the template shows."""
    settings = job.settings
    found = {name: tables.read(job.input(name), table).to_pylist() for name, table in TABLES.items()}
    arms = settings["arms"]
    contamination = [
        row
        for path in job.inputs.get("contamination", [])
        for row in tables.read(path, tables.CONTAMINATION).to_pylist()
    ]
    audits = [tables.read(path, tables.GOLD_AUDIT).to_pylist() for path in job.inputs.get("gold_audit", [])]
    benchmarks = settings["benchmarks"]
    endpoint = ("macro" if len(benchmarks) > 1 else benchmarks[0], settings["endpoint"]["pass_at"])
    checks = [
        *_findings.control_checks(found["effects"]),
        *_findings.evaluation_checks(found["scores"], found["noise_floors"], endpoint),
        *_findings.contamination_checks(contamination),
        *_findings.audit_checks(audits),
        *_findings.prompt_checks(found["runs"], settings.get("max_prompt")),
        *_findings.engine_checks(found["runs"]),
        *_findings.reward_checks(found["rewards"]),
    ]
    by_check = _findings.by_check(found["reachability"], checks, arms)
    plan = _deviations.judge(_deviations.read(job.root / "plan.parquet"))  # no input: it is written while jobs wait
    primary = _findings.primary(found["effects"])
    sentences = [
        {**primary[arm], "sentence": _findings.verdict_sentence(primary[arm])} for arm in arms if arm in primary
    ]
    comparisons = [row for row in sentences if row["role"] == "comparison"]
    controls = [row for row in sentences if row["role"] != "comparison"]
    figures = {n.removeprefix("figure_"): _figure(p[0], n) for n, p in job.inputs.items() if n.startswith("figure_")}
    return {
        **settings,
        "warnings": _findings.warnings(
            found["effects"], found["runs"], found["reachability"], checks, plan.warnings if plan else ()
        ),
        "plan": plan,
        "comparisons": comparisons,
        "controls": controls,
        "endpoint_note": _findings.endpoint_note(comparisons, controls, settings["baseline"], len(settings["looks"])),
        "figures": figures,
        "states": {
            state: sum(row["verdict"] == state for rows in by_check.values() for row in rows)
            for state in ("pass", "warn", "fail")
        },
        "power": found["power"],
        "last_effects": last_effects(found["effects"], arms),
        "endpoint_floors": endpoint_floors(found["noise_floors"], sentences),
        "checks": by_check,
        "score_tables": score_tables(found["scores"], arms),
        "policy_rows": policy_table(found["policies"], arms),
        "training_rows": training_table(found["dynamics"], arms),
        "coverage_rows": coverage_table(found["coverage"], arms),
        "difficulty_rows": found["difficulty"],
        "excluded": excluded_counts(job.input("counts")),
        "run_rows": found["runs"],
        "provenance": _provenance(job),
        "code": job.code,
    }


def main(job: Job) -> None:
    shown = context(job)
    page = _environment().get_template(TEMPLATE).render(shown)
    Path(job.output("report")).write_text(page, encoding="utf-8")
    Path(job.output("summary")).write_text(_markdown.summary(shown), encoding="utf-8")


if __name__ == "__main__":
    run(main, LIBRARIES)
