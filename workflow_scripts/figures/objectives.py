"""Objectives as code has them: how much a token still counts at a ratio, and where the upper bound lies."""

import altair as alt
import pandas as pd

from workflow_scripts.figures import naming, panels, style
from workflow_scripts.figures.tooltips import tell

PANEL, HEIGHT, DENSE = 210, 80, 36
SIGNS = {False: "advantage below 0", True: "advantage above 0"}
# one line of each place: the count c of k, or the probability p of the token where the bounds follow that instead; all
# unlike, since one legend may hold them all
LINES = {
    "every c": [1, 0], "c = 1": [9, 2], "c = k/2": [5, 3], "c = k − 1": [2, 2], "p = 0.05": [9, 2, 2, 2],
    "p = 0.5": [5, 2, 2, 2], "p = 0.95": [2, 2, 2, 5],
}  # fmt: skip
_CURVE = ["positive", "group_correct", "old_probability", "log_ratio"]


def _alike(objectives: pd.DataFrame, arms: list[str], by: list[str], value: str) -> list[list[str]]:
    """The arms in sets whose rows are the same, in the study's order."""
    found: dict[tuple[object, ...], list[str]] = {}
    for arm in arms:
        rows = objectives[(objectives["arm"] == arm) & objectives["reason"].isna()].sort_values(by)
        if len(rows):
            told = rows[[*by, value]].astype("float64").round(9).fillna(-1).to_numpy().tobytes()
            found.setdefault((rows["ratio"].iloc[0], rows["group_size"].iloc[0], told), []).append(arm)
    return list(found.values())


def _labels(sets: list[list[str]], arms: list[str]) -> dict[str, str]:
    """The first arm of each set, and the names of the set in up to three lines; no two sets alike."""
    cut, found = naming.labels(arms), {}
    for alike in sets:
        said = [cut[arm] for arm in alike]
        if len(said) > 3:
            said = [*said[:2], f"and {len(said) - 2} more"]
        found[alike[0]] = f",{naming.BREAK}".join(said).replace(f",{naming.BREAK}and ", f"{naming.BREAK}and ")
    return found


def _curves(rows: pd.DataFrame) -> pd.DataFrame:
    """A few lines of one objective, for each sign of the advantage: log_ratio, gradient_weight, positive, line."""
    size, found = int(rows["group_size"].iloc[0]), []
    for _, here in rows.groupby("positive"):
        bounds = here[["lower_bound", "upper_bound"]]
        if here["old_probability"].notna().any():
            chosen = here[here["group_correct"] == max(1, size // 2)]
            line = chosen["old_probability"].map("p = {:g}".format)
        else:
            places = {1: "c = 1", max(1, size // 2): "c = k/2", size - 1: "c = k − 1"}
            places = places if (bounds.nunique() > 1).any() else {1: "every c"}
            chosen = here[here["group_correct"].isin(list(places))]
            line = chosen["group_correct"].astype(int).map(places)
        found.append(chosen[["positive", "log_ratio", "gradient_weight"]].assign(line=line))
    return pd.concat(found).round({"log_ratio": 7, "gradient_weight": 5})


def _weights(
    curves: pd.DataFrame, ratio: str, labels: dict[str, str], hues: list[str], used: list[str]
) -> alt.FacetChart:
    """A row for each set of arms, both signs of the advantage side by side, all to one scale."""
    names = list(labels.values())
    top = max(1.2, min(1.1 * float(curves["gradient_weight"].max()), 5.0))
    far = float(curves["log_ratio"].abs().max())
    x_scale = alt.Scale(domain=[-far, far], nice=False)
    x = alt.X("log_ratio:Q", title=f"log {ratio} ratio", scale=x_scale, axis=alt.Axis(tickCount=5))
    y = alt.Y("gradient_weight:Q", title=None, axis=alt.Axis(tickCount=2), scale=alt.Scale(domain=[0, top], clamp=True))
    dash = alt.StrokeDash(
        "line:N",
        scale=alt.Scale(domain=used, range=[LINES[name] for name in used]),
        legend=alt.Legend(
            title="c correct of k", orient="bottom", symbolType="stroke", symbolStrokeWidth=2, symbolSize=900
        ),
    )
    colour = alt.Color("label:N", scale=alt.Scale(domain=names, range=hues), legend=None)
    rows = curves.assign(label=curves["arm"].map(labels), sign=curves["positive"].map(SIGNS))
    line = alt.Chart(rows[["label", "sign", "log_ratio", "gradient_weight", "line"]]).mark_line(
        strokeWidth=2.5, aria=False
    )
    line = line.encode(
        x=x, y=y, color=colour, strokeDash=dash, tooltip=tell("label", "line", "log_ratio", "gradient_weight")
    )
    beside = alt.Header(
        title=None, labelAngle=0, labelAlign="left", labelLimit=naming.PIXELS, labelAnchor="middle", labelPadding=4
    )
    above = alt.Header(title=None, labelAnchor="start", labelPadding=4)
    return line.properties(width=PANEL, height=DENSE if style.many(names) else HEIGHT).facet(
        row=alt.Row("label:N", sort=names, header=beside),
        column=alt.Column("sign:N", sort=list(SIGNS.values()), header=above),
        spacing={"row": 12, "column": 20},
    )


def gradient_weight_chart(objectives: pd.DataFrame, arms: list[str]) -> alt.TopLevelMixin:
    """What part of its gradient a token keeps at each ratio, a row of panels for each objective.

    objectives: the table of this name. arms: all arms in the study's order (for colours).
    """
    title = "How much does a token still count when its ratio has moved?"
    known = objectives[objectives["gradient_weight"].notna()]
    sets = _alike(known, arms, _CURVE, "gradient_weight")
    if not sets:
        why = next(iter(objectives["reason"].dropna()), "no objective has been evaluated")
        return style.finish(style.notice([str(why)]), title, [])
    labels = _labels(sets, arms)
    curves = pd.concat([_curves(known[known["arm"] == arm]).assign(arm=arm) for arm in labels])
    ratios = known.drop_duplicates("arm").set_index("arm")["ratio"]
    used = [name for name in LINES if (curves["line"] == name).any()]
    parts = []
    for ratio in ("token", "sequence"):
        here = {arm: label for arm, label in labels.items() if ratios[arm] == ratio}
        if here:
            hues = [style.PALETTE[arms.index(arm) % len(style.PALETTE)] for arm in here]
            parts.append(_weights(curves[curves["arm"].isin(list(here))], ratio, here, hues, used))
    return style.finish(
        alt.vconcat(*parts, spacing=18).resolve_scale(color="independent", strokeDash="shared"),
        title,
        [
            "Weight: derivative of the objective by the log-probability, over the advantage; 1 at ratio 1.",
            "Where the clip has taken the gradient it is 0. Arms of one row have the same.",
        ],
    )


def _widths(objectives: pd.DataFrame) -> pd.DataFrame:
    """Distance of the upper bound from 1 for A > 0 by arm and count; for bounds by probability at one half."""
    rows = objectives[objectives["positive"].fillna(False).astype(bool) & objectives["upper_bound"].notna()]
    rows = rows[rows["old_probability"].isna() | (rows["old_probability"] == 0.5)]
    found = rows.drop_duplicates(["arm", "group_correct"])
    return found.assign(width=(found["upper_bound"] - 1).round(9))[
        ["arm", "ratio", "group_size", "group_correct", "width", "reason"]
    ]


def _width_panel(widths: pd.DataFrame, ratio: str, arms: list[str]) -> alt.Chart | alt.LayerChart:
    labels = _labels(_alike(widths, arms, ["group_correct"], "width"), arms)
    x = alt.X("group_correct:O", title="correct rollouts in the group", axis=alt.Axis(labelAngle=0, labelOverlap=True))
    title = f"upper bound of the {ratio} ratio − 1"
    if style.many(list(labels)):
        return panels.heat(widths, x, "width", title, [arm for arm in arms if arm in set(widths["arm"])], style.WIDTH)
    rows = style.in_order(widths[widths["arm"].isin(list(labels))], arms).assign(
        label=lambda one: one["arm"].map(labels)
    )
    hues = [style.PALETTE[arms.index(arm) % len(style.PALETTE)] for arm in labels]
    colour = alt.Color(
        "label:N",
        scale=alt.Scale(domain=list(labels.values()), range=hues),
        legend=alt.Legend(title="arm", orient="bottom", columns=1, labelLimit=naming.PIXELS, symbolType="stroke"),
    )
    y = alt.Y("width:Q", title=title, scale=alt.Scale(domain=[0, 1.1 * float(rows["width"].max()) or 1.0]))
    base = alt.Chart(rows[["label", "weight", "group_correct", "width"]]).encode(x=x, y=y, color=colour)
    line = base.mark_line().encode(strokeWidth=style.WEIGHT)
    dots = base.mark_point(aria=False, filled=True, size=50, opacity=1).encode(
        tooltip=tell("label", "group_correct", "width")
    )
    return alt.layer(line, dots).properties(width=style.WIDTH, height=220)


def upper_bounds_chart(objectives: pd.DataFrame, arms: list[str]) -> alt.TopLevelMixin:
    """How far above 1 each arm lets the ratio of a rewarded answer go, by the number of correct rollouts.

    objectives: the table of this name. arms: all arms in the study's order (for colours).
    """
    title = "Where does the upper bound lie?"
    widths = _widths(objectives)
    if widths.empty:
        return style.finish(style.notice(["no arm has an upper bound for rewarded answers"]), title, [])
    kinds = [kind for kind in ("token", "sequence") if kind in set(widths["ratio"])]
    parts = [_width_panel(widths[widths["ratio"] == kind], kind, arms) for kind in kinds]
    chart = alt.vconcat(*parts, spacing=24).resolve_scale(color="independent")
    lines = ["Distance of the upper bound from 1 for advantages above 0, as the policy's code gives it."]
    without = [arm for arm in arms if arm not in set(widths["arm"])]
    if without:
        lines.append(f"No upper bound: {naming.first(without, arms, style.NAMED)}.")
    if (objectives["old_probability"] == 0.5).any():
        lines.append("Bounds that follow a token's probability are shown at one half.")
    return style.finish(chart, title, lines)
