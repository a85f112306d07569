"""Learning curves: scores over optimizer updates, every run thin and the mean of an arm bold."""

import altair as alt
import pandas as pd

from workflow_scripts.figures import style

PANEL = 300


def _curves(scores: pd.DataFrame, benchmark: str, pass_at: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """(runs, arm means, base) with score in points; every curve starts at the base model's mean, step 0."""
    here = scores[(scores["benchmark"] == benchmark) & (scores["pass_at"] == pass_at)].copy()
    here["score"] = 100 * here["score"]
    trained = here["arm"] != "base"
    base = here.loc[~trained & (here["level"] == "arm"), ["step", "score"]]
    found = []
    for level, keys in (("run", ["arm", "seed"]), ("arm", ["arm"])):
        rows = here.loc[trained & (here["level"] == level), [*keys, "step", "score"]]
        starts = rows[keys].drop_duplicates().merge(base, how="cross") if len(base) else rows.iloc[:0]
        found.append(pd.concat([starts, rows]).drop_duplicates([*keys, "step"], keep="last"))
    return found[0], found[1], base


def _panel(scores: pd.DataFrame, benchmark: str, pass_at: int, arms: list[str]) -> alt.LayerChart:
    runs, means, base = _curves(scores, benchmark, pass_at)
    x = alt.X("step:Q", title="optimizer updates", axis=alt.Axis(tickMinStep=1, tickCount=6))
    y = alt.Y("score:Q", title=f"pass@{pass_at} on {benchmark} (%)", scale=alt.Scale(zero=False, padding=8))
    colour, dash = style.colour(arms), style.dash(arms)
    runs = runs.assign(run=runs["arm"] + " " + runs["seed"].astype(str))
    layers = [
        alt.Chart(base).mark_rule(strokeDash=[3, 3], color=style.FAINT).encode(y=y),
        alt.Chart(runs).mark_line(strokeWidth=1, opacity=0.45).encode(x=x, y=y, color=colour, detail="run:N"),
        alt.Chart(means)
        .mark_line(strokeWidth=3)
        .encode(x=x, y=y, color=colour, strokeDash=dash, tooltip=["arm", "step", "score"]),
        alt.Chart(means).mark_point(filled=True, size=45, opacity=1).encode(x=x, y=y, color=colour),
        alt.Chart(base).mark_point(filled=True, size=60, color=style.INK, opacity=1).encode(x=x, y=y),
    ]
    return alt.layer(*layers).properties(width=PANEL, height=260)


def learning_curves_chart(scores: pd.DataFrame, arms: list[str]) -> alt.TopLevelMixin:
    """One row of panels per benchmark: pass@k for the smallest and the largest k.

    scores: the table of this name (levels run and arm). arms: all arms in the study's order (for colours).
    """
    title = "How did the scores move during training?"
    trained = scores[(scores["arm"] != "base") & scores["score"].notna()]
    if trained.empty:
        return style.finish(style.notice(["no trained run has been evaluated yet"]), title, [])
    ks = sorted({int(trained["pass_at"].min()), int(trained["pass_at"].max())})
    rows = [
        alt.hconcat(*[_panel(scores, name, k, arms) for k in ks], spacing=36)
        for name in sorted(trained["benchmark"].unique())
    ]
    return style.finish(
        alt.vconcat(*rows, spacing=30),
        title,
        [
            "Thin: one training seed. Bold: mean of the arm. Dashed and the dot at 0: the base model before training.",
            "Arms that differ by less than the spread of their own thin lines do not differ visibly.",
        ],
    )
