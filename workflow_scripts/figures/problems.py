"""Which problems: effects by difficulty, solve rates problem by problem, and how many problems are solved how often."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from workflow_scripts.figures import naming, panels, style
from workflow_scripts.figures.tooltips import tell

SPLITS = {"base_solve_rate": "solve rate of the base model", "difficulty": "difficulty"}
BINS, CELLS = 100, 1600  # of the heat map: problems (or means of several) in a row, and cells in all
BASE = "base"


def _difficulty_panel(
    rows: pd.DataFrame, what: str, arms: list[str], drawn: list[str], shown: alt.Parameter, peak: float
) -> alt.TopLevelMixin:
    """Effects on one way of splitting the problems. peak: end of the colours of a heat map, on both sides."""
    bins = list(dict.fromkeys(rows.sort_values("place")["bin"]))
    axis = alt.Axis(labelAngle=0 if len(bins) < 9 else -45, labelLimit=naming.PIXELS)
    x = alt.X("bin:N", title=what, sort=bins, axis=axis)
    if style.many(drawn):
        return panels.heat(
            rows, x, "delta", "points", drawn, 300, scheme="blueorange", domain=[-peak, peak], reverse=True
        )
    colour = style.colour(arms).legend(style.legend(arms, values=drawn))
    beside = alt.XOffset("arm:N", sort=drawn)
    y = alt.Y("delta:Q", title="difference from the baseline (points)")
    zero = alt.Chart(pd.DataFrame({"delta": [0.0]})).mark_rule(color=style.INK).encode(y=y)
    faded = alt.condition(shown, alt.value(1), alt.value(0.1))
    base = alt.Chart(rows[["arm", "bin", "delta", "ci_low", "ci_high", "problems"]])
    base = base.encode(x=x, xOffset=beside, color=colour, opacity=faded)
    bars = (
        base.transform_filter("isValid(datum.ci_low)")
        .mark_rule(strokeWidth=2.5)
        .encode(y=alt.Y("ci_low:Q"), y2="ci_high:Q")
    )
    sure = ("ci_low", "ci_high") if rows["ci_low"].notna().all() else ()  # a tooltip would say "null"
    told = ("arm", "bin", "delta", *sure, "problems")
    dots = base.mark_point(filled=True, size=60).encode(y=y, tooltip=tell(*told))
    return alt.layer(bars, dots, zero).properties(width=alt.Step(max(13, 60 // len(drawn))), height=240)


def difficulty_chart(difficulty: pd.DataFrame, pass_at: int, arms: list[str]) -> alt.TopLevelMixin:
    """Effect of each arm on easy and on hard problems, with 95 % intervals.

    difficulty: the table of this name. pass_at: of the primary endpoint. arms: all arms in the study's order.
    """
    title = "Do the arms change easy problems or hard ones?"
    rows = difficulty[(difficulty["pass_at"] == pass_at) & difficulty["delta"].notna()]
    rows = rows[rows["step"] == rows.groupby(["arm", "benchmark"])["step"].transform("max")]
    if rows.empty:
        return style.finish(style.notice(["no arm beside the baseline with scores: no effect to split"]), title, [])
    rows = rows.assign(**{name: (100 * rows[name]).round(3) for name in ("delta", "ci_low", "ci_high")})
    drawn = [arm for arm in arms if arm in set(rows["arm"])]
    shown, peak = panels.highlight(), float(rows["delta"].abs().max()) or 1.0
    parts: list[Any] = []
    for (benchmark, split), here in rows.groupby(["benchmark", "split_by"], sort=True):
        if here["bin"].nunique() > 1 or len(parts) == 0:
            what = SPLITS.get(str(split), str(split))
            what = f"{naming.short(str(benchmark))}: {what}" if rows["benchmark"].nunique() > 1 else what
            parts.append(_difficulty_panel(here, what, arms, drawn, shown, peak))
    if style.many(drawn):
        lines = [f"Colour: effect on pass@{pass_at} in one set of problems, in points; intervals are in the table."]
    else:
        parts[0] = parts[0].add_params(shown)
        lines = [
            f"Point: effect on pass@{pass_at} in a set of problems; bar: its 95 % interval over re-trainings.",
            "Many intervals: a few of them exclude 0 by chance.",
        ]
    chart = alt.concat(*parts, columns=2, spacing=30).resolve_scale(x="independent", y="shared")
    return style.finish(chart, title, lines)


def solve_rates(counts: pd.DataFrame, arms: list[str]) -> pd.DataFrame:
    """Mean solve rate (%) of each set of problems by arm at its last step: benchmark, arm, bin, problems, rate.

    counts: arm, step, benchmark, problem_id, samples, correct; summed over seeds or not. Problems lie in the order of
    the base model's solve rate (where that is not known: of the mean over arms) and are joined to at most BINS sets.
    """
    last = counts[counts["step"] == counts.groupby("arm")["step"].transform("max")]
    sums = last.groupby(["benchmark", "arm", "problem_id"], as_index=False)[["correct", "samples"]].sum()
    sums = sums[sums["samples"] > 0]
    names = [name for name in [BASE, *arms] if name in set(sums["arm"])]
    most = max(1, min(BINS, CELLS // max(1, len(names) * sums["benchmark"].nunique())))
    found = []
    for benchmark, here in sums.assign(rate=100 * sums["correct"] / sums["samples"]).groupby("benchmark"):
        wide = here.pivot(index="problem_id", columns="arm", values="rate")
        key = wide[BASE] if BASE in wide else wide.mean(axis=1)
        wide = wide.loc[key.sort_values(kind="stable").index, [name for name in names if name in wide]]
        place = np.arange(len(wide)) * min(most, len(wide)) // len(wide)
        sizes = np.bincount(place)
        for name in wide:
            means = wide[name].groupby(place).mean().round(1)
            told = {"benchmark": benchmark, "arm": name, "bin": means.index, "rate": means.to_numpy()}
            found.append(pd.DataFrame(told).assign(problems=sizes[means.index]))
    columns = ["benchmark", "arm", "bin", "rate", "problems"]
    return pd.concat(found)[columns] if found else pd.DataFrame(columns=columns)


def solve_rates_chart(counts: pd.DataFrame, arms: list[str]) -> alt.TopLevelMixin:
    """Heat map of problems by arms. counts: the table of this name. arms: all arms in the study's order."""
    title = "Which problems does each arm solve?"
    rates = solve_rates(counts, arms)
    if rates.empty:
        return style.finish(style.notice(["nothing has been evaluated yet"]), title, [])
    parts = []
    for benchmark, here in rates.groupby("benchmark"):
        order = [name for name in [BASE, *arms] if name in set(here["arm"])]
        axis = alt.Axis(labels=False, ticks=False, domain=False)
        said = f"{naming.short(str(benchmark), 40)}: problems, from the hardest to the easiest for the base model"
        x = alt.X("bin:O", title=said, axis=axis, scale=alt.Scale(padding=0))
        told = ("problems",)
        parts.append(panels.heat(here, x, "rate", "solved (%)", order, style.WIDTH, told=told, domain=[0, 100]))
    most = int(rates["problems"].max())
    lines = ["A column is one problem" if most == 1 else f"A column is the mean of up to {most} problems"]
    lines[0] += "; its colour is the share of correct samples over all runs of the arm at their last step."
    lines.append("Problems are ordered by the base model's samples, so its own row rises by chance too.")
    return style.finish(alt.vconcat(*parts, spacing=26), title, lines)


def _histogram(coverage: pd.DataFrame, arms: list[str]) -> pd.DataFrame:
    """Share (%) of the problems that an arm solved in k of n samples, at its last step, pooled over its runs."""
    rows = coverage[(coverage["level"] == "arm") & coverage["solve_rate_histogram"].notna()]
    rows = rows[rows["arm"].isin([BASE, *arms])]
    rows = rows[rows["step"] == rows.groupby(["arm", "benchmark"])["step"].transform("max")]
    found = []
    for row in rows.itertuples():
        sizes = np.asarray(row.solve_rate_histogram, dtype=float)
        if sizes.sum():
            share = (100 * sizes / sizes.sum()).round(3)
            told = {"benchmark": row.benchmark, "arm": row.arm, "solved": np.arange(len(sizes)), "share": share}
            found.append(pd.DataFrame(told))
    return pd.concat(found) if found else pd.DataFrame(columns=["benchmark", "arm", "solved", "share"])


def coverage_chart(coverage: pd.DataFrame, arms: list[str]) -> alt.TopLevelMixin:
    """Histogram of problems by the number of their correct samples, the base model dashed.

    coverage: the table of this name. arms: all arms in the study's order (for colours).
    """
    title = "How many problems are solved how often?"
    rows = _histogram(coverage, arms)
    if rows.empty:
        return style.finish(style.notice(["nothing has been evaluated yet"]), title, [])
    shown, parts = panels.highlight(), []
    for benchmark, here in rows.groupby("benchmark"):
        most = int(here["solved"].max())
        what = f"correct samples of {most}, {naming.short(str(benchmark), 40)}"
        if style.many(arms):
            names = [name for name in [BASE, *arms] if name in set(here["arm"])]
            x = alt.X("solved:O", title=what, axis=alt.Axis(labelAngle=0, labelOverlap=True))
            parts.append(
                panels.heat(
                    here, x, "share", "problems (%)", names, style.WIDTH, domain=[0, float(here["share"].max())]
                )
            )
            continue
        x = alt.X("solved:Q", title=what, axis=alt.Axis(tickMinStep=1, tickCount=min(most, 16)))
        y = alt.Y("share:Q", title="problems (%)", scale=style.from_zero(here["share"], 1.0, 100.0))
        base, trained = here[here["arm"] == BASE], here[here["arm"] != BASE]
        _, *layers = panels.lines(trained.assign(seed=0), trained, x, y, arms, shown)  # there is one for each arm alone
        dashed = alt.Chart(base[["solved", "share"]]).mark_line(strokeDash=[3, 3], color=style.FAINT, strokeWidth=2)
        parts.append(alt.layer(*layers, dashed.encode(x=x, y=y)).properties(width=style.WIDTH, height=220))
    lines = [
        "Left end: problems never solved; right end: solved in every sample. All runs of an arm at their last step."
    ]
    if not style.many(arms):
        parts[0] = parts[0].add_params(shown)
        lines.append(f"Grey, dashed: the base model before training. {panels.COINCIDE}")
    return style.finish(alt.vconcat(*parts, spacing=26), title, lines)
