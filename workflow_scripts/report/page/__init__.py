"""The page as jinja templates beside this module, with style and script put in: one file, whole by itself."""

import json
import re
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from workflow_scripts.errors import UserError
from workflow_scripts.figures import words
from workflow_scripts.report.findings import known
from workflow_scripts.report.visible import visible

TEMPLATE = "page.html.jinja"
PARTS = (  # what the template includes; named here, so that the digest counts it
    "macros.html.jinja", "answer.html.jinja", "compared.html.jinja", "checks.html.jinja", "figures.html.jinja",
    "tables.html.jinja", "examples.html.jinja", "provenance.html.jinja", "page.css", "tables.js", "examples.js",
    "page.js",
)  # fmt: skip


def figure(path: str, name: str) -> Markup:
    """The SVG to put into the page: without prolog, its ids made unique, its width in px known to the style."""
    text = Path(path).read_text(encoding="utf-8")
    start = text.find("<svg")
    if start < 0:
        raise UserError(f"{path}: not an SVG figure; delete it and run again")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text[start:])
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    width = re.search(r'<svg[^>]* width="([0-9.]+)"', text)
    if width:  # "color-scheme: …" stands in its style already
        text = re.sub(r"(<svg[^>]* style=\")", rf"\1--drawn: {float(width[1]):.0f}px; ", text, count=1)
    return Markup(visible(re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text)))


def inert_json(value: Any) -> Markup:
    """JSON that may stand inside a script element: ASCII, and no text in it can end the element."""
    return Markup(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))


def caption(text: str) -> Markup:
    """A caption of reStructuredText, of which ``names`` are all the markup, in one paragraph."""
    parts = [escape(visible(part)) for part in " ".join(text.split()).split("``")]
    return Markup("").join(Markup("<code>{}</code>").format(p) if n % 2 else p for n, p in enumerate(parts))


def _shown(value: Any) -> Any:
    """Texts of the study as they are put into the page: nothing in them acts."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _environment() -> Any:
    import jinja2

    folder = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.DictLoader({part: (folder / part).read_text(encoding="utf-8") for part in (TEMPLATE, *PARTS)}),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=words.percent, points=words.points, span=words.span, number=words.number, caption=caption,
        detectable=words.detectable, inert_json=inert_json,
    )  # fmt: skip
    environment.tests["known"] = known
    return environment


def render(shown: dict[str, Any]) -> str:
    """The page. shown: what the templates name (stages/report.py)."""
    return _environment().get_template(TEMPLATE).render(shown)
