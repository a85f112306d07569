"""The course of training beside the reward: entropy, completion length, and completions cut off."""

import altair as alt
import pandas as pd

from workflow_scripts.figures import branches, panels, style

PANEL = 210
VALUES = {
    "mean_entropy": "entropy (nat)",
    "mean_completion_tokens": "tokens of a completion",
    "truncated_share": "cut off (%)",
}
DIGITS = {"mean_entropy": 4, "mean_completion_tokens": 2, "truncated_share": 2}


def _panel(
    runs: pd.DataFrame, name: str, arms: list[str], shown: alt.Parameter, begun: pd.DataFrame, first: bool
) -> alt.LayerChart | alt.Chart:
    own = runs.dropna(subset=name)
    means = own.groupby(["arm", "step"], as_index=False)[[name]].mean().round(DIGITS)
    if style.many(arms):
        steps = sorted(own["step"].unique())
        axis = alt.Axis(labelAngle=0, labelOverlap=True, values=steps[:: max(1, len(steps) // 4)])
        x = alt.X("step:O", title="optimizer updates", axis=axis)
        scale = {"domain": style.from_zero(means[name], 1.0, 100.0).domain} if name == "truncated_share" else {}
        return panels.heat(means, x, name, VALUES[name], arms, PANEL, names=first, **scale)
    x = alt.X("step:Q", title="optimizer updates", axis=alt.Axis(tickMinStep=1, tickCount=5))
    scale = style.from_zero(own[name], 1.0, 100.0) if name == "truncated_share" else alt.Scale(zero=False)
    y = alt.Y(f"{name}:Q", title=VALUES[name], scale=scale)
    thin, bold, _ = panels.lines(own, means, x, y, arms, shown)
    layers = [thin, bold]
    if len(begun):
        layers.append(branches.rings(begun.groupby(["arm", "step"], as_index=False)[[name]].mean(), x, y))
    return alt.layer(*layers).properties(width=PANEL, height=230)


def training_course_chart(
    dynamics: pd.DataFrame, arms: list[str], branched: branches.Branches | None = None
) -> alt.TopLevelMixin:
    """Entropy, length and truncated share of the rollouts over training.

    dynamics: the table of this name. arms: all arms in the study's order (for colours). branched: arms that start at
    another one.
    """
    title = "What became of the rollouts during training?"
    rows = dynamics[dynamics["group_correct"].isna()]
    known = [name for name in VALUES if rows[name].notna().any()]
    if not known:
        return style.finish(style.notice(["no training has been recorded yet"]), title, [])
    rows = rows.assign(truncated_share=100 * rows["truncated_share"].astype(float))
    runs, width = panels.windows(rows, known, ["arm", "seed"])
    begun = branches.starts(runs, branched or {})
    runs = pd.concat([runs, begun]).round(DIGITS)
    shown = panels.highlight()
    parts = [_panel(runs, name, arms, shown, begun, name == known[0]) for name in known]
    if not style.many(arms):
        parts[0] = parts[0].add_params(shown)
    chart = alt.hconcat(*parts, spacing=24)
    chart = chart.resolve_scale(color="independent") if style.many(arms) else chart
    lines = [] if style.many(arms) else [f"Thin: one run. Bold: mean of the arm. {panels.COINCIDE}"]
    lines.append(
        "Entropy that falls to 0 ends exploration; answers that are cut off teach nothing about their content."
    )
    if width > 1:
        lines.append(f"Means of {width} updates.")
    if branched and not style.many(arms):
        lines.append(branches.HOW_TO_READ)
    return style.finish(chart, title, lines)
