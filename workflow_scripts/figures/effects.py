"""Forest plot: the primary effect of every arm over what noise alone does."""

import textwrap

import altair as alt
import pandas as pd

from workflow_scripts.figures import naming, narrow, style
from workflow_scripts.figures.tooltips import tell

ROW, DENSE, LINE = 44, 24, 15  # height of an arm's row, in pixels; of many arms; of a line of text
LETTERS, LINES = 38, 3  # of the text beside an interval
_USED = [
    "arm", "baseline", "role", "benchmark", "pass_at", "delta", "ci_low", "ci_high", "level", "margin", "verdict",
]  # fmt: skip
BANDS = (
    "two single runs of the baseline",
    "two evaluations of the base model",
)


def _rows(effects: pd.DataFrame, arms: list[str]) -> pd.DataFrame:
    """Primary effects, in points; `label` tells what the role of an arm is unless it is a plain comparison.

    said: all that is to be said beside an interval; text: as much of it as fits there.
    """
    rows = effects[effects["primary"] & (effects["estimand"] == "benchmark")].copy()
    for column in ("delta", "ci_low", "ci_high"):
        rows[column] = 100 * rows[column]
    plain = (rows["role"] == "comparison") | (rows["role"] == rows["arm"])
    cut = rows["arm"].map(naming.labels(arms))
    rows["label"] = cut.where(plain, cut + " (" + rows["role"] + ")")
    rows["said"] = rows.apply(_beside, axis=1)
    rows["text"] = [
        naming.BREAK.join(textwrap.wrap(said, LETTERS, max_lines=LINES, placeholder=" …", break_on_hyphens=False))
        for said in rows["said"]
    ]
    rows["lines"] = [text.count(naming.BREAK) + 1 for text in rows["text"]]
    return rows[[*_USED, "label", "said", "text", "lines"]]


def _lacking(row: pd.Series, least: int, said: str) -> str:
    """The text with who has fewer seeds than the least; empty where that is no one."""
    sides = {"the arm": row["seeds"], "the baseline": row["baseline_seeds"]}
    found = [who for who, seeds in sides.items() if pd.notna(seeds) and seeds < least]
    whose = f"{found[0]} has" if len(found) == 1 else "arm and baseline have"
    return said.format(whose) if found else ""


def _beside(row: pd.Series) -> str:
    """What is written to the right of an arm's interval."""
    known = row["reason"] if isinstance(row["reason"], str) else ""
    if pd.isna(row["delta"]):
        return _lacking(row, 1, "no effect: {} no scored run") or known or "no effect is known"
    if pd.isna(row["ci_low"]):
        return _lacking(row, 2, "no interval: {} one seed") or f"no interval: {known or 'the variance is not known'}"
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
            title="95 % of differences between",
            orient="bottom",
            labelLimit=naming.PIXELS,
            direction="vertical",
            columns=1,
            values=list(bands["band"]),
        ),
    )
    return [alt.Chart(bands).mark_rect().encode(x=alt.X("low:Q", title=what), x2="high:Q", fill=fill), *lines]


def _intervals(rows: pd.DataFrame, y: alt.Y, what: str, arms: list[str]) -> list[alt.Chart]:
    """Bar and point of each arm; an arm without an interval gets a hollow grey point, one without an effect none."""
    colour = style.colour(arms).legend(None)
    sure = rows[rows["ci_low"].notna()]
    single = rows[rows["delta"].notna() & rows["ci_low"].isna()]
    layers, told = [], tell("arm", "delta", "ci_low", "ci_high", "said", said="verdict")
    if len(sure):
        layers = [
            alt.Chart(sure)
            .mark_rule(strokeWidth=4)
            .encode(y=y, x=alt.X("ci_low:Q", title=what), x2="ci_high:Q", color=colour, tooltip=told),
            alt.Chart(sure)
            .mark_point(filled=True, size=130, opacity=1)
            .encode(y=y, x=alt.X("delta:Q", title=what), color=colour, tooltip=told),
        ]
    if len(single):
        point = alt.Chart(single).mark_point(size=110, color=style.FAINT)
        layers.append(point.encode(y=y, x=alt.X("delta:Q", title=what), tooltip=tell("arm", "delta", "said")))
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
    rows = _rows(effects, arms)
    if rows.empty:
        return style.finish(style.notice(["no comparison: the study has no arm beside its baseline"]), title, [])
    order = [str(row.label) for arm in arms for row in rows.itertuples() if row.arm == arm]
    first = rows.iloc[0]
    bands = _bands(first, noise_floors)
    benchmark, baseline = (
        naming.short(str(first["benchmark"])),
        naming.labels(arms).get(first["baseline"], first["baseline"]),
    )
    what = f"pass@{first['pass_at']}, {benchmark}, difference from {baseline} in points"
    axis = alt.Axis(ticks=False, domain=False, labelPadding=8, labelLimit=0)
    y = alt.Y("label:N", sort=order, title=None, axis=axis)
    most = int(rows["lines"].max())
    row = max(DENSE if style.many(order) else ROW, LINE * most + 6)
    middle = alt.expr(f"{-LINE / 2} * (datum.lines - 1)")
    verdicts = alt.Chart(rows, name=f"{narrow.BESIDE}_{most}").mark_text(
        align="left", fontSize=12, lineHeight=LINE, color=style.INK, dx=14, dy=middle
    )
    chart = alt.layer(
        *_background(first, bands, what),
        *_intervals(rows, y, what, arms),
        verdicts.encode(y=y, x=alt.value(style.WIDTH), text="text:N", tooltip=tell("arm", "said", said="verdict")),
    ).properties(width=style.WIDTH, height=max(row * len(order), 70))
    return style.finish(
        chart,
        title,
        [
            f"Point and bar: effect, {_levels(rows)} interval over re-trainings. "
            f"Dashed: margin, ±{100 * first['margin']:g} points.",
            "Right of the solid line is better than the baseline; a bar that crosses it could be either.",
            *(
                ["Grey: noise of single runs and evaluations; that of means over seeds is smaller."]
                if len(bands)
                else []
            ),
        ],
    )
