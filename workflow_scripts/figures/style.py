"""What all figures share: colours, fonts, how they are saved.

Text and rules are drawn in `currentColor`, so that a figure follows a page from light to dark.
"""

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

# Okabe & Ito's colour-blind safe palette, without its black and yellow, which vanish on a dark or a light page
PALETTE = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"]
DASHES = [[1, 0], [6, 3], [2, 2]]  # the palette starts again with another dash after six arms
INK = "currentColor"
NAMED = 5  # arms that one line names
MANY = 6  # with more arms, lines over each other are not told apart: see panels.py
LABEL = 28  # characters of an arm's name where no limit in pixels cuts it
# of an axis or a legend, as `short` does it
CUT = (
    f"length(datum.label) > {LABEL} ? slice(datum.label, 0, {LABEL - 10}) + '…' + slice(datum.label, -9) : datum.label"
)
HEAT = "cividis"  # of heat maps: colour-blind safe, of rising lightness
LIGHT_DARK = "color-scheme: light dark; color: light-dark(#1c2126, #e4e8ec)"  # of a figure that stands alone
PAGE = f"""  <meta name="viewport" content="width=device-width, initial-scale=1">
  <style>
    :root {{ {LIGHT_DARK}; background: light-dark(#fff, #16191d) }}
    body {{ margin: 12px; overflow-x: auto }}
    #vis svg {{ flex: none }}
  </style>
</head>"""
FAINT = "#8a8a8a"  # readable on white and on black
BANDS = ["rgba(130, 145, 160, 0.2)", "rgba(130, 145, 160, 0.45)"]
FONT = "Arial, 'Liberation Sans', Helvetica, sans-serif"  # of one width: labels fit wherever the figure is seen
WIDTH = 520
PADDING = {"left": 12, "right": 28, "top": 8, "bottom": 8}


def short(name: str, limit: int = LABEL) -> str:
    """A name for a title or a line of text, with an ellipsis in its middle: long names often differ at the end."""
    plain = " ".join(name.split())
    end = limit // 3
    return plain if len(plain) <= limit else f"{plain[: limit - 1 - end]}…{plain[-end:]}"


def many(arms: Sequence[str]) -> bool:
    """More arms than lines in one chart can be told apart."""
    return len(arms) > MANY


def colour(arms: list[str]) -> alt.Color:
    """The colour of each arm by its place in the study, the same in every figure."""
    return alt.Color("arm:N", scale=_scale(arms, PALETTE), legend=legend())


def dash(arms: list[str]) -> alt.StrokeDash:
    """Tells arms apart that share a colour."""
    repeats = [DASHES[i // len(PALETTE) % len(DASHES)] for i in range(len(arms))]
    return alt.StrokeDash("arm:N", scale=alt.Scale(domain=arms, range=repeats), legend=legend())


def _scale(arms: list[str], colours: list[str]) -> alt.Scale:
    return alt.Scale(domain=arms, range=[colours[i % len(colours)] for i in range(len(arms))])


def legend(**more: Any) -> alt.Legend:
    """Arms below each other, above the chart's right edge free; long names are cut with an ellipsis."""
    return alt.Legend(
        title="arm", orient="right", labelLimit=200, symbolType="stroke", symbolStrokeWidth=3, symbolOpacity=1,
        labelExpr=CUT, **more,
    )  # fmt: skip


def arm_axis(arms: list[str], field: str = "arm") -> alt.Y:
    """One row for each arm, in the study's order."""
    axis = alt.Axis(ticks=False, domain=False, labelPadding=8, labelLimit=220, labelExpr=CUT)
    return alt.Y(f"{field}:N", sort=arms, title=None, axis=axis)


def notice(text: list[str], width: int = WIDTH, height: int = 120) -> alt.Chart:
    """What stands in place of a figure that has nothing to show: the reason, in lines that fit."""
    data = alt.Data(values=[{"text": [part for line in text for part in textwrap.wrap(line, width // 8)]}])
    return (
        alt.Chart(data, width=width, height=height)
        .mark_text(fontSize=14, color=INK, lineBreak="\n")
        .encode(text=alt.Text("text:N"))
    )


def finish(chart: alt.TopLevelMixin, title: str, how_to_read: list[str]) -> alt.TopLevelMixin:
    """Title, one or two lines that say how to read the figure, and the shared look."""
    heading = alt.TitleParams(
        title, subtitle=how_to_read, anchor="start", frame="group", fontSize=15, subtitleFontSize=12, offset=14,
        subtitlePadding=6, color=INK, subtitleColor=INK,
    )  # fmt: skip
    return (
        chart.properties(title=heading, background="transparent", padding=PADDING)
        .configure(font=FONT)
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
    lacking = [
        f"{short(arm)} {drawn.get(arm, 0)} of {len(seeds)}"
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
    """The chart as a page that needs nothing from outside, and as SVG."""
    for path in (html, svg):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"renderer": "svg", "actions": False}
    chart.save(html, inline=True, embed_options=options, json_kwds={"cls": _Inert})
    page = Path(html).read_text(encoding="utf-8")
    Path(html).write_text(page.replace("\n</head>\n<body>", f"\n{PAGE}\n<body>", 1), encoding="utf-8")
    chart.save(svg)
    drawn = Path(svg).read_text(encoding="utf-8")
    Path(svg).write_text(drawn.replace("<svg ", f'<svg style="{LIGHT_DARK}" ', 1), encoding="utf-8")
