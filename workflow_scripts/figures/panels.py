"""A quantity of every arm over some x, drawn so that the arms can be told apart however many they are.

Up to `style.MANY` arms: lines in one chart, thin for runs and bold for arms. More: a heat map with a row for each arm,
in which only the means are shown (what its seeds do is in the noise floors), or small multiples against the baseline.
"""

from typing import Any

import altair as alt
import pandas as pd

from workflow_scripts.figures import naming, style
from workflow_scripts.figures.tooltips import tell

COINCIDE = "Where lines coincide, arms further up in the legend are the wider ones below."
POINTS = 24  # windows of training side by side in a line: the noise of single updates hides the arms
ROW = 18  # of a heat map, in pixels
SMALL, COLUMNS = (160, 80), 4  # width and height of a small multiple, and how many stand beside each other


def windows(rows: pd.DataFrame, values: list[str], by: list[str], points: int = POINTS) -> tuple[pd.DataFrame, int]:
    """(mean of each value in equal windows of training, updates in a window); step is the last one of a window.

    A window holds whole rollout batches, which would be steps in the line otherwise. rows: step, update_index, the
    columns of `by`, and the values.
    """
    batch = int(rows["update_index"].max()) + 1
    width = batch * max(1, -(-int(rows["step"].max()) // (points * batch)))
    last = -(-rows["step"] // width) * width
    return rows.assign(step=last).groupby([*by, "step"], as_index=False)[values].mean(), width


def highlight() -> alt.Parameter:
    """A click on an arm in the legend leaves it alone in full ink; html only, the svg shows all.

    It is added once to a whole chart, whose first layer has the arms' colours.
    """
    return alt.selection_point(fields=["arm"], bind="legend", name="shown_arm")


def lines(
    runs: pd.DataFrame, means: pd.DataFrame, x: alt.X, y: alt.Y, arms: list[str], shown: alt.Parameter | None = None
) -> list[alt.Chart]:
    """Thin lines of runs below bold lines of arms, with a dot at each mean. runs: arm, seed, x, y; means: arm, x, y.

    Later arms are drawn narrower and on top, so that none vanishes where they coincide.
    """
    colour, means = style.colour(arms), style.in_order(means, arms)
    fields = [x.shorthand.split(":")[0], y.shorthand.split(":")[0]]
    runs = runs.assign(run=runs["arm"] + " " + runs["seed"].astype(str))[["arm", "seed", "run", *fields]]
    thin = (
        alt.Chart(runs)
        .mark_line(strokeWidth=1, opacity=0.35, aria=False)
        .encode(x=x, y=y, color=colour, detail="run:N")
    )
    bold = alt.Chart(means[["arm", "weight", *fields]]).mark_line(strokeWidth=3)  # which `weight` replaces
    bold = bold.encode(
        x=x,
        y=y,
        color=colour,
        strokeDash=style.dash(arms),
        strokeWidth=style.WEIGHT,
        tooltip=tell("arm", *fields),
    )
    dots = alt.Chart(means[["arm", "dot", *fields]]).mark_point(filled=True, opacity=1)
    dots = dots.encode(x=x, y=y, color=colour, size=style.DOT, tooltip=tell("arm", *fields))
    if shown is None:
        return [thin, bold, dots]
    thin = thin.encode(opacity=alt.condition(shown, alt.value(0.35), alt.value(0.03)))
    faded = alt.condition(shown, alt.value(1), alt.value(0.08))
    return [thin, bold.encode(opacity=faded), dots.encode(opacity=faded)]


def heat(
    means: pd.DataFrame, x: alt.X, value: str, title: str, arms: list[str], width: int, names: bool = True,
    told: tuple[str, ...] = (), **scale: Any,
) -> alt.Chart:  # fmt: skip
    """A row for each arm, a column for each x, the value as colour. means: arm, x, value.

    names: with the arms' names; False where a chart to its left has them. told: more columns of the tooltip. scale: of
    the colours.
    """
    y = style.arm_axis(arms)
    fields = [x.shorthand.split(":")[0], value, *told]
    return (
        alt.Chart(means[["arm", *fields]])
        .mark_rect(aria=False)  # a text for each cell would be most of the svg
        .encode(
            x=x,
            y=y if names else y.axis(None),
            color=alt.Color(
                f"{value}:Q",
                scale=alt.Scale(**({"scheme": style.HEAT} | scale)),
                legend=alt.Legend(title=title, orient="bottom", gradientLength=min(width, 180), titleLimit=width),
            ),
            tooltip=tell("arm", *fields),
        )
        .properties(width=width, height=ROW * means["arm"].nunique())
    )


def multiples(
    runs: pd.DataFrame, means: pd.DataFrame, x: alt.X, y: alt.Y, arms: list[str], baseline: str | None
) -> alt.FacetChart:
    """A small chart for each arm, all to one scale: its mean bold over the range of its runs, the baseline's grey."""
    at, value = (channel.shorthand.split(":")[0] for channel in (x, y))
    found = runs.groupby(["arm", at])[value].agg(low="min", high="max").reset_index()
    rows = means[["arm", at, value]].merge(found, on=["arm", at], how="left")
    against = means.loc[means["arm"] == baseline, [at, value]].rename(columns={value: "against"})
    rows = rows.merge(against, on=at, how="left").round(3)
    drawn = [arm for arm in arms if arm in set(rows["arm"])]
    base = alt.Chart(rows).encode(x=x, color=style.colour(arms).legend(None))
    fill, grey = style.colour(arms).legend(None), {"strokeWidth": 2, "color": style.FAINT, "aria": False}
    chart = alt.layer(
        alt.Chart(rows).mark_area(opacity=0.3, aria=False).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=fill),
        alt.Chart(rows).mark_line(**grey).encode(x=x, y=alt.Y("against:Q")),
        base.mark_line(strokeWidth=2.5, aria=False).encode(y=y, tooltip=tell("arm", at, value, "low", "high")),
    ).properties(width=SMALL[0], height=SMALL[1])
    header = alt.Header(
        title=None,
        labelAnchor="start",
        labelFontSize=11,
        labelLimit=naming.PIXELS,
        labelPadding=2,
        labelExpr=naming.expression(arms),
    )
    facet = alt.Facet("arm:N", sort=drawn, header=header)
    return chart.facet(facet=facet, columns=COLUMNS, spacing={"row": 8, "column": 12})
