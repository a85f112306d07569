"""Every arm against the baseline: intervals and verdicts; one primary row per arm, all others exploratory."""

from typing import Any

from workflow_scripts import tables
from workflow_scripts.stages._analysis import Analysis, write
from workflow_scripts.stages._command import Job, run
from workflow_scripts.statistics.arm import Arm
from workflow_scripts.statistics.effects import adjust, components, judge, seed_correlation

LIBRARIES = ("scipy", "statsmodels")
ESTIMANDS = ("benchmark", "population")


def _look(analysis: Analysis, treatment: Arm, baseline: Arm) -> dict[str, Any]:
    look = min(len(treatment.seeds), len(baseline.seeds))
    return {
        "seeds": len(treatment.seeds),
        "baseline_seeds": len(baseline.seeds),
        "look": look or None,
        "planned_look": look in analysis.looks if look else None,
    }


def _counted(analysis: Analysis, arm: str, view: str, step: int) -> dict[str, Any]:
    runs = list(analysis.runs(arm, analysis.views[view], step).values())
    if not runs:
        return {}
    samples = min(cell["samples"].min() for cells in runs for cell in cells)
    return {"problems": sum(len(cell) for cell in runs[0]), "samples": samples}


def _row(analysis: Analysis, arm: str, view: str, step: int, pass_at: int, estimand: str) -> dict[str, Any]:
    benchmarks, baseline_step = analysis.views[view], analysis.baseline_step(arm, step)
    treatment = analysis.arm(arm, benchmarks, step, pass_at)
    baseline = analysis.arm(analysis.baseline, benchmarks, baseline_step, pass_at)
    alpha = analysis.alpha(arm)
    result = judge(treatment, baseline, estimand, alpha, analysis.margin)
    primary = (step, view, pass_at, estimand) == (
        analysis.endpoint_step(arm),
        analysis.endpoint_view,
        analysis.endpoint_pass_at,
        "benchmark",
    )
    look = _look(analysis, treatment, baseline)
    notes = [
        None if primary else "exploratory",
        f"{look['look']} seeds were not a planned look: exploratory" if look["planned_look"] is False else None,
        result.reason,
        *analysis.gaps(arm, benchmarks, step),
        *analysis.gaps(analysis.baseline, benchmarks, baseline_step),
        None if baseline_step == step else f"against step {baseline_step} of the baseline, its last",
    ]
    row = {
        "arm": arm,
        "baseline": analysis.baseline,
        "role": analysis.roles[arm],
        "benchmark": view,
        "step": step,
        "metric": "pass@k",
        "pass_at": pass_at,
        "estimand": estimand,
        "delta": result.delta,
        "level": 1 - alpha,
        "primary": primary,
        **look,
        **_counted(analysis, arm, view, step),
        "margin": analysis.margin,
        "mde80": result.mde80,
        "seeds_needed": result.seeds_needed,
        "verdict": result.verdict,
        "reason": "; ".join(note for note in notes if note) or None,
        **components(treatment, baseline),
        "seed_correlation": seed_correlation(treatment, baseline),
    }
    if result.estimate:
        low, high = result.estimate.interval(alpha)
        row |= {"se": result.estimate.se, "df": result.estimate.df, "ci_low": low, "ci_high": high}
        row["p"] = result.estimate.p
    return row


def _add_adjusted(analysis: Analysis, rows: list[dict[str, Any]]) -> None:
    """p_holm over the family's primary rows (an arm without a p value still counts), p_bh over its other rows."""
    tested = [row for row in rows if row["arm"] in analysis.family and "p" in row]
    for column, method, primary, size in (
        ("p_holm", "holm", True, len(analysis.family)),
        ("p_bh", "fdr_bh", False, None),
    ):
        chosen = [row for row in tested if row["primary"] is primary]
        for row, value in zip(chosen, adjust([row["p"] for row in chosen], method, size), strict=True):
            row[column] = value


def main(job: Job) -> None:
    analysis = Analysis(job)
    rows = [
        _row(analysis, arm, view, step, pass_at, estimand)
        for arm in analysis.others
        for step in sorted({*analysis.steps(arm), analysis.endpoint_step(arm)})
        for view in analysis.views
        for pass_at in analysis.pass_at
        for estimand in ESTIMANDS
    ]
    _add_adjusted(analysis, rows)
    write(job, "effects", tables.EFFECTS, rows)


if __name__ == "__main__":
    run(main, LIBRARIES)
