"""The noise that a difference must rise above: evaluation, training, placebo; and one the other way, sensitivity."""

from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
from scipy.stats import t

from workflow_scripts.analysis.comparison import BASE, Analysis, Row
from workflow_scripts.figures.words import points
from workflow_scripts.statistics import noise_floor
from workflow_scripts.statistics.effects import Verdict, judge


def _known_arm(analysis: Analysis, arm: str, view: str, step: int, pass_at: int) -> Row:
    """Row of a placebo or sensitivity arm: the band a difference of two arm means has, and what was seen."""
    benchmarks, baseline_step = analysis.views[view], analysis.baseline_step(arm, step)
    treatment = analysis.arm(arm, benchmarks, step, pass_at)
    baseline = analysis.arm(analysis.baseline, benchmarks, baseline_step, pass_at)
    alpha = analysis.alpha(arm)
    result = judge(treatment, baseline, "benchmark", alpha, analysis.margin)
    gaps = [*analysis.gaps(arm, benchmarks, step), *analysis.gaps(analysis.baseline, benchmarks, baseline_step)]
    runs = len(treatment.seeds) + len(baseline.seeds)
    row: Row = {"runs": runs, "verdict": result.verdict}
    if result.estimate is None:
        return {**row, "reason": "; ".join([str(result.reason), *gaps])}
    sd = float(np.sqrt(result.estimate.seed_variance / (1 / len(treatment.seeds) + 1 / len(baseline.seeds))))
    low, high = noise_floor.sd_interval(sd, runs - 2)
    row |= {"sd": sd, "sd_low": low, "sd_high": high, "p": result.estimate.p}
    row["band"] = min(t.ppf(1 - alpha / 2, result.estimate.df) * result.estimate.se, 1.0)
    seen = f"difference {points(result.delta)}: {result.verdict}"
    if analysis.roles[arm] == "sensitivity":
        row["verdict"] = "told from the baseline" if result.verdict == Verdict.WORSE else "not told from the baseline"
        if result.verdict == Verdict.BETTER:
            seen += ", though made to lose"
        elif result.verdict != Verdict.WORSE:
            seen += "; a study that cannot see this arm's loss cannot see anything smaller"
    return {**row, "reason": "; ".join([seen, *gaps])}


def _of_training(analysis: Analysis, arm: str, view: str, step: int) -> Iterator[Row]:
    benchmarks = analysis.views[view]
    gaps = analysis.gaps(arm, benchmarks, step)
    for pass_at in analysis.pass_at:
        runs = analysis.arm(arm, benchmarks, step, pass_at)
        row: Row = {"kind": "training", "arm": arm, "benchmark": view, "step": step, "pass_at": pass_at}
        row |= asdict(noise_floor.training(runs)) | {"runs": len(runs.seeds)}
        yield row | {"reason": "; ".join(text for text in (row["reason"], *gaps) if text) or None}


def of_training(analysis: Analysis) -> list[Row]:
    """Rows of re-training: every arm at every step, benchmark and pass@k."""
    return [
        row
        for arm in analysis.arms
        for step in analysis.steps_or_end(arm)
        for view in analysis.views
        for row in _of_training(analysis, arm, view, step)
    ]


def rows(analysis: Analysis) -> list[Row]:
    """All floors: of training, of the evaluation, and of the arms whose effect is known."""
    found = of_training(analysis)
    for view, benchmarks in analysis.views.items():
        for pass_at in analysis.pass_at:
            shared = {"benchmark": view, "pass_at": pass_at}
            base = analysis.arm(BASE, benchmarks, 0, pass_at)
            floor = {**asdict(noise_floor.evaluation(base)), "runs": len(base.seeds)}
            found.append({"kind": "evaluation", "arm": BASE, "step": 0, **shared, **floor})
            for arm in analysis.others:
                if (role := analysis.roles[arm]) != "comparison":
                    step = analysis.endpoint_step(arm)
                    known = _known_arm(analysis, arm, view, step, pass_at)
                    found.append({"kind": role, "arm": arm, "step": step, **shared, **known})
    return found
