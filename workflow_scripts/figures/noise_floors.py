"""Noise floors: how far apart do runs of one arm end, and how much of that is the evaluation?"""

import altair as alt
import pandas as pd

from workflow_scripts.figures import style


def noise_floors_chart(noise_floors: pd.DataFrame, pass_at: int, arms: list[str]) -> alt.TopLevelMixin:
    """Seed-to-seed SD of each arm's last score with its interval, against the SD that sampling alone gives.

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
    training = training[["arm", "runs", "sd", "sd_low", "sd_high"]]
    for column in ("sd", "sd_low", "sd_high"):
        training[column] = 100 * training[column]
    order = [arm for arm in arms if arm in set(training["arm"])]
    y = style.arm_axis(order)
    x_title = f"SD of a run's pass@{pass_at} on {style.short(benchmark)} (points)"
    colour = style.colour(arms).legend(None)
    layers: list[alt.Chart] = [
        alt.Chart(training)
        .mark_rule(strokeWidth=4)
        .encode(
            y=y,
            x=alt.X("sd_low:Q", title=x_title, scale=alt.Scale(domainMin=0), axis=alt.Axis(tickCount=8)),
            x2="sd_high:Q",
            color=colour,
        ),
        alt.Chart(training)
        .mark_point(filled=True, size=130, opacity=1)
        .encode(y=y, x=alt.X("sd:Q", title=x_title), color=colour, tooltip=["arm", "runs", "sd", "sd_low", "sd_high"]),
    ]
    sampling = here.loc[(here["kind"] == "evaluation") & here["expected_sd"].notna(), "expected_sd"]
    lines = ["Point and bar: SD between the seeds of an arm, with its 95 % interval."]
    if len(sampling):
        floor = pd.DataFrame({"at": [100 * float(sampling.mean())]})
        layers.insert(0, alt.Chart(floor).mark_rule(strokeDash=[5, 4], color=style.INK).encode(x="at:Q"))
        lines.append("Dashed: SD that sampling the answers alone gives. Right of it, only more seeds help.")
    chart = alt.layer(*layers).properties(
        width=style.WIDTH, height=max((22 if style.many(order) else 36) * len(order), 70)
    )
    return style.finish(chart, title, lines)
