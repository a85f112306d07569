"""Noise floors: how far apart do runs of one arm end, and how much of that is the evaluation?"""

import altair as alt
import pandas as pd

from workflow_scripts.figures import naming, narrow, style
from workflow_scripts.figures.tooltips import tell

SMALL_SHARE = (
    0.25  # below it the table says that only more seeds help: statistics/noise_floor.py, where a test compares
)


def _beside(verdict: str | None, share: float) -> str:
    """The table's word, and the share it rests on."""
    return str(verdict or "") if pd.isna(share) else f"{verdict} ({100 * share:.0f} %)"


def noise_floors_chart(noise_floors: pd.DataFrame, pass_at: int, arms: list[str]) -> alt.TopLevelMixin:
    """Seed-to-seed SD of each arm's last score with its interval, that of sampling alone, and what would help.

    noise_floors: the table of this name. pass_at: of the primary endpoint. arms: all arms in the study's order.
    """
    title = "How far apart do re-trainings end?"
    if noise_floors.empty:
        return style.finish(style.notice(["nothing has been evaluated yet"]), title, [])
    names = sorted(noise_floors["benchmark"].unique())
    benchmark = "macro" if "macro" in names else names[0]
    here = noise_floors[(noise_floors["benchmark"] == benchmark) & (noise_floors["pass_at"] == pass_at)]
    training = here[(here["kind"] == "training") & here["sd"].notna()]
    training = training.sort_values("step").drop_duplicates("arm", keep="last").copy()
    if training.empty:
        return style.finish(style.notice(["one seed per arm: the noise of re-training is not known"]), title, [])
    columns = ["sd", "sd_low", "sd_high", "expected_sd"]
    training = training[["arm", "runs", *columns, "eval_share", "verdict"]]
    training[columns] = 100 * training[columns]
    training["text"] = [
        _beside(verdict, share) for verdict, share in zip(training["verdict"], training["eval_share"], strict=True)
    ]
    known = [column for column in columns if training[column].notna().all()]  # a tooltip would say "null"
    order = [arm for arm in arms if arm in set(training["arm"])]
    y = style.arm_axis(order, arms)
    x_title = f"SD of a run's pass@{pass_at} on {naming.short(benchmark)} (points)"
    scale, axis = style.from_zero(training[["sd", "sd_high"]].max(axis=1), 1.0), alt.Axis(tickCount=8)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", title=x_title, scale=scale, axis=axis)

    colour = style.colour(arms).legend(None)
    base = alt.Chart(training).encode(y=y, tooltip=tell("arm", "runs", *known, "text", text="what would help"))
    bars = base.transform_filter("isValid(datum.sd_low)").mark_rule(strokeWidth=4)
    ticks = base.transform_filter("isValid(datum.expected_sd)").mark_tick(thickness=2.5, size=22, color=style.INK)
    text = alt.Chart(training, name=f"{narrow.BESIDE}_1").mark_text(align="left", fontSize=12, color=style.INK, dx=14)
    chart = alt.layer(
        bars.encode(x=x("sd_low"), x2="sd_high:Q", color=colour),
        ticks.encode(x=x("expected_sd")),
        base.mark_point(filled=True, size=130, opacity=1).encode(x=x("sd"), color=colour),
        text.encode(y=y, x=alt.value(style.WIDTH), text="text:N"),
    ).properties(width=style.WIDTH, height=max((22 if style.many(order) else 36) * len(order), 70))
    lines = ["Point and bar: SD between the seeds of an arm, with its 95 % interval."]
    if training["expected_sd"].notna().any():
        lines.append("Stroke: the SD that sampling the answers of that arm's last checkpoints would give alone.")
    lines.append(
        f"Per cent: most of the run variance that more samples could remove; up to {100 * SMALL_SHARE:g} %,"
        " the table says that only seeds help."
    )
    return style.finish(chart, title, lines)
