"""The report's answer and tables as markdown, to paste into an issue or a paper's appendix."""

from collections.abc import Mapping
from typing import Any

from workflow_scripts.figures.words import markdown_table
from workflow_scripts.report import grids
from workflow_scripts.report.grids import Grid
from workflow_scripts.report.visible import visible

NONE = "-"
TABLES = ("effects", "scores", "power", "floors", "coverage", "difficulty")  # of the page, in the summary's order


def _table(grid: Grid) -> str:
    heads = [head for head, _ in grid.heads]
    return markdown_table([heads, *([cell.text or NONE for cell in row] for row in grid.rows)])


def summary(shown: Mapping[str, Any]) -> str:
    """The whole text. shown: what the page's template is given."""
    question = " ".join((shown["question"] or f"does any arm differ from {shown['baseline']}?").split())
    lines = [f"# {shown['study']}: {question}", ""]
    if shown["warnings"]:
        lines += ["**First:**", "", *(f"- {text}" for text in shown["warnings"]), ""]
    lines += ["## Answer", ""]
    lines += [f"- {row['sentence']}" for row in shown["comparisons"]] or ["No arm was compared.", ""]
    lines += [f"- control: {row['sentence']} ({row['role']})" for row in shown["controls"]]
    if shown["endpoint_note"]:
        lines += ["", shown["endpoint_note"]]
    if shown["compared_facts"]:
        lines += ["", "## What was compared", ""]
        lines += [f"- {title}: {text}" for title, text in shown["compared_facts"]]
        lines += ["", _table(shown["compared_grid"])]
    found = {grid.name: grid for grid in (*shown["grids"], grids.power(shown["power"]))}
    for grid in (found[name] for name in TABLES):
        if grid.rows:
            lines += ["", f"## {grid.title}", "", _table(grid), "", grid.note]
    return visible("\n".join(lines) + "\n")
