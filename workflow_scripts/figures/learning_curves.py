"""Learning curves: scores over optimizer updates, every run thin and the mean of an arm bold."""

import altair as alt
import pandas as pd

from workflow_scripts.figures import branches, naming, panels, style

PANEL = 300


def _curves(
    scores: pd.DataFrame, benchmark: str, pass_at: int, branched: branches.Branches
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """(runs, arm means, base, first points of branch arms) with score in points.

    Every curve starts at the base model's mean, step 0; that of a branch arm where it leaves its parent: at the
    parent's score under the same seed, the mean at that of the same seeds.
    """
    here = scores[(scores["benchmark"] == benchmark) & (scores["pass_at"] == pass_at)].dropna(subset="score")
    here["score"] = 100 * here["score"]
    trained = here["arm"] != "base"
    base = here.loc[~trained & (here["level"] == "arm"), ["step", "score"]]
    first = branches.starts(here.loc[trained & (here["level"] == "run"), ["arm", "seed", "step", "score"]], branched)
    first_means = first.groupby(["arm", "step"], as_index=False)[["score"]].mean()
    found = []
    for level, keys, begun in (("run", ["arm", "seed"], first), ("arm", ["arm"], first_means)):
        rows = here.loc[trained & (here["level"] == level), [*keys, "step", "score"]]
        from_base = rows.loc[~rows["arm"].isin(branched), keys].drop_duplicates().merge(base, how="cross")
        parts = [part for part in (from_base, begun, rows) if len(part)]
        found.append(pd.concat(parts).drop_duplicates([*keys, "step"], keep="last") if parts else rows)
    return found[0], found[1], base, first_means


def _span(rows: pd.DataFrame) -> alt.Scale:
    """Of the scores that are there: from 0 would hide all differences; of some height where all are the same."""
    low, high = float(rows["score"].min()), float(rows["score"].max())
    if high - low < 1:
        return alt.Scale(zero=False, padding=8, domain=[max(low - 1, 0), min(high + 1, 100)])
    return alt.Scale(zero=False, padding=8)


def _panel(
    scores: pd.DataFrame, benchmark: str, pass_at: int, arms: list[str], branched: branches.Branches
) -> alt.LayerChart:
    runs, means, base, first = _curves(scores, benchmark, pass_at, branched)
    x = alt.X("step:Q", title="optimizer updates", axis=alt.Axis(tickMinStep=1, tickCount=6))
    y = alt.Y("score:Q", title=f"pass@{pass_at} on {naming.short(benchmark)} (%)", scale=_span(pd.concat([runs, base])))
    thin, bold, dots = panels.lines(runs, means, x, y, arms)
    layers = [
        alt.Chart(base).mark_rule(strokeDash=[3, 3], color=style.FAINT).encode(y=y),
        thin,
        bold,
        dots,
        alt.Chart(base).mark_point(filled=True, size=60, color=style.INK, opacity=1).encode(x=x, y=y),
    ]
    if len(first):
        layers.append(branches.rings(first, x, y))
    return alt.layer(*layers).properties(width=PANEL, height=260)


def _small(
    scores: pd.DataFrame,
    benchmark: str,
    pass_at: int,
    arms: list[str],
    branched: branches.Branches,
    baseline: str | None,
) -> alt.FacetChart:
    """A chart of its own for each of many arms."""
    runs, means, _, _ = _curves(scores, benchmark, pass_at, branched)
    x = alt.X("step:Q", title=None, axis=alt.Axis(tickMinStep=1, tickCount=3))
    y = alt.Y(
        "score:Q", title=f"pass@{pass_at} (%)", scale=alt.Scale(zero=False, padding=4), axis=alt.Axis(tickCount=3)
    )
    said = f"pass@{pass_at} on {naming.short(benchmark, 60)} over optimizer updates"
    return panels.multiples(runs, means, x, y, arms, baseline).properties(title=style.heading(said, 13))


def learning_curves_chart(
    scores: pd.DataFrame, arms: list[str], branched: branches.Branches | None = None, baseline: str | None = None
) -> alt.TopLevelMixin:
    """One row of panels per benchmark: pass@k for the smallest and the largest k; of many arms the macro average alone.

    scores: the table of this name (levels run and arm). arms: all arms in the study's order (for colours). branched:
    arms that start at another one. baseline: drawn in grey behind each of many arms.
    """
    title = "How did the scores move during training?"
    trained = scores[(scores["arm"] != "base") & scores["score"].notna()]
    if trained.empty:
        return style.finish(style.notice(["no trained run has been evaluated yet"]), title, [])
    ks = sorted({int(trained["pass_at"].min()), int(trained["pass_at"].max())})
    names = sorted(trained["benchmark"].unique())
    if style.many(arms):
        names = ["macro"] if "macro" in names else names
        blocks = [_small(scores, name, k, arms, branched or {}, baseline) for name in names for k in ks]
        lines = ["Bold: mean of the arm, over the range of its training seeds. Grey: mean of the baseline."]
        return style.finish(alt.vconcat(*blocks, spacing=30), title, lines)
    rows = [alt.hconcat(*[_panel(scores, name, k, arms, branched or {}) for k in ks], spacing=36) for name in names]
    lines = [
        "Thin: one training seed. Bold: mean of the arm. Dashed and the dot at 0: the base model before training.",
        "Arms that differ by less than the spread of their own thin lines do not differ visibly.",
        panels.COINCIDE,
    ]
    if branched:
        lines.append(branches.HOW_TO_READ)
    return style.finish(alt.vconcat(*rows, spacing=30), title, lines)
