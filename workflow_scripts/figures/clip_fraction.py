"""Clip fraction: whose updates does the upper bound stop, rare successes or common ones?"""

import altair as alt
import pandas as pd

from workflow_scripts.figures import style


def _pooled(dynamics: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Share (%) of positive rollouts clipped above, pooled over the updates and runs of each set."""
    rows = dynamics.assign(clipped=dynamics["clipped_upper_share"] * dynamics["positive_rollouts"])
    sums = rows.groupby(by, as_index=False)[["clipped", "positive_rollouts"]].sum()
    return sums.assign(share=100 * sums["clipped"] / sums["positive_rollouts"])


def clip_fraction_chart(dynamics: pd.DataFrame, arms: list[str]) -> alt.TopLevelMixin:
    """Clipped share of positive rollouts by the number of correct rollouts in the group.

    dynamics: the table of this name. arms: all arms in the study's order (for colours).
    """
    title = "Which successes does the upper bound clip?"
    rows = dynamics[
        (dynamics["update_index"] >= 1) & dynamics["group_correct"].notna() & (dynamics["positive_rollouts"] > 0)
    ]
    if rows.empty:
        why = "no rollout with positive advantage after the first update of its batch: no bound could fire"
        return style.finish(style.notice([why]), title, [])
    runs = _pooled(rows, ["arm", "seed", "group_correct"])
    runs = runs.assign(run=runs["arm"] + " " + runs["seed"].astype(str))
    means = _pooled(rows, ["arm", "group_correct"])
    x = alt.X("group_correct:O", title="correct rollouts in the group", axis=alt.Axis(labelAngle=0))
    y = alt.Y("share:Q", title="positive rollouts clipped above (%)", scale=alt.Scale(domainMin=0))
    colour = style.colour(arms)
    chart = alt.layer(
        alt.Chart(runs).mark_line(strokeWidth=1, opacity=0.35).encode(x=x, y=y, color=colour, detail="run:N"),
        alt.Chart(means)
        .mark_line(strokeWidth=3)
        .encode(x=x, y=y, color=colour, strokeDash=style.dash(arms), tooltip=["arm", "group_correct", "share"]),
        alt.Chart(means).mark_point(filled=True, size=50, opacity=1).encode(x=x, y=y, color=colour),
    ).properties(width=style.WIDTH, height=280)
    lines = [
        "Left: rarely solved prompts. Thin: one run. Bold: all runs of the arm, updates after the first of a batch."
    ]
    if not means["share"].any():
        lines.append("No rollout was clipped: the lines lie at zero, and the bounds changed nothing.")
    return style.finish(chart, title, lines)
