"""All figures of a report, in the page's order: what each is called, where it stands, and which tables it draws.

A caption, which says how to read the figure, is `rules/captions/NAME.rst`: of Snakemake's report and of the page alike.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """name: of its files and its caption; section: heading it stands under; tables: what it is drawn from."""

    name: str
    title: str
    section: str
    tables: tuple[str, ...]


FIGURES = (
    Figure("effects", "Effects", "Effects", ("effects", "noise_floors")),
    Figure("learning_curves", "Learning curves", "Effects", ("scores",)),
    Figure("noise_floors", "Noise floors", "Effects", ("noise_floors",)),
    Figure("seeds_needed", "Seeds needed", "Effects", ("power",)),
    Figure("difficulty", "Effects by difficulty", "Problems", ("difficulty",)),
    Figure("solve_rates", "Solve rates", "Problems", ("counts",)),
    Figure("coverage", "Coverage", "Problems", ("coverage",)),
    Figure("gradient_weight", "Gradient weight", "Objectives", ("objectives",)),
    Figure("upper_bounds", "Upper bounds", "Objectives", ("objectives",)),
    Figure("clip_fraction", "Clip fraction", "Training", ("dynamics",)),
    Figure("ratio_advantage", "Ratio and advantage", "Training", ("dynamics",)),
    Figure("quadrants", "Quadrants", "Training", ("policies",)),
    Figure("decisive_tokens", "Decisive tokens", "Training", ("policies",)),
    Figure("training_course", "Entropy, length, truncation", "Training", ("dynamics",)),
    Figure("costs", "Time per job", "Cost", ("runs",)),
)
SECTIONS = tuple(dict.fromkeys(figure.section for figure in FIGURES))
