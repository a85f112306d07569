"""What all figures share: colours, fonts, how they are saved.

Text and rules are drawn in `currentColor`, so that a figure follows a page from light to dark.
"""

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from workflow_scripts.figures import naming, narrow

# Okabe & Ito's colour-blind safe palette, without its black and yellow, which vanish on a dark or a light page
PALETTE = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"]
DASHES = [[1, 0], [6, 3], [2, 2]]  # the palette starts again with another dash after six arms
INK = "currentColor"
NAMED = 5  # arms that one line names
MANY = 6  # with more arms, lines over each other are not told apart: see panels.py
HEAT = "cividis"  # of heat maps: colour-blind safe, of rising lightness
LIGHT_DARK = "color-scheme: light dark; color: light-dark(#1c2126, #e4e8ec)"  # of a figure that stands alone
PAGE = f"""  <meta name="viewport" content="width=device-width, initial-scale=1">
  <style>
    :root {{ {LIGHT_DARK}; background: light-dark(#fff, #16191d) }}
    body {{ margin: 12px; overflow-x: auto }}
    #vis svg {{ flex: none }}
  </style>
</head>"""
NARROW = (700, 340)  # pixels of the other layouts: of a tablet, and of a telephone
EMBED = re.compile(r"^ *vegaEmbed\('#vis', spec, embedOpt\)\.catch\(console\.error\);$", flags=re.MULTILINE)
LAYOUT = """  const layouts = [{width: WIDE, spec}, ...LAYOUTS];
  let shown, drawing = Promise.resolve();
  const draw = () => {
    const room = document.documentElement.clientWidth - 24;
    const layout = layouts.find(one => one.width <= room) ?? layouts.at(-1);
    if (layout === shown) return;
    shown = layout;
    const whole = {...layout.spec, datasets: structuredClone(spec.datasets)};
    drawing = drawing.then(() => vegaEmbed('#vis', whole, embedOpt)).catch(console.error);
  };
  draw();
  addEventListener('resize', draw);"""
FAINT = "#8a8a8a"  # readable on white and on black
BANDS = ["rgba(130, 145, 160, 0.2)", "rgba(130, 145, 160, 0.45)"]
FONT = "Arial, 'Liberation Sans', Helvetica, sans-serif"  # of one width: labels fit wherever the figure is seen
WIDTH = 520
WEIGHT = alt.StrokeWidth("weight:Q", scale=None)
DOT = alt.Size("dot:Q", scale=None)
PADDING = {"left": 12, "right": 28, "top": 8, "bottom": 8}


def many(arms: Sequence[str]) -> bool:
    """More arms than lines in one chart can be told apart."""
    return len(arms) > MANY


def colour(arms: list[str]) -> alt.Color:
    """The colour of each arm by its place in the study, the same in every figure."""
    return alt.Color("arm:N", scale=_scale(arms, PALETTE), legend=legend(arms))


def dash(arms: list[str]) -> alt.StrokeDash:
    """Tells arms apart that share a colour."""
    repeats = [DASHES[i // len(PALETTE) % len(DASHES)] for i in range(len(arms))]
    return alt.StrokeDash("arm:N", scale=alt.Scale(domain=arms, range=repeats), legend=legend(arms))


def in_order(rows: pd.DataFrame, arms: list[str], field: str = "arm") -> pd.DataFrame:
    """Rows in the order of the arms, with `weight`, the width of an arm's line, and `dot`, the area of its points.

    Lines are drawn in this order, later ones narrower and on top: of lines at one place, all are seen.
    """
    place = {arm: number for number, arm in enumerate(arms)}
    number = rows[field].map(place).astype(float) % MANY
    share = 1 - number / max(1, min(len(arms), MANY) - 1) if len(arms) > 1 else number + 0.35
    found = rows.assign(weight=(2 + 6 * share).round(2), dot=(25 + 95 * share).round())
    return found.sort_values(field, key=lambda arm: arm.map(place), kind="stable")


def from_zero(values: pd.Series, least: float, most: float | None = None) -> alt.Scale:
    """A scale from 0 to a little more than the largest value, and never of no height: to `least` where all are 0.

    most: what no value can exceed.
    """
    largest = float(values.max()) if values.notna().any() else 0.0
    end = max(1.05 * largest, least if largest == 0 else 0.0)
    return alt.Scale(domain=[0, end if most is None else min(end, most)], nice=True, zero=True)


def _scale(arms: list[str], colours: list[str]) -> alt.Scale:
    return alt.Scale(domain=arms, range=[colours[i % len(colours)] for i in range(len(arms))])


def legend(arms: list[str], **more: Any) -> alt.Legend:
    """Arms below each other, above the chart's right edge free; long names are cut with an ellipsis."""
    return alt.Legend(
        title="arm", orient="right", labelLimit=naming.PIXELS, symbolType="stroke", symbolStrokeWidth=3,
        symbolOpacity=1, labelExpr=naming.expression(arms), **more,
    )  # fmt: skip


def arm_axis(arms: list[str], every: Sequence[str] = ()) -> alt.Y:
    """One row for each arm, in the study's order. every: all arms of the study, among which their names are cut."""
    expression = naming.expression([*every, *arms])
    axis = alt.Axis(ticks=False, domain=False, labelPadding=8, labelLimit=naming.PIXELS, labelExpr=expression)
    return alt.Y("arm:N", sort=arms, title=None, axis=axis)


def heading(text: str, size: int = 12) -> alt.TitleParams:
    """Of a panel, above the left end of its axis."""
    weight = "normal" if size == 12 else "bold"
    return alt.TitleParams(text, fontSize=size, fontWeight=weight, anchor="start", frame="group", color=INK)


def notice(text: list[str], width: int = WIDTH, height: int = 120) -> alt.Chart:
    """What stands in place of a figure that has nothing to show: the reason, in lines that fit."""
    data = alt.Data(values=[{"text": [part for line in text for part in textwrap.wrap(line, width // 8)]}])
    return alt.Chart(data, width=width, height=height).mark_text(fontSize=14, color=INK).encode(text=alt.Text("text:N"))


def finish(chart: alt.TopLevelMixin, title: str, how_to_read: list[str]) -> alt.TopLevelMixin:
    """Title, one or two lines that say how to read the figure, and the shared look."""
    heading = alt.TitleParams(
        title, subtitle=how_to_read, anchor="start", frame="group", fontSize=15, subtitleFontSize=12, offset=14,
        subtitlePadding=6, color=INK, subtitleColor=INK,
    )  # fmt: skip
    return (
        chart.properties(title=heading, background="transparent", padding=PADDING)
        .configure(font=FONT, lineBreak=naming.BREAK)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=INK, titleColor=INK, domainColor=FAINT, tickColor=FAINT, gridColor=FAINT, gridOpacity=0.25,
            labelFontSize=12, titleFontSize=12, titleFontWeight="normal", labelLimit=240, titlePadding=8,
        )
        .configure_legend(labelColor=INK, titleColor=INK, labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_header(labelColor=INK, titleColor=INK, labelFontSize=12, titleFontSize=12)
    )  # fmt: skip


def mark_missing(
    chart: alt.TopLevelMixin, declared: Mapping[str, Sequence[int]] | None, drawn: Mapping[str, int]
) -> None:
    """A line below the title of a finished chart that names the arms of which it shows fewer runs than the study has.

    declared: arm → seeds, None where no run may be missing; drawn: arm → runs in the chart.
    """
    cut = naming.labels(declared or {})
    lacking = [
        f"{cut[arm]} {drawn.get(arm, 0)} of {len(seeds)}"
        for arm, seeds in (declared or {}).items()
        if drawn.get(arm, 0) < len(seeds)
    ]
    if lacking:
        more = f" and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
        chart.title.subtitle = [*chart.title.subtitle, f"Runs are missing: {', '.join(lacking[:NAMED])}{more}."]


class _Inert(json.JSONEncoder):
    """JSON that may stand inside a script element: no text of a study can end the element."""

    def encode(self, o: Any) -> str:
        return super().encode(o).replace("<", "\\u003c")


def save(chart: alt.TopLevelMixin, html: str, svg: str) -> None:
    """The chart as a page that needs nothing from outside, laid out by the window's width, and as SVG of its own."""
    for path in (html, svg):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    chart.save(svg)
    drawn = Path(svg).read_text(encoding="utf-8")
    Path(svg).write_text(drawn.replace("<svg ", f'<svg style="{LIGHT_DARK}" ', 1), encoding="utf-8")
    options: dict[str, Any] = {"renderer": "svg", "actions": False}
    chart.save(html, inline=True, embed_options=options, json_kwds={"cls": _Inert})
    wide, spec = narrow.size(drawn)[0], chart.to_dict()
    layouts = [{"width": width, "spec": narrow.fit(spec, width)} for width in NARROW if width < wide]
    script = LAYOUT.replace("WIDE", f"{wide:.0f}").replace("LAYOUTS", json.dumps(layouts, cls=_Inert))
    page = Path(html).read_text(encoding="utf-8").replace("\n</head>\n<body>", f"\n{PAGE}\n<body>", 1)
    page, found = EMBED.subn(lambda _: script, page)
    if found != 1:
        raise RuntimeError("the page that altair writes has no one line that draws the chart: is it another version?")
    Path(html).write_text(page, encoding="utf-8")
