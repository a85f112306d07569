"""Every arm against the baseline: intervals and verdicts; one primary row per arm, all others exploratory."""

from collections.abc import Iterator

from workflow_scripts.analysis.comparison import Analysis, Row
from workflow_scripts.statistics.arm import Arm
from workflow_scripts.statistics.effects import (
    Estimate,
    adjust,
    components,
    judge,
    seed_correlation,
    uninformative,
)

ESTIMANDS = ("benchmark", "population")


def _look(analysis: Analysis, treatment: Arm, baseline: Arm) -> Row:
    """look: seeds of the arm that has fewer. It was planned if both have as many, and the study named that number."""
    seeds, other = len(treatment.seeds), len(baseline.seeds)
    look = min(seeds, other)
    known = look and analysis.looks is not None
    return {
        "seeds": seeds,
        "baseline_seeds": other,
        "look": look or None,
        "planned_look": seeds == other and look in (analysis.looks or ()) if known else None,
    }


def _counted(analysis: Analysis, arm: str, view: str, step: int) -> Row:
    """problems, and the fewest samples of one, in both arms."""
    of_arms = ((arm, step), (analysis.baseline, analysis.baseline_step(arm, step)))
    runs = [cells for name, at in of_arms for cells in analysis.runs(name, analysis.views[view], at).values()]
    if not runs:
        return {}
    samples = min(cell.samples.min() for cells in runs for cell in cells)
    return {"problems": sum(len(cell) for cell in runs[0]), "samples": samples}


def _of_view(analysis: Analysis, arm: str, view: str, step: int) -> Iterator[Row]:
    """Rows of one arm at one step on one benchmark: every pass@k and estimand."""
    benchmarks, baseline_step = analysis.views[view], analysis.baseline_step(arm, step)
    alpha, counted = analysis.alpha(arm), _counted(analysis, arm, view, step)
    gaps = [
        *analysis.gaps(arm, benchmarks, step),
        *analysis.gaps(analysis.baseline, benchmarks, baseline_step),
        None if baseline_step == step else f"against step {baseline_step} of the baseline, its last",
    ]
    at_endpoint = (step, view) == (analysis.endpoint_step(arm), analysis.endpoint_view)
    for pass_at in analysis.pass_at:
        treatment = analysis.arm(arm, benchmarks, step, pass_at)
        baseline = analysis.arm(analysis.baseline, benchmarks, baseline_step, pass_at)
        look = _look(analysis, treatment, baseline)
        counts = dict.fromkeys((look["seeds"], look["baseline_seeds"]))
        plural = "s were" if list(counts) != [1] else " was"
        unplanned = f"{' and '.join(map(str, counts))} seed{plural} not a planned look: exploratory"
        shared = {
            "arm": arm,
            "baseline": analysis.baseline,
            "role": analysis.roles[arm],
            "benchmark": view,
            "step": step,
            "metric": "pass@k",
            "pass_at": pass_at,
            "level": 1 - alpha,
            "margin": analysis.margin,
            **look,
            **counted,
            **components(treatment, baseline),
            "seed_correlation": seed_correlation(treatment, baseline),
        }
        for estimand in ESTIMANDS:
            result = judge(treatment, baseline, estimand, alpha, analysis.margin)
            primary = at_endpoint and (pass_at, estimand) == (analysis.endpoint_pass_at, "benchmark")
            notes = [
                None if primary else "exploratory",
                unplanned if look["planned_look"] is False else None,
                result.reason,
                uninformative(result.estimate, alpha, result.verdict) if result.estimate else None,
                *gaps,
            ]
            yield {
                **shared,
                "estimand": estimand,
                "primary": primary,
                "delta": result.delta,
                "mde80": result.mde80,
                "seeds_needed": result.seeds_needed,
                "verdict": result.verdict,
                "reason": "; ".join(note for note in notes if note) or None,
                **_interval(result.estimate, alpha),
            }


def _interval(found: Estimate | None, alpha: float) -> Row:
    if found is None:
        return {}
    low, high = found.bounded_interval(alpha)
    return {"se": found.se, "df": found.df, "ci_low": low, "ci_high": high, "p": found.p}


def _add_adjusted(analysis: Analysis, rows: list[Row]) -> None:
    """p_holm over the family's primary rows (an arm without a p value still counts), p_bh over its other rows."""
    tested = [row for row in rows if row["arm"] in analysis.family and "p" in row]
    for column, method, primary, size in (
        ("p_holm", "holm", True, len(analysis.family)),
        ("p_bh", "fdr_bh", False, None),
    ):
        chosen = [row for row in tested if row["primary"] is primary]
        for row, value in zip(chosen, adjust([row["p"] for row in chosen], method, size), strict=True):
            row[column] = value


def rows(analysis: Analysis) -> list[Row]:
    """All rows: every arm at every step evaluated and at the endpoint's, every benchmark, pass@k and estimand."""
    found = [
        row
        for arm in analysis.others
        for step in sorted({*analysis.steps(arm), analysis.endpoint_step(arm)})
        for view in analysis.views
        for row in _of_view(analysis, arm, view, step)
    ]
    _add_adjusted(analysis, found)
    return found
