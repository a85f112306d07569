"""All figures of a report, in the page's order: what each is called, where it stands, and which tables it draws.

A caption, which says how to read the figure, is `rules/captions/NAME.rst`: of Snakemake's report and of the page alike.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """A figure of the report.

    name: of its files and its caption. section: heading it stands under. tables: what it is drawn from. chart: the
    function that draws it, as module:function of this folder; it gets one data frame for each table, and `options` by
    name (see the rule `plot`). runs_of: the table that tells how many runs of each arm it shows; None where it shows no
    runs.
    """

    name: str
    title: str
    section: str
    tables: tuple[str, ...]
    chart: str
    options: tuple[str, ...]
    runs_of: str | None

    @property
    def read(self) -> tuple[str, ...]:
        """The tables that its job reads."""
        return tuple(dict.fromkeys(filter(None, (*self.tables, self.runs_of))))

    def settings(self, options: dict[str, Any], declared: dict[str, list[int]] | None) -> dict[str, Any]:
        """What the stage `plot` is told of it.

        options: what charts may ask for, by name. declared: arm -> seeds, where runs may be missing.
        """
        asked = {name: options[name] for name in self.options}
        told = {"chart": self.chart, "tables": self.tables, "runs_of": self.runs_of, "options": asked}
        return told | ({"declared": declared} if declared and self.runs_of else {})


FIGURES = (
    Figure("effects", "Effects", "Effects", ("effects", "noise_floors"), "effects:effects_chart", ("arms",), "effects"),
    Figure(
        "learning_curves", "Learning curves", "Effects", ("scores",), "learning_curves:learning_curves_chart",
        ("arms", "branched", "baseline"), "scores",
    ),
    Figure(
        "noise_floors", "Noise floors", "Effects", ("noise_floors",), "noise_floors:noise_floors_chart",
        ("arms", "pass_at"), "noise_floors",
    ),
    Figure("seeds_needed", "Seeds needed", "Effects", ("power",), "costs:seeds_needed_chart", ("margin",), "runs"),
    Figure(
        "difficulty", "Effects by difficulty", "Problems", ("difficulty",), "problems:difficulty_chart",
        ("arms", "pass_at"), "counts",
    ),
    Figure("solve_rates", "Solve rates", "Problems", ("counts",), "problems:solve_rates_chart", ("arms",), "counts"),
    Figure("coverage", "Coverage", "Problems", ("coverage",), "problems:coverage_chart", ("arms",), "counts"),
    Figure(
        "gradient_weight", "Gradient weight", "Objectives", ("objectives",), "objectives:gradient_weight_chart",
        ("arms",), None,
    ),
    Figure(
        "upper_bounds", "Upper bounds", "Objectives", ("objectives",), "objectives:upper_bounds_chart", ("arms",), None
    ),
    Figure(
        "clip_fraction", "Clip fraction", "Training", ("dynamics",), "clip_fraction:clip_fraction_chart", ("arms",),
        "dynamics",
    ),
    Figure(
        "ratio_advantage", "Ratio and advantage", "Training", ("dynamics",), "ratio_advantage:ratio_advantage_chart",
        ("arms", "branched"), "dynamics",
    ),
    Figure("quadrants", "Quadrants", "Training", ("policies",), "policies:quadrants_chart", ("arms",), "policies"),
    Figure(
        "decisive_tokens", "Decisive tokens", "Training", ("policies",), "policies:decisive_tokens_chart", ("arms",),
        "policies",
    ),
    Figure(
        "training_course", "Entropy, length, truncation", "Training", ("dynamics",),
        "training_course:training_course_chart", ("arms", "branched"), "dynamics",
    ),
    Figure("costs", "Time per job", "Cost", ("runs",), "costs:costs_chart", ("arms",), "runs"),
)  # fmt: skip
SECTIONS = tuple(dict.fromkeys(figure.section for figure in FIGURES))
