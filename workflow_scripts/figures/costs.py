"""What it costs: seeds that would resolve the margin, and the time of every job."""

import altair as alt
import pandas as pd

from workflow_scripts.figures import style, words
from workflow_scripts.figures.tooltips import tell

PANEL, ROW = 250, 24
LINES = {
    "one comparison": [6, 3],
    "all comparisons of the study": [1, 0],
    "the same, run SD at its upper 80 % bound": [2, 2],
}
UNITS = ((6000.0, 3600.0, "hours"), (100.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))  # from so many seconds on


def _unit(seconds: float) -> tuple[float, str]:
    """Seconds in the unit, and its name."""
    return next((size, name) for least, size, name in UNITS if seconds >= least)


def _detectable(power: pd.DataFrame, margin: float) -> alt.LayerChart:
    columns = dict(zip(("mde80_one", "mde80_family", "mde80_family_upper80"), LINES, strict=True))
    rows = power.rename(columns=columns).melt(["seeds"], list(LINES), "line", "effect").dropna(subset="effect")
    rows["effect"] = (100 * rows["effect"]).round(3)
    top = 1.15 * max(float(rows["effect"].max()), 100 * margin)
    x = alt.X("seeds:Q", title="seeds per arm", axis=alt.Axis(values=sorted(power["seeds"].unique())))
    y = alt.Y("effect:Q", title="effect found with 80 % power (points)", scale=alt.Scale(domain=[0, top]))
    dash = alt.StrokeDash(
        "line:N",
        scale=alt.Scale(domain=list(LINES), range=list(LINES.values())),
        legend=alt.Legend(title=None, orient="bottom", columns=1, symbolType="stroke", symbolSize=900, labelLimit=320),
    )
    base = alt.Chart(rows).encode(x=x, y=y, tooltip=tell("seeds", "line", "effect"))
    edge = pd.DataFrame({"effect": [100 * margin], "text": ["margin"]})
    rule = alt.Chart(edge).encode(y=alt.Y("effect:Q"))
    at = alt.value(PANEL - 4)
    return alt.layer(
        base.mark_line(strokeWidth=2.5, color=style.PALETTE[0]).encode(strokeDash=dash),
        base.mark_point(filled=True, size=45, opacity=1, color=style.PALETTE[0]),
        rule.mark_rule(color=style.INK, strokeWidth=1.5),
        rule.mark_text(align="right", dy=-7, color=style.INK).encode(x=at, text="text:N"),
    ).properties(width=PANEL, height=230)


def _still(power: pd.DataFrame) -> alt.LayerChart:
    size, unit = _unit(float(power["extra_seconds"].max()))
    rows = power[["seeds", "extra_seconds"]].assign(time=(power["extra_seconds"] / size).round(3))
    x = alt.X("seeds:O", title="seeds per arm", axis=alt.Axis(labelAngle=0))
    y = alt.Y("time:Q", title=f"machine time still to spend ({unit})")
    base = alt.Chart(rows[["seeds", "time"]]).encode(
        x=x, y=y, tooltip=tell("seeds", "time", time=f"machine time ({unit})")
    )
    text = alt.Chart(rows.assign(text=[words.span(float(value)) for value in rows["extra_seconds"]]))
    return alt.layer(
        base.mark_bar(color=style.PALETTE[0], opacity=0.75),
        text.mark_text(dy=-8, color=style.INK).encode(x=x, y=y, text="text:N"),
    ).properties(width=PANEL, height=230)


def seeds_needed_chart(power: pd.DataFrame, margin: float) -> alt.TopLevelMixin:
    """Detectable effect by number of seeds with the margin, and what more seeds would cost.

    power: the table of this name. margin: smallest effect of interest, in score.
    """
    title = "How many seeds would resolve the margin?"
    rows = power[power["mde80_one"].notna() | power["mde80_family"].notna()].sort_values("seeds")
    if rows.empty:
        reasons = power["reason"].dropna()
        why = "no arm is compared with the baseline" if reasons.empty else str(reasons.iloc[0])
        return style.finish(style.notice([why]), title, [])
    parts: list[alt.LayerChart] = [_detectable(rows, margin)]
    if rows["extra_seconds"].notna().any():
        parts.append(_still(rows[rows["extra_seconds"].notna()]))
    enough = rows.loc[rows["resolves_margin"].fillna(False).astype(bool), "seeds"]
    said = f"{enough.min()} seeds per arm resolve it" if len(enough) else "none of these numbers of seeds resolves it"
    lines = [f"Below the line at {words.number(100 * margin)} points an effect of the margin would be found: {said}."]
    if len(parts) == 1:
        lines.append("The time of a run was not measured here.")
    return style.finish(alt.hconcat(*parts, spacing=36), title, lines)


def _times(rows: pd.DataFrame, column: str, what: str, arms: list[str], first: bool) -> alt.LayerChart:
    known = rows[rows[column].notna()]
    size, unit = _unit(float(known[column].max()))
    known = known.assign(time=(known[column] / size).round(4))
    means = known.groupby("arm", as_index=False)[["time"]].mean().round(4)
    y = style.arm_axis(arms) if first else style.arm_axis(arms).axis(None)
    x = alt.X(
        "time:Q",
        title=f"{what} ({unit} per job)",
        scale=style.from_zero(known["time"], 1.0),
        axis=alt.Axis(tickCount=5),
    )
    bars = alt.Chart(means).mark_bar(size=ROW - 10, opacity=0.75)
    ticks = alt.Chart(known[["arm", "seed", "time"]]).mark_tick(thickness=1.5, size=ROW - 8, color=style.INK)
    return alt.layer(
        bars.encode(
            x=x, y=y, color=style.colour(arms).legend(None), tooltip=tell("arm", "time", time=f"{what}, mean ({unit})")
        ),
        ticks.encode(x=x, y=y, tooltip=tell("arm", "seed", "time", time=f"{what} ({unit})")),
    ).properties(width=PANEL, height=max(ROW * len(arms), 40))


def costs_chart(runs: pd.DataFrame, arms: list[str]) -> alt.TopLevelMixin:
    """Time of the training and the sampling jobs of every arm.

    runs: the table of this name. arms: all arms in the study's order (for colours).
    """
    title = "What did each job cost?"
    columns = {"train_seconds": "training", "sample_seconds": "sampling for the evaluation"}
    known = {column: what for column, what in columns.items() if runs[column].notna().any()}
    if not known:
        return style.finish(style.notice(["the time of no job was measured on this machine"]), title, [])
    drawn = [arm for arm in arms if arm in set(runs.loc[runs[list(known)].notna().any(axis=1), "arm"])]
    parts = [_times(runs, column, what, drawn, column == next(iter(known))) for column, what in known.items()]
    total = {what: float(runs[column].sum()) for column, what in known.items()}
    said = " and ".join(f"{words.span(seconds)} of {what}" for what, seconds in total.items())
    lines = [f"Bar: mean over the runs of an arm; strokes: single runs. In all {said}."]
    unknown = int(runs[list(known)].isna().any(axis=1).sum())
    if unknown:
        lines.append(f"Not known of {unknown} of {len(runs)} runs, which were not made here or are missing.")
    return style.finish(alt.hconcat(*parts, spacing=24).resolve_scale(color="shared"), title, lines)
