"""What clip policies did and would have done with the recorded ratios: quadrants and decisive tokens."""

import altair as alt
import pandas as pd

from workflow_scripts.figures import naming, style
from workflow_scripts.figures.tooltips import tell

PANEL, ROW, CELL = 250, 22, 64
WRITTEN = 8  # policies beside each other up to which a cell has room for its number
# arXiv:2601.03895 Fig. 2: sign of the advantage in rows, side of the ratio in columns
QUADRANTS = (
    (2, "advantage above 0, ratio below its bounds"), (1, "advantage above 0, ratio above its bounds"),
    (3, "advantage below 0, ratio below its bounds"), (4, "advantage below 0, ratio above its bounds"),
)  # fmt: skip
CLIPPED = (1, 3)  # where PPO's clip takes the gradient away


def _all_counts(policies: pd.DataFrame) -> pd.DataFrame:
    """The rows over all rollouts that have an answer."""
    return policies[policies["group_correct"].isna() & (policies["tokens"] > 0)]


def _shares(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Share (%) of tokens in each quadrant, pooled: by, quadrant, share."""
    names = [f"quadrant_{number}_tokens" for number, _ in QUADRANTS]
    sums = rows.groupby(by, as_index=False)[["tokens", *names]].sum()
    long = sums.melt([*by, "tokens"], names, "quadrant", "count")
    return long.assign(share=(100 * long["count"].astype(float) / long["tokens"].astype(float)).round(4))


def quadrants_chart(policies: pd.DataFrame, arms: list[str]) -> alt.TopLevelMixin:
    """Share of tokens beyond their own policy's bounds, by sign of the advantage and side of the ratio.

    policies: the table of this name. arms: all arms in the study's order (for colours).
    """
    title = "Which tokens lie beyond the bounds?"
    rows = _all_counts(policies)
    rows = rows[rows["own"].astype(bool) & rows["quadrant_1_tokens"].notna()]
    if rows.empty:
        why = policies.loc[policies["own"].astype(bool), "reason"].dropna()
        said = str(
            next(iter(why), "no arm has recorded updates after the first of a batch, under a clip policy of its own")
        )
        return style.finish(style.notice([said]), title, [])
    pooled, runs = _shares(rows, ["arm"]), _shares(rows, ["arm", "seed"])
    drawn = [arm for arm in arms if arm in set(pooled["arm"])]
    scale = alt.Scale(domain=[0, max(1.05 * float(runs["share"].max()), 0.1)], nice=True)
    parts = []
    for number, said in QUADRANTS:
        x = alt.X("share:Q", title="tokens (%)", scale=scale, axis=alt.Axis(tickCount=5))
        y = style.arm_axis(drawn, arms) if number in (2, 3) else style.arm_axis(drawn, arms).axis(None)
        name = f"quadrant_{number}_tokens"
        here = pooled.loc[pooled["quadrant"] == name, ["arm", "share"]]
        each = runs.loc[runs["quadrant"] == name, ["arm", "seed", "share"]]
        bars = alt.Chart(here).mark_bar(size=ROW - 8, opacity=0.75)
        bars = bars.encode(
            x=x, y=y, color=style.colour(arms).legend(None), tooltip=tell("arm", "share", share="tokens (%)")
        )
        ticks = alt.Chart(each).mark_tick(thickness=1.5, size=ROW - 6, color=style.INK)
        ticks = ticks.encode(x=x, y=y, tooltip=tell("arm", "seed", "share", share="tokens (%)"))
        label = f"{said}{': clipped' if number in CLIPPED else ''}"
        height = max(ROW * len(drawn), 40)
        parts.append(alt.layer(bars, ticks).properties(width=PANEL, height=height, title=style.heading(label)))
    lines = [
        "Bar: all runs of an arm; strokes: single runs. Tokens at update index 1 and later, of an arm's own policy."
    ]
    without = [arm for arm in arms if arm not in drawn]
    if without:
        named = naming.first(without, arms, style.NAMED)
        lines.append(f"No clip policy that the records can answer for: {named}.")
    return style.finish(alt.concat(*parts, columns=2, spacing={"row": 18, "column": 24}), title, lines)


def _decisive(policies: pd.DataFrame, arms: list[str]) -> pd.DataFrame:
    """arm (whose runs), policy, share (%) of tokens for which it decides otherwise than the arm's own."""
    rows = _all_counts(policies)
    own = set(zip(rows.loc[rows["own"].astype(bool), "arm"], rows.loc[rows["own"].astype(bool), "policy"], strict=True))
    known = rows[rows["decisive_tokens"].notna()]
    sums = known.groupby(["arm", "policy"], as_index=False)[["decisive_tokens", "tokens"]].sum()
    sums["share"] = 100 * sums["decisive_tokens"].astype(float) / sums["tokens"].astype(float)
    found = sums[sums["arm"].isin(arms)][["arm", "policy", "share"]]
    is_own = [pair in own for pair in zip(found["arm"], found["policy"], strict=True)]
    said = found["share"].map("{:.2g} %".format)
    return found.assign(share=found["share"].round(4), text=said.mask(pd.Series(is_own, index=found.index), "own"))


def decisive_tokens_chart(policies: pd.DataFrame, arms: list[str]) -> alt.TopLevelMixin:
    """Where another clip policy would have decided otherwise: a row for the runs of an arm, a column for a policy.

    policies: the table of this name. arms: all arms in the study's order.
    """
    title = "For how many tokens would another clip policy decide otherwise?"
    found = _decisive(policies, arms)
    if found.empty:
        why = policies["reason"].dropna()
        said = str(next(iter(why), "no clip policy was asked, or no arm clips: there is nothing to decide"))
        return style.finish(style.notice([said]), title, [])
    columns = [p for p in dict.fromkeys([*arms, *found["policy"]]) if p in set(found["policy"])]
    rows = [arm for arm in arms if arm in set(found["arm"])]
    cell = CELL if len(columns) <= WRITTEN else 24
    axis = alt.Axis(
        labelAngle=-40, labelLimit=naming.PIXELS, orient="top", labelExpr=naming.expression([*arms, *columns])
    )
    x = alt.X("policy:N", sort=columns, title="clip policy", axis=axis)
    colour = alt.Color(
        "share:Q",
        scale=alt.Scale(scheme=style.HEAT, domain=[0, max(float(found["share"].max()), 0.1)]),
        legend=alt.Legend(title="tokens (%)"),
    )
    base = alt.Chart(found).encode(
        x=x, y=style.arm_axis(rows, [*arms, *columns]), tooltip=tell("arm", "policy", "text")
    )
    layers = [base.mark_rect().encode(color=colour)]
    if len(columns) <= WRITTEN:
        half = float(found["share"].max()) / 2
        on_light = alt.condition(f"datum.share > {half}", alt.value("#111"), alt.value("#fff"))
        layers.append(base.mark_text(fontSize=12).encode(text="text:N", color=on_light))
    chart = alt.layer(*layers).properties(width=cell * len(columns), height=max(ROW, 24) * len(rows))
    lines = [
        "Row: runs of an arm. Column: what that policy would have clipped or let pass, unlike the arm's own.",
        "Where a cell is near 0 the two policies are the same to this training; a missing one could not be asked.",
    ]
    return style.finish(chart, title, lines)
