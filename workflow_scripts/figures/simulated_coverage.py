"""What intervals cover in simulated studies: this project's, cell by cell, and those often reported instead."""

from collections.abc import Sequence

import altair as alt
import pandas as pd

from workflow_scripts.figures import style
from workflow_scripts.figures.tooltips import tell

PANEL, ROW = 230, 34
BAND = (93.5, 96.5)
WITH_INTERACTION = ", arm x problem"


def _rows(simulation: pd.DataFrame, part: str) -> pd.DataFrame:
    """Coverage in per cent with two Monte Carlo standard errors, and what the panels and rows are called."""
    rows = simulation[(simulation["part"] == part) & (simulation["quantity"] == "coverage")].copy()
    rows["coverage"], error = 100 * rows["value"], 200 * rows["mc_se"]
    rows["low"], rows["high"] = rows["coverage"] - error, (rows["coverage"] + error).clip(upper=100)
    rows["seeds"] = rows["looks"].astype(int)
    rows["setting"] = rows["problems"].astype(str) + " problems"
    rows["row"] = rows["distribution"]
    gaussian = (rows["row"] == "Gaussian") & (rows["var_arm_problem"] > 0)
    rows.loc[gaussian, "row"] += WITH_INTERACTION
    return rows


def _panel(rows: pd.DataFrame, title: str, y: str, least: float, seeds: Sequence[int]) -> alt.LayerChart:
    """One panel: a row per design or method, a point per number of seeds, over the nominal band."""
    order = list(dict.fromkeys(rows[y]))
    scale = alt.Scale(domain=[least, 100], nice=False, clamp=True)
    axis = alt.Axis(tickCount=7)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", title="coverage (%)", scale=scale, axis=axis)

    places = {
        "y": alt.Y(f"{y}:N", sort=order, title=None, axis=alt.Axis(ticks=False, domain=False, labelPadding=10)),
        "yOffset": alt.YOffset("seeds:O", sort=list(seeds)),
        "color": alt.Color(
            "seeds:O",
            scale=alt.Scale(domain=list(seeds), range=style.PALETTE[: len(seeds)]),
            legend=alt.Legend(title="seeds per arm", orient="bottom", symbolOpacity=1, symbolSize=90),
        ),
    }
    told = tell(y, "seeds", "coverage", "low", "high", "repetitions", low="from (%)", high="to (%)")
    band = pd.DataFrame({"low": [BAND[0]], "high": [BAND[1]]})
    return alt.layer(
        alt.Chart(band).mark_rect(color=style.BANDS[0]).encode(x=x("low"), x2="high:Q"),
        alt.Chart(pd.DataFrame({"at": [95.0]})).mark_rule(color=style.INK, strokeDash=[5, 4]).encode(x=x("at")),
        alt.Chart(rows).mark_rule(strokeWidth=3).encode(x=x("low"), x2="high:Q", **places),
        alt.Chart(rows).mark_point(filled=True, size=60, opacity=1).encode(
            x=x("coverage"), tooltip=told, **places
        ),
    ).properties(width=PANEL, height=ROW * len(order), title=title)  # fmt: skip


def simulated_coverage_chart(simulation: pd.DataFrame, ours: str) -> alt.TopLevelMixin:
    """Above: this project's intervals in every design, by problems and estimand. Below: the alternatives, from 0 %.

    simulation: the table of this name. ours: the method that is this project's.
    """
    cells, others = _rows(simulation, "coverage"), _rows(simulation, "alternatives")
    seeds = sorted(set(cells["seeds"]))
    settings = list(dict.fromkeys(cells["setting"]))
    above = [
        alt.hconcat(
            *[
                _panel(here[here["estimand"] == estimand], f"{setting}: {what}", "row", 86.0, seeds)
                for estimand, what in (("benchmark", "on these problems"), ("population", "on problems like these"))
            ],
            spacing=30,
        )
        for setting in settings
        for here in [cells[cells["setting"] == setting]]
    ]
    same = cells[(cells["row"] == "Gaussian" + WITH_INTERACTION) & (cells["estimand"] == "population")]
    compared = pd.concat([same[same["method"] == ours], others])
    below = alt.hconcat(
        *[
            _panel(compared[compared["setting"] == setting], f"{setting}: other methods", "method", 0.0, seeds)
            for setting in settings
        ],
        spacing=30,
    )
    return style.finish(
        alt.vconcat(*above, below, spacing=30),
        "Do 95 % intervals hold the truth in 95 % of simulated studies?",
        [
            "Point and bar: share of intervals that hold the true difference, with two Monte Carlo standard errors.",
            f"Band: {BAND[0]:g} to {BAND[1]:g} %. Last row: on problems like these, Gaussian, arm x problem; from 0 %.",
        ],
    )
