"""Scores of each run, and of each arm over its runs, with truncated and unparsed shares and lengths beside them."""

import numpy as np
from scipy.stats import norm, t

from workflow_scripts.analysis.comparison import BASE, Analysis, Row
from workflow_scripts.analysis.counts import Cell, share


def _beside(cells: list[Cell]) -> Row:
    return {
        "samples": min(cell.samples.min() for cell in cells),
        "truncated_share": share(cells, "truncated"),
        "unparsed_share": share(cells, "unparsed"),
        "mean_completion_tokens": share(cells, "completion_tokens"),
    }


def _of_runs(analysis: Analysis, name: str, view: str, step: int) -> list[Row]:
    """What all metrics of an arm's runs share, a row per run, and one for all of them."""
    benchmarks = analysis.views[view]
    cells = analysis.runs(name, benchmarks, step)
    shared = {"arm": name, "step": step, "benchmark": view}
    reason = "; ".join(analysis.gaps(name, benchmarks, step)) or None
    if not cells:
        return [{**shared, "level": "arm", "seeds": 0, "reason": reason}]
    shared["problems"] = sum(len(cell) for cell in next(iter(cells.values())))
    found = [{**shared, "level": "run", "seed": seed, "seeds": 1, **_beside(own)} for seed, own in cells.items()]
    over_runs = _beside([cell for own in cells.values() for cell in own])
    return [*found, {**shared, "level": "arm", "seeds": len(cells), "reason": reason, **over_runs}]


def _scored(analysis: Analysis, name: str, view: str, step: int, pass_at: int) -> list[Row]:
    """Scores of the runs, with the interval that sampling the answers again allows; and of the arm, mean over its
    runs, with the t interval that training again allows."""
    arm = analysis.arm(name, analysis.views[view], step, pass_at)
    if not arm.seeds:
        return [{}]
    alpha = analysis.settings["alpha"]
    means, errors = arm.run_means, np.sqrt(arm.evaluation_variance)
    seeds, mean, error = len(arm.seeds), float(means.mean()), np.sqrt(arm.run_variance / len(arm.seeds))
    half = np.append(norm.ppf(1 - alpha / 2) * errors, t.ppf(1 - alpha / 2, seeds - 1) * error)
    half[half == 0] = np.nan  # equal scores, or samples all right or all wrong: no spread to make an interval of
    scores, errors = np.append(means, mean), np.append(errors, error)
    low, high = (np.clip(end, 0.0, 1.0) for end in (scores - half, scores + half))
    columns = {"score": scores, "se": errors, "ci_low": low, "ci_high": high}
    return [dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)]


def rows(analysis: Analysis) -> list[Row]:
    """All rows: the base model and every arm, each step and benchmark, pass@k for every k, and avg@n.

    avg@n, the mean over all n samples, is pass@1 by another name; it stands in every study, whatever k that asks for.
    """
    metrics = [("avg@n", None, 1), *(("pass@k", k, k) for k in analysis.pass_at)]
    return [
        {**shared, "metric": metric, "pass_at": pass_at, **scored}
        for arm in (BASE, *analysis.arms)
        for view in analysis.views
        for step in analysis.steps_or_end(arm)
        for of_runs in [_of_runs(analysis, arm, view, step)]
        for metric, pass_at, drawn in metrics
        for shared, scored in zip(of_runs, _scored(analysis, arm, view, step, drawn), strict=True)
    ]
