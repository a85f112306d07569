"""Everything that the page and the summary show, from the tables of the study."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from workflow_scripts import tables
from workflow_scripts.analysis import examples
from workflow_scripts.figures import catalogue
from workflow_scripts.job import Job
from workflow_scripts.report import compared, deviations, findings, grids, page, rows, warnings
from workflow_scripts.report.findings import known

TABLES = {
    table.name: table
    for table in (
        tables.EFFECTS, tables.SCORES, tables.NOISE_FLOORS, tables.POWER, tables.DIFFICULTY, tables.COVERAGE,
        tables.DYNAMICS, tables.POLICIES, tables.REACHABILITY, tables.REWARDS, tables.RUNS, tables.EXAMPLES,
    )
}  # fmt: skip
FIRST, OF_POWER = (
    "effects",
    ("seeds_needed",),
)  # figures that stand beside the verdicts and beside what would change them

Row = dict[str, Any]


def _read(path: str, table: tables.Table) -> list[Row]:
    """The rows of a table; without those by the number of correct rollouts, millions in a large study."""
    data = tables.read(path, table)
    if "group_correct" in table.columns:
        data = data.filter(pc.is_null(data["group_correct"]))
    return data.to_pylist()


def _figures(job: Job) -> dict[str, Row]:
    """name -> what the page shows of each figure that the job was given, in the catalogue's order."""
    captions = job.settings.get("captions", {})
    paths = {Path(path).stem: path for path in job.inputs.get("figures", [])}
    return {
        figure.name: {
            "name": figure.name, "title": figure.title, "section": figure.section, "tables": figure.tables,
            "caption": captions.get(figure.name, ""),
            "svg": page.figure(paths[figure.name], f"figure_{figure.name}"),
        }
        for figure in catalogue.FIGURES
        if figure.name in paths
    }  # fmt: skip


def _sections(figures: dict[str, Row]) -> list[Row]:
    """The figures that have no place of their own, by section."""
    rest = [figure for name, figure in figures.items() if name not in (FIRST, *OF_POWER)]
    found = [{"title": title, "figures": [f for f in rest if f["section"] == title]} for title in catalogue.SECTIONS]
    return [section for section in found if section["figures"]]


def _provenance(job: Job) -> list[Row]:
    """Per table: the digests and library versions of its footer."""
    found = []
    for name in (*TABLES, "counts"):
        made = tables.provenance(job.input(name))
        versions = ", ".join(f"{k} {v}" for k, v in sorted(made.get("libraries", {}).items()))
        found.append({"table": name, "code": made.get("code"), "content": made.get("content"), "libraries": versions})
    return found


def _libraries(job: Job, runs: list[Row]) -> str:
    """Versions of all libraries on record: of the tables, and of what trained and sampled the runs that are there."""
    made = [Path(job.input(name)) for name in (*TABLES, "counts")]
    for row in runs:
        made.append(job.root / "runs" / row["arm"] / f"seed-{row['seed']}" / "checkpoints.parquet")
        evals = job.root / "evals" / row["arm"] / f"seed-{row['seed']}"
        made += [evals / benchmark / "completions.parquet" for benchmark in job.settings["benchmarks"]]
    return rows.libraries([tables.provenance(path).get("libraries", {}) for path in made if path.is_file()])


def example_data(picked: list[Row], arms: list[str], baseline: str) -> Row:
    """What the script of the page reads: arms in the study's order, the base first, and each problem with its counts
    and completions by arm."""
    problems: dict[tuple[str, str], Row] = {}
    for row in picked:
        problem = problems.setdefault(
            (row["benchmark"], row["problem_id"]),
            {"benchmark": row["benchmark"], "id": row["problem_id"], "random": row["picked"] == "random",
             "question": row["question"], "answer": row["answer"], "arms": {}},
        )  # fmt: skip
        here = problem["arms"].setdefault(
            row["arm"],
            {"runs": row["runs"], "samples": row["samples"], "correct": row["correct"], "reason": row["reason"],
             "texts": []},
        )  # fmt: skip
        if row["sample"] is not None:
            here["texts"].append({"status": row["status"], "text": row["completion"], "characters": row["characters"]})
    there = {row["arm"] for row in picked}
    return {
        "baseline": baseline,
        "arms": [arm for arm in dict.fromkeys(["base", baseline, *arms]) if arm in there],
        "problems": list(problems.values()),
        "of_each": examples.OF_EACH,
        "without_texts": bool(picked) and all(row["sample"] is None for row in picked),
    }


def _checks(
    job: Job,
    found: dict[str, list[Row]],
    plan: deviations.Plan | None,
    contamination: list[Row],
    without_rows: list[str],
) -> list[Row]:
    """All checks but those of the table `reachability`. without_rows: benchmarks in which nothing could be searched."""
    settings, benchmarks = job.settings, job.settings["benchmarks"]
    endpoint = ("macro" if len(benchmarks) > 1 else benchmarks[0], settings["endpoint"]["pass_at"])
    audits = [tables.read(path, tables.GOLD_AUDIT).to_pylist() for path in job.inputs.get("gold_audit", [])]
    return [
        *findings.run_checks(found["runs"], found["effects"]),
        *findings.control_checks(found["effects"]),
        *findings.evaluation_checks(found["scores"], found["noise_floors"], endpoint),
        *findings.contamination_checks(
            contamination,
            {audit[0]["benchmark"]: len(audit) for audit in audits if audit},
            without_rows,
        ),
        *findings.audit_checks(audits),
        *findings.prompt_checks(found["runs"], settings.get("max_prompt")),
        *findings.engine_checks(found["runs"]),
        *findings.reward_checks(found["rewards"]),
        *findings.plan_checks(plan),
    ]


def _grids_of(found: dict[str, list[Row]], shown: Row, settings: Row, contamination: list[Row]) -> Row:
    arms = settings["arms"]
    return {
        "grids": [
            grids.effects(shown["last_effects"]),
            grids.scores(shown["score_tables"]),
            grids.coverage(shown["coverage_rows"], settings["baseline"]),
            grids.difficulty(shown["difficulty_rows"]),
            grids.floors(shown["endpoint_floors"]),
            grids.training(rows.training_table(found["dynamics"], arms)),
            grids.policies(rows.policy_table(found["policies"], arms)),
            grids.run_scores(rows.run_scores(found["scores"], arms)),
            grids.pairs(rows.similar_pairs(contamination)),
        ],
        "compared_grid": grids.compared(shown["compared_arms"]),
        "provenance_grids": [grids.runs(found["runs"]), grids.made(shown["provenance"])],
    }


def _sentences(found: dict[str, list[Row]], arms: list[str]) -> list[Row]:
    """The primary row of each arm with its sentence, whole and in parts."""
    primary, void = findings.primary(found["effects"]), findings.void(found["reachability"])
    judged = [primary[arm] | {"void": void.get(arm)} for arm in arms if arm in primary]
    return [
        row
        | {"sentence": findings.verdict_sentence(row), "parts": findings.verdict_parts(row)}
        | {"kind": "unknown" if row["void"] else findings.verdict_kind(row["verdict"])}
        for row in judged
    ]


def _tally(comparisons: list[Row]) -> list[Row]:
    """How many arms of each verdict; those that are better or worse by name."""
    found: dict[str, Row] = {}
    for row in comparisons:
        verdict = findings.VOID if row["void"] else row["verdict"]
        line = found.setdefault(verdict, {"verdict": verdict, "count": 0, "arms": []})
        line["count"] += 1
        line["arms"] += [row["arm"]] if row["kind"] == "decided" else []
    return list(found.values())


def context(job: Job) -> dict[str, Any]:
    """Everything the templates and the summary show."""
    settings, arms = job.settings, job.settings["arms"]
    found = {name: _read(job.input(name), table) for name, table in TABLES.items()}
    searched = {path: tables.read(path, tables.CONTAMINATION) for path in job.inputs.get("contamination", [])}
    contamination = [row for found_there in searched.values() for row in found_there.to_pylist()]
    without_rows = [Path(path).stem for path, found_there in searched.items() if not len(found_there)]
    plan = deviations.judge(deviations.read(job.root / "plan.parquet"))  # no input: it is written while jobs wait
    checks = _checks(job, found, plan, contamination, without_rows)
    by_check = findings.by_check(found["reachability"], checks, arms)
    sentences = _sentences(found, arms)
    comparisons = [row for row in sentences if row["role"] == "comparison"]
    comparisons.sort(key=lambda row: row["kind"] != "decided")
    controls = [row for row in sentences if row["role"] != "comparison"]
    figures, power = _figures(job), found["power"]
    per_run = power[0]["seconds_per_run"] if power and known(power[0]["seconds_per_run"]) else None
    grouped = findings.worst_first(by_check, {settings["baseline"], *(row["arm"] for row in comparisons)})
    states = Counter(group["verdict"] for group in grouped)
    design = settings if "compared" in settings else None
    shown = {
        **settings,
        "warnings": warnings.warnings(
            found["effects"], found["runs"], found["reachability"], checks, plan.warnings if plan else ()
        ),
        "plan": plan,
        "comparisons": comparisons,
        "controls": controls,
        "tally": _tally(comparisons),
        "compared_facts": compared.facts(design, found["runs"], found["scores"]) if design else [],
        "compared_arms": compared.arms(design) if design else [],
        "endpoint_note": findings.endpoint_note(comparisons, controls, settings["baseline"], len(settings["looks"])),
        "open_questions": rows.open_questions(comparisons, per_run),
        "first_figure": figures.get(FIRST),
        "power_figures": [figures[name] for name in OF_POWER if name in figures],
        "figure_sections": _sections(figures),
        "states": {state: states[state] for state in ("fail", "warn", "pass", None)},
        "findings": sum(map(len, by_check.values())),
        "checks": grouped,
        "power": power,
        "last_effects": rows.last_effects(found["effects"], arms),
        "endpoint_floors": rows.endpoint_floors(found["noise_floors"], sentences),
        "score_tables": rows.score_tables(found["scores"], arms),
        "coverage_rows": rows.coverage_table(found["coverage"], arms),
        "difficulty_rows": found["difficulty"],
        "excluded": rows.excluded_counts(job.input("counts")),
        "costs": rows.costs(found["runs"]),
        "engines": rows.engines(found["runs"]),
        "libraries": _libraries(job, found["runs"]),
        "examples": example_data(found["examples"], arms, settings["baseline"]),
        "provenance": _provenance(job),
        "code": job.code,
    }
    return shown | _grids_of(found, shown, settings, contamination)
