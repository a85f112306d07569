"""Forest plot: the primary effect of every arm over what noise alone does."""

import altair as alt
import pandas as pd

from workflow_scripts.figures import style

ROW = 44  # height of an arm's row, in pixels


def _rows(effects: pd.DataFrame) -> pd.DataFrame:
    """Primary effects, in points; `label` tells what the role of an arm is unless it is a plain comparison."""
    rows = effects[effects["primary"] & (effects["estimand"] == "benchmark")].copy()
    for column in ("delta", "ci_low", "ci_high"):
        rows[column] = 100 * rows[column]
    plain = (rows["role"] == "comparison") | (rows["role"] == rows["arm"])
    rows["label"] = rows["arm"].where(plain, rows["arm"] + " (" + rows["role"] + ")")
    rows["text"] = rows.apply(_beside, axis=1)
    return rows


def _beside(row: pd.Series) -> str:
    """What is written to the right of an arm's interval."""
    if pd.isna(row["delta"]):
        return str(row["reason"] or "no effect: the arm or the baseline has no scores")
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
    chosen = {
        "difference of two single runs of the baseline (95 %)": here[retrained].nlargest(1, "step"),
        "difference that evaluation noise alone explains (95 %)": here[here["kind"] == "evaluation"],
    }
    found = [{"band": label, "half": 100 * rows["band"].max()} for label, rows in chosen.items() if len(rows)]
    bands = pd.DataFrame(found, columns=["band", "half"])
    return bands.assign(low=-bands["half"], high=bands["half"])


def effects_chart(effects: pd.DataFrame, noise_floors: pd.DataFrame, arms: list[str]) -> alt.TopLevelMixin:
    """One row per arm: its primary effect with interval, in points, over the noise bands and the margin.

    effects, noise_floors: the tables of these names. arms: all arms in the study's order (for colours).
    """
    title = "What did each arm change?"
    rows = _rows(effects)
    if rows.empty:
        return style.finish(style.notice(["no comparison: the study has no arm beside its baseline"]), title, [])
    order = [row.label for arm in arms for row in rows.itertuples() if row.arm == arm]
    first = rows.iloc[0]
    what = f"pass@{first['pass_at']}, {first['benchmark']}, difference from {first['baseline']} in points"
    y = alt.Y("label:N", sort=order, title=None, axis=alt.Axis(ticks=False, domain=False, labelPadding=10))
    x = alt.X("delta:Q", title=what)
    margin = 100 * float(first["margin"])
    edges = pd.DataFrame({"at": [-margin, margin]})
    zero = pd.DataFrame({"at": [0.0]})
    bands = _bands(first, noise_floors)
    base = alt.Chart(rows)
    layers = [
        alt.Chart(bands)
        .mark_rect()
        .encode(
            x=alt.X("low:Q", title=what),
            x2="high:Q",
            fill=alt.Fill(
                "band:N",
                scale=alt.Scale(domain=list(bands["band"]), range=style.BANDS),
                legend=alt.Legend(title="noise floor", orient="bottom", labelLimit=400, direction="vertical"),
            ),
        ),
        alt.Chart(edges).mark_rule(strokeDash=[5, 4], color=style.INK, opacity=0.8).encode(x="at:Q"),
        alt.Chart(zero).mark_rule(color=style.INK, strokeWidth=1.5).encode(x="at:Q"),
        base.transform_filter("isValid(datum.ci_low)")
        .mark_rule(strokeWidth=4)
        .encode(y=y, x=alt.X("ci_low:Q", title=what), x2="ci_high:Q", color=style.colour(arms).legend(None)),
        base.transform_filter("isValid(datum.ci_low)")
        .mark_point(filled=True, size=130, opacity=1)
        .encode(y=y, x=x, color=style.colour(arms).legend(None), tooltip=["arm", "delta", "ci_low", "ci_high"]),
        base.transform_filter("isValid(datum.delta) && !isValid(datum.ci_low)")
        .mark_point(size=110, color=style.FAINT)
        .encode(y=y, x=x),
        base.mark_text(align="left", fontSize=12, color=style.INK, dx=14)
        .encode(y=y, x=alt.value(style.WIDTH), text="text:N"),
    ]  # fmt: skip
    if not len(bands):
        layers = layers[1:]
    chart = alt.layer(*layers).properties(width=style.WIDTH, height=max(ROW * len(order), 70))
    level = f"{100 * first['level']:.4g} %" if pd.notna(first["level"]) else ""
    return style.finish(
        chart,
        title,
        [
            f"Point and bar: effect with its {level} interval over re-trainings. Dashed: margin, ±{margin:g} points.",
            "Right of the solid line is better than the baseline; a bar that crosses it shows no difference.",
        ],
    )
