"""Ratio and advantage: do the updates after the first of a batch still raise what was rewarded, and whose most?"""

import altair as alt
import pandas as pd

from workflow_scripts.figures import branches, panels, style

PANEL = 300
POINTS = 20  # windows side by side in a line: with many more, noise hides the arms


def _correlations(dynamics: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """(rows, rollout batches averaged): arm, seed, step, correlation.

    The mean over the updates of a rollout batch after its first, at its last step; in a long training the moving mean
    of the batches up to there.
    """
    rows = dynamics[dynamics["group_correct"].isna() & (dynamics["update_index"] >= 1)]
    rows = rows.assign(drawn=rows["step"] - rows["update_index"])
    found = rows.groupby(["arm", "seed", "drawn"], as_index=False).agg(
        step=("step", "max"), correlation=("ratio_advantage_correlation", "mean")
    )
    window = max(1, round(found["drawn"].nunique() / POINTS))
    moving = found.groupby(["arm", "seed"])["correlation"].rolling(window, min_periods=1).mean()
    return found.assign(correlation=moving.to_numpy()).dropna(subset="correlation"), window


def _deviations(dynamics: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Mean |ratio - 1| of the tokens of a rollout by group_correct, pooled over the updates and runs of each set."""
    rows = dynamics[dynamics["group_correct"].notna() & (dynamics["update_index"] >= 1)]
    rows = rows.assign(sum=rows["mean_abs_ratio_deviation"] * rows["rollouts"])
    sums = rows.groupby([*by, "group_correct"], as_index=False)[["sum", "rollouts"]].sum()
    return sums.assign(deviation=sums["sum"] / sums["rollouts"])


def _over_training(own: pd.DataFrame, arms: list[str], branched: branches.Branches) -> alt.LayerChart | alt.Chart:
    begun = branches.starts(own, branched)
    runs = pd.concat([own, begun])
    means = runs.groupby(["arm", "step"], as_index=False)[["correlation"]].mean()
    if style.many(arms):
        rows, _ = panels.windows(means.assign(update_index=0), ["correlation"], ["arm"])
        steps = sorted(rows["step"].unique())
        axis = alt.Axis(labelAngle=0, labelOverlap=True, values=steps[:: max(1, len(steps) // 5)])
        x = alt.X("step:O", title="optimizer updates", axis=axis)
        return panels.heat(rows.round(4), x, "correlation", "correlation of sequence ratio and advantage", arms, PANEL)
    x = alt.X("step:Q", title="optimizer updates", axis=alt.Axis(tickMinStep=1, tickCount=6))
    y = alt.Y("correlation:Q", title="correlation of sequence ratio and advantage")
    zero = alt.Chart(pd.DataFrame({"correlation": [0.0]})).mark_rule(color=style.FAINT).encode(y=y)
    lone = means[means.groupby("arm")["step"].transform("size") == 1]  # no line: a run that stopped learning at once
    dots = alt.Chart(lone).mark_point(filled=True, size=45, opacity=1).encode(x=x, y=y, color=style.colour(arms))
    layers = [zero, *panels.lines(runs, means, x, y, arms)[:2], *([dots] if len(lone) else [])]
    if len(begun):
        points = begun.groupby(["arm", "step"], as_index=False)[["correlation"]].mean()
        layers.append(branches.rings(points, x, y))
    return alt.layer(*layers).properties(width=PANEL, height=260)


def _by_correct(dynamics: pd.DataFrame, arms: list[str]) -> alt.LayerChart | alt.Chart:
    x = alt.X("group_correct:O", title="correct rollouts in the group", axis=alt.Axis(labelAngle=0))
    means, runs = _deviations(dynamics, ["arm"]), _deviations(dynamics, ["arm", "seed"])
    y = alt.Y("deviation:Q", title="mean |ratio − 1| of tokens", scale=style.from_zero(runs["deviation"], 1e-3))
    if style.many(arms):
        said = "mean |ratio − 1| of tokens"
        return panels.heat(means.round(6), x, "deviation", said, arms, PANEL, names=False, domainMin=0)
    return alt.layer(*panels.lines(runs, means, x, y, arms)).properties(width=PANEL, height=260)


def ratio_advantage_chart(
    dynamics: pd.DataFrame, arms: list[str], branched: branches.Branches | None = None
) -> alt.TopLevelMixin:
    """Correlation of sequence ratio and advantage over training, and mean |ratio - 1| by correct rollouts of the group.

    The evidence of arXiv:2609.00444 (Fig. 1, 5, 7). dynamics: the table of this name. arms: all arms in the study's
    order (for colours). branched: arms that start at another one.
    """
    title = "Does the ratio still follow the advantage?"
    correlations, window = _correlations(dynamics)
    if correlations.empty:
        why = "after the first update of a batch no rollouts with different ratios and advantages: nothing to correlate"
        return style.finish(style.notice([why]), title, [])
    common = max((branch["step"] for branch in (branched or {}).values()), default=0)
    later = dynamics[dynamics["step"] > common]  # the ratio moves less as training goes on: equal parts of it
    parts = [_over_training(correlations, arms, branched or {}), _by_correct(later, arms)]
    lines = [
        f"{'' if style.many(arms) else 'Thin: one run. Bold: mean of the arm. '}"
        "The first update of a rollout batch, at ratio 1, is left out.",
        "Left: above 0 the policy moves towards what was rewarded; at 0 it moves without regard to it.",
    ]
    if not style.many(arms):
        lines.append(panels.COINCIDE)
    if window > 1:
        lines.append(f"Left is a moving mean over {window} rollout batches.")
    if branched:
        lines.append(f"{branches.HOW_TO_READ} Right: updates after {common} alone, which all arms have.")
    chart = alt.hconcat(*parts, spacing=36)
    chart = chart.resolve_scale(color="independent") if style.many(arms) else chart
    return style.finish(chart, title, lines)
