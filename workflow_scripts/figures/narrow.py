"""A finished chart laid out again for a narrower window, at the same size of its text.

Panels side by side come below each other, legends go to the bottom, lines of text are broken, and plots become as much
narrower as the width that Vega gives the whole asks for.
"""

import copy
import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import vl_convert

from workflow_scripts.figures import naming

LEAST, LINE = 90, 15  # pixels of a plot, and of a line of text
BESIDE = "beside"  # a layer of text at the right of a plot, which goes above its marks where there is no room
_INNER, _SMALL = 290, 200  # width that a panel, and a small multiple, needs with its axis
_LETTER, _BOLD = 5.9, 7.8  # pixels of a letter at 12, and of a bold one at 15
_CONCATS = ("hconcat", "vconcat", "concat")

Spec = dict[str, Any]


def size(svg: str) -> tuple[float, float]:
    """Width and height of an svg in pixels."""
    found = [re.search(rf'<svg[^>]*? {side}="([\d.]+)"', svg) for side in ("width", "height")]
    return tuple(float(one.group(1)) for one in found if one)  # type: ignore[return-value]


def _parts(node: Spec) -> list[Spec]:
    return [part for kind in (*_CONCATS, "layer") for part in node.get(kind, [])] + (
        [node["spec"]] if isinstance(node.get("spec"), dict) else []
    )


def _nodes(node: Spec) -> Iterator[Spec]:
    """The node and all below it."""
    yield node
    for part in _parts(node):
        yield from _nodes(part)


def _channels(node: Spec) -> Iterator[tuple[str, Spec]]:
    for one in _nodes(node):
        yield from ((name, channel) for name, channel in one.get("encoding", {}).items() if isinstance(channel, dict))


def _break(text: Any, pixels: float, letter: float = _LETTER) -> Any:
    lines = text if isinstance(text, list) else str(text).split("\n")
    return [part for line in lines for part in textwrap.wrap(line, max(16, int(pixels / letter))) or [""]]


def _name_again(parts: list[Spec]) -> None:
    """Axes that panels in a row share with the first of them: each has its own below the others."""
    first = [channel for name, channel in _channels(parts[0]) if name == "y"]
    axis = next((one["axis"] for one in first if one.get("axis")), None)
    title = next((one["title"] for one in first if one.get("title")), None)
    for part in parts[1:]:
        for name, channel in _channels(part):
            if name == "y" and channel.get("axis", 0) is None and axis:
                channel["axis"] = axis
            elif name == "y" and channel.get("title", 0) is None and title and channel.get("type") == "quantitative":
                channel["title"] = title


def _stack(node: Spec, width: int) -> None:
    """Fewer panels beside each other."""
    for kind in ("hconcat", "concat"):
        if kind in node:
            parts = node.pop(kind)
            before = node.get("columns", len(parts))
            node["concat"], node["columns"] = parts, min(before, max(1, width // _INNER))
            if node["columns"] == 1:
                _name_again(parts)
    if "columns" in node and "facet" in node:
        node["columns"] = min(node["columns"], max(1, width // _SMALL))
    if "row" in node.get("facet", {}):
        header = node["facet"]["row"]["header"]
        header |= {"labelOrient": "top", "labelAnchor": "start", "labelPadding": 4}
        header.pop("labelAlign", None)
        node["facet"]["column"]["header"]["labelFontStyle"] = "italic"
    for part in _parts(node):
        _stack(part, width)


def _to_bottom(channel: Spec, width: int) -> None:
    legend = channel.get("legend")
    if not isinstance(legend, dict):
        return
    if legend.get("orient", "right") == "right":
        legend["orient"] = "bottom"
        legend |= {} if channel.get("type") == "quantitative" else {"columns": max(1, width // 230)}
    elif legend.get("orient") == "bottom" and channel.get("type") != "quantitative":
        legend.setdefault("columns", max(1, width // 150))
    legend["labelLimit"] = min(legend.get("labelLimit", width), width - 40)
    if "gradientLength" in legend:
        legend["gradientLength"] = min(legend["gradientLength"], width - 60)
    if "titleLimit" in legend:
        legend["titleLimit"] = width


def _above(spec: Spec) -> None:
    """Names and texts that stand beside the marks of a row, above them: the whole width is the plot's."""
    for node in _nodes(spec):
        text = next((one for one in node.get("layer", []) if one.get("name", "").startswith(BESIDE)), None)
        if text is None:
            continue
        most = int(text["name"].rsplit("_", 1)[1])
        text["mark"] |= {"dx": 2, "dy": -LINE * (most - 1) - 7, "baseline": "bottom"}
        text["encoding"]["x"] = {"value": 0}
        sides = [channel for name, channel in _channels(node) if name == "y" and channel.get("axis")]
        node["height"] = len(sides[0]["sort"]) * (LINE * most + 54)
        for side in sides:
            side["axis"] |= {
                "labelAlign": "left", "labelBaseline": "bottom", "labelPadding": -2, "labelFontWeight": "bold",
                "labelOffset": -LINE * most - 7, "zindex": 1,
            }  # fmt: skip


def _texts(spec: Spec, width: int) -> None:
    """Titles, headings and the titles of axes in lines that fit."""
    for node in _nodes(spec):
        title = node.get("title")
        if title is not None:
            title = title if isinstance(title, dict) else {"text": title}
            letter = _BOLD if node is spec else _LETTER
            title |= {
                "text": _break(
                    title["text"],
                    (width - 16) if node is spec else (0.65 if width < 2 * _INNER else 0.4) * width,
                    letter,
                ),
                "frame": "bounds" if node is spec else "group",
            }
            title.pop("limit", None)
            if "subtitle" in title:
                title["subtitle"] = _break(title["subtitle"], width - 16)
            node["title"] = title
    for name, channel in _channels(spec):
        _to_bottom(channel, width)
        if name == "x" and channel.get("type") == "nominal" and isinstance(channel.get("axis"), dict):
            channel["axis"]["labelAngle"] = -45
        if name == "x" and isinstance(channel.get("title"), str):
            channel["title"] = naming.BREAK.join(_break(channel["title"], min(0.62 * width, 420)))


def _scale(spec: Spec, share: float, less: float) -> None:
    """Plots that are so many pixels narrower; those that are so many steps wide, by the share."""
    for node in _nodes(spec):
        if isinstance(node.get("width"), dict):
            node["width"] = {"step": max(4, int(node["width"]["step"] * share))}
        elif "width" in node:
            node["width"] = max(LEAST, int(node["width"] - less))


def fit(spec: Spec, width: int) -> Spec:
    """The chart in at most `width` pixels where its labels let it, without its data sets.

    spec: of a finished chart, with `datasets`.
    """
    found = copy.deepcopy({key: value for key, value in spec.items() if key != "datasets"})
    found["padding"] = {"left": 4, "right": 8, "top": 8, "bottom": 8}
    _stack(found, width)
    _texts(found, width)
    _above(found)
    found["config"]["axis"]["labelSeparation"] = 8
    found["config"]["legend"]["layout"] = {"bottom": {"anchor": "start", "bounds": "full"}}
    columns = max(2 if "row" in node.get("facet", {}) else node.get("columns", 1) for node in _nodes(found))
    for _ in range(3):
        drawn, _ = size(vl_convert.vegalite_to_svg(json.dumps(found | {"datasets": spec.get("datasets", {})})))
        if drawn <= width:
            break
        _scale(found, width / drawn, (drawn - width) / columns + 1)
    return found
