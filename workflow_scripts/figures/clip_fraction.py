"""Clip fraction: whose updates does the upper bound stop, rare successes or common ones, early or late in training?"""

import altair as alt
import pandas as pd

from workflow_scripts.figures import panels, style

PARTS = 3  # of training, side by side
PANEL = 210


def _pooled(dynamics: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Share (%) of tokens with positive advantage clipped above, pooled over the updates and runs of each set."""
    rows = dynamics.assign(clipped=dynamics["clipped_quadrant_1_share"] * dynamics["positive_tokens"])
    sums = rows.groupby(by, as_index=False)[["clipped", "positive_tokens"]].sum()
    return sums.assign(share=(100 * sums["clipped"] / sums["positive_tokens"]).round(3))


def _parts(rows: pd.DataFrame) -> pd.Series:
    """The part of training of each row, as text: up to PARTS of equally many updates, none of them empty."""
    steps = rows["step"].drop_duplicates().sort_values()
    last = int(rows["step"].max())
    number = (steps - 1) * min(PARTS, len(steps)) // last
    names = {part: f"updates {here.min()} to {here.max()}" for part, here in steps.groupby(number)}
    return rows["step"].map(dict(zip(steps, number.map(names), strict=True)))


def _panel(
    rows: pd.DataFrame, part: str, arms: list[str], shown: alt.Parameter, first: bool, scale: alt.Scale
) -> alt.LayerChart | alt.Chart:
    x = alt.X("group_correct:O", title="correct rollouts in the group", axis=alt.Axis(labelAngle=0, labelOverlap=True))
    what = "tokens with positive advantage clipped above (%)"
    means = _pooled(rows, ["arm", "group_correct"])
    heading = style.heading(part)
    if style.many(arms):
        return panels.heat(means, x, "share", what, arms, PANEL, names=first, domain=scale.domain).properties(
            title=heading
        )
    y = alt.Y("share:Q", title=what if first else None, scale=scale)
    layers = panels.lines(_pooled(rows, ["arm", "seed", "group_correct"]), means, x, y, arms, shown)
    return alt.layer(*layers).properties(width=PANEL, height=280, title=heading)


def clip_fraction_chart(dynamics: pd.DataFrame, arms: list[str]) -> alt.TopLevelMixin:
    """Clipped share of tokens with positive advantage by correct rollouts in the group, in three parts of training.

    dynamics: the table of this name. arms: all arms in the study's order (for colours).
    """
    title = "Which successes does the upper bound clip?"
    rows = dynamics[
        (dynamics["update_index"] >= 1) & dynamics["group_correct"].notna() & (dynamics["positive_tokens"] > 0)
    ]
    rows = rows[rows["clipped_quadrant_1_share"].notna()]
    if rows.empty:
        why = "no rollout with positive advantage after the first update of its batch: no bound could fire"
        return style.finish(style.notice([why]), title, [])
    rows, shown = rows.assign(part=_parts(rows)), panels.highlight()
    names = list(dict.fromkeys(rows.sort_values("step")["part"]))
    drawn = ["arm"] if style.many(arms) else ["arm", "seed"]
    scale = style.from_zero(_pooled(rows, ["part", *drawn, "group_correct"])["share"], 1.0, 100.0)
    parts = [_panel(rows[rows["part"] == name], name, arms, shown, name == names[0], scale) for name in names]
    lines = ["Left in a panel: rarely solved prompts. The first update of a rollout batch, at ratio 1, is left out."]
    if not style.many(arms):
        parts[0] = parts[0].add_params(shown)
        lines.append(f"Thin: one run. Bold: all runs of the arm. {panels.COINCIDE}")
    if not _pooled(rows, ["arm"])["share"].any():
        lines.append("No token was clipped above: every line lies at zero.")
    chart = alt.hconcat(*parts, spacing=24).resolve_scale(y="shared", color="shared")
    return style.finish(chart, title, lines)
