"""Forest plot: the primary effect of every arm over what noise alone does."""

import altair as alt
import pandas as pd

from workflow_scripts.figures import style

ROW, DENSE = 44, 24  # height of an arm's row, in pixels; of many arms
_USED = [
    "arm", "baseline", "role", "benchmark", "pass_at", "delta", "ci_low", "ci_high", "level", "margin",
]  # fmt: skip
BANDS = (
    "difference of two single runs of the baseline (95 %)",
    "difference that evaluation noise alone explains (95 %)",
)


def _rows(effects: pd.DataFrame) -> pd.DataFrame:
    """Primary effects, in points; `label` tells what the role of an arm is unless it is a plain comparison."""
    rows = effects[effects["primary"] & (effects["estimand"] == "benchmark")].copy()
    for column in ("delta", "ci_low", "ci_high"):
        rows[column] = 100 * rows[column]
    plain = (rows["role"] == "comparison") | (rows["role"] == rows["arm"])
    rows["label"] = rows["arm"].where(plain, rows["arm"] + " (" + rows["role"] + ")")
    rows["text"] = rows.apply(_beside, axis=1)
    return rows[[*_USED, "label", "text"]]


def _beside(row: pd.Series) -> str:
    """What is written to the right of an arm's interval."""
    if pd.isna(row["delta"]):
        known = isinstance(row["reason"], str) and row["reason"]
        return known or "no effect: the arm or the baseline has no scores"
    if pd.isna(row["ci_low"]):
        return "no interval: one seed says nothing about re-training"
    return str(row["verdict"])


def _bands(primary: pd.Series, noise_floors: pd.DataFrame) -> pd.DataFrame:
    """The bands behind the intervals, in points: what the baseline's re-training and evaluation alone explain."""
    here = noise_floors[
        (noise_floors["benchmark"] == primary["benchmark"])
        & (noise_floors["pass_at"] == primary["pass_at"])
        & noise_floors["band"].notna()
    ]
    retrained = (here["kind"] == "training") & (here["arm"] == primary["baseline"])
    chosen = (here[retrained].nlargest(1, "step"), here[here["kind"] == "evaluation"])
    found = [
        {"band": label, "low": -100 * rows["band"].max(), "high": 100 * rows["band"].max()}
        for label, rows in zip(BANDS, chosen, strict=True)
        if len(rows)
    ]
    return pd.DataFrame(found, columns=["band", "low", "high"])


def _background(first: pd.Series, bands: pd.DataFrame, what: str) -> list[alt.Chart]:
    """Noise bands, margin and zero line; `what` is the title of the axis."""
    margin = 100 * float(first["margin"])
    edges, zero = pd.DataFrame({"at": [-margin, margin]}), pd.DataFrame({"at": [0.0]})
    lines = [
        alt.Chart(edges).mark_rule(strokeDash=[5, 4], color=style.INK, opacity=0.8).encode(x=alt.X("at:Q", title=what)),
        alt.Chart(zero).mark_rule(color=style.INK, strokeWidth=1.5).encode(x=alt.X("at:Q", title=what)),
    ]
    if bands.empty:
        return lines
    fill = alt.Fill(
        "band:N",
        scale=alt.Scale(domain=list(BANDS), range=style.BANDS),
        legend=alt.Legend(
            title="noise floor", orient="bottom", labelLimit=400, direction="vertical", values=list(bands["band"])
        ),
    )
    return [alt.Chart(bands).mark_rect().encode(x=alt.X("low:Q", title=what), x2="high:Q", fill=fill), *lines]


def _intervals(rows: pd.DataFrame, y: alt.Y, what: str, arms: list[str]) -> list[alt.Chart]:
    """Bar and point of each arm; an arm without an interval gets a hollow grey point, one without an effect none."""
    colour = style.colour(arms).legend(None)
    sure = rows[rows["ci_low"].notna()]
    single = rows[rows["delta"].notna() & rows["ci_low"].isna()]
    layers = []
    if len(sure):
        layers = [
            alt.Chart(sure)
            .mark_rule(strokeWidth=4)
            .encode(y=y, x=alt.X("ci_low:Q", title=what), x2="ci_high:Q", color=colour),
            alt.Chart(sure)
            .mark_point(filled=True, size=130, opacity=1)
            .encode(y=y, x=alt.X("delta:Q", title=what), color=colour, tooltip=["arm", "delta", "ci_low", "ci_high"]),
        ]
    if len(single):
        point = alt.Chart(single).mark_point(size=110, color=style.FAINT)
        layers.append(point.encode(y=y, x=alt.X("delta:Q", title=what)))
    return layers


def _levels(rows: pd.DataFrame) -> str:
    """ "97.5 %", or "97.5 % (controls 95 %)" where the controls are judged outside the family."""
    family = rows["role"] == "comparison"
    parts = [sorted({f"{100 * level:.4g} %" for level in rows.loc[chosen, "level"]}) for chosen in (family, ~family)]
    compared, controls = (", ".join(part) for part in parts)
    return (
        f"{compared} (controls {controls})" if compared and controls and compared != controls else compared or controls
    )


def effects_chart(effects: pd.DataFrame, noise_floors: pd.DataFrame, arms: list[str]) -> alt.TopLevelMixin:
    """One row per arm: its primary effect with interval, in points, over the noise bands and the margin.

    effects, noise_floors: the tables of these names. arms: all arms in the study's order (for colours).
    """
    title = "What did each arm change?"
    rows = _rows(effects)
    if rows.empty:
        return style.finish(style.notice(["no comparison: the study has no arm beside its baseline"]), title, [])
    order = [str(row.label) for arm in arms for row in rows.itertuples() if row.arm == arm]
    first = rows.iloc[0]
    benchmark, baseline = (style.short(str(first[name])) for name in ("benchmark", "baseline"))
    what = f"pass@{first['pass_at']}, {benchmark}, difference from {baseline} in points"
    y = style.arm_axis(order, "label")
    verdicts = alt.Chart(rows).mark_text(align="left", fontSize=12, color=style.INK, dx=14, limit=320)
    chart = alt.layer(
        *_background(first, _bands(first, noise_floors), what),
        *_intervals(rows, y, what, arms),
        verdicts.encode(y=y, x=alt.value(style.WIDTH), text="text:N"),
    ).properties(width=style.WIDTH, height=max((DENSE if style.many(order) else ROW) * len(order), 70))
    return style.finish(
        chart,
        title,
        [
            f"Point and bar: effect, {_levels(rows)} interval over re-trainings. "
            f"Dashed: margin, ±{100 * first['margin']:g} points.",
            "Right of the solid line is better than the baseline; a bar that crosses it could be either.",
        ],
    )
