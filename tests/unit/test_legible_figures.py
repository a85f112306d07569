"""Figures are legible: names stay different, lines and strokes apart, tooltips in words, narrow windows served."""

import html
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import vl_convert
from figure_study import Made, frame
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_figures import ARMS, DRAW, MANY, MARKS, STUDIES, texts

from workflow_scripts import tables
from workflow_scripts.figures import naming, narrow, noise_floors, objectives
from workflow_scripts.figures.effects import effects_chart
from workflow_scripts.figures.noise_floors import noise_floors_chart
from workflow_scripts.figures.objectives import gradient_weight_chart, upper_bounds_chart
from workflow_scripts.statistics import noise_floor as statistics_of_noise

PARTS_OF_NAMES = st.sampled_from(
    ["gapo", "_seq-eps-high-", "0", "1", "19", "-of-a-long-sweep", "_lr-3e-4", "Ж", "…", "W" * 30]
)
NAMES = st.lists(st.lists(PARTS_OF_NAMES, min_size=1, max_size=12).map("".join), min_size=1, max_size=24, unique=True)


@settings(max_examples=60, deadline=None)
@given(NAMES, st.sampled_from([12, naming.LABEL]))
@example(["gspo", *(f"gapo_seq-eps-high-{n:02}-of-a-long-sweep_lr-3e-4" for n in range(20))], naming.LABEL)
@example([f"{'x' * 20}{n}{'m' * 28}{n}{'y' * 10}" for n in range(12)], naming.LABEL)  # numbered
def test_distinct_names_have_distinct_labels_that_fit(names: list[str], limit: int) -> None:
    found = naming.labels(names, limit)
    assert list(found) == names
    assert len(set(found.values())) == len(names)
    assert all(len(label) <= limit for label in found.values())
    assert all(label == name for name, label in found.items() if len(name) <= limit)


def test_a_label_keeps_what_differs_in_every_figure() -> None:
    """All that a figure names, on axes, legends, headings and beside them, is told apart in the drawn svg."""
    arms = [f"gapo_seq-eps-high-{n:02}-of-a-long-sweep_lr-3e-4" for n in range(7)]
    cut = naming.labels(arms)
    assert all(f"{n:02}" in label for n, label in enumerate(cut.values()))
    found = Made(arms, 2).tables()
    for name in DRAW.keys() - {"seeds_needed"}:
        svg = html.unescape(vl_convert.vegalite_to_svg(DRAW[name](found, arms).to_json(indent=None)))
        drawn = set(texts(svg))
        assert all(cut[arm] in drawn for arm in (arms[1:] if name in ("effects", "difficulty") else arms)), name
    alike = Made(arms[:3], 2).tables()["objectives"]
    alike = pd.concat([alike[alike["arm"] == arms[0]].assign(arm=arm) for arm in arms])
    for chart in (gradient_weight_chart(alike, arms), upper_bounds_chart(alike, arms)):
        drawn = set(texts(html.unescape(vl_convert.vegalite_to_svg(chart.to_json(indent=None)))))
        assert {f"{cut[arms[0]]},", cut[arms[1]], "and 5 more"} <= drawn


def test_lines_that_coincide_are_all_seen_and_strokes_of_a_legend_differ() -> None:
    assert len({tuple(dashes) for dashes in objectives.LINES.values()}) == len(objectives.LINES)
    found, arms = Made(ARMS, 2).tables(), ["wide", "fixed", "gapo"]
    for name in ("training_course", "coverage", "learning_curves", "ratio_advantage", "clip_fraction", "upper_bounds"):
        spec = DRAW[name](found, arms).to_dict()
        lines = [rows for rows in spec["datasets"].values() if "weight" in rows[0]]
        assert lines, name
        for rows in lines:  # later ones, which are drawn over the others, are narrower
            weights = dict.fromkeys(row["weight"] for row in rows)
            assert list(weights) == [8.0, 5.0, 2.0], name


def _dicts(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _dicts(child)


@pytest.mark.parametrize(
    "study", ["nothing clipped, a run missing", pytest.param("20 arms of 10 seeds", marks=pytest.mark.slow)]
)
def test_tooltips_are_said_in_words_and_shares_begin_at_zero(study: str) -> None:
    found, arms = STUDIES[study]()
    policies = found["policies"].assign(decisive_tokens=0)
    for name, draw in DRAW.items():
        spec = draw(found | {"policies": policies}, arms).to_dict()
        nodes = list(_dicts({key: value for key, value in spec.items() if key != "datasets"}))
        told = [tooltip for node in nodes for tooltip in node.get("tooltip", [])]
        assert told, name
        for one in told:
            assert one["title"], name
            assert "_" not in one["title"], name
            assert one["type"] == "nominal" or one["format"], (name, one)
        for field in ("share", "truncated_share"):
            domains = [node["scale"]["domain"] for node in nodes if node.get("field") == field and "scale" in node]
            assert all(low == 0 < high for low, high in domains), name
            assert domains or not any(node.get("field") == field and "format" not in node for node in nodes), name
        headings = [node["title"] for node in nodes if isinstance(node.get("title"), dict)]
        assert all(heading["frame"] == "group" for heading in headings), name


def test_the_forest_plot_says_who_has_one_seed_and_fits_every_reason() -> None:
    rows = frame(tables.EFFECTS, Made(["base_line", "a", "b", "c", "d"], 2).effects())
    rows.loc[1:, ["ci_low", "ci_high"]] = np.nan
    rows.loc[3, "delta"] = np.nan
    rows["seeds"], rows["baseline_seeds"] = [5, 5, 1, 0], [5, 1, 1, 5]
    rows["reason"] = [None, "x", "x", "an arm has fewer than 2 seeds (0 against 5); " + "d seed 3 has no counts; " * 9]
    noise = Made(["base_line", "a"], 2).tables()["noise_floors"]
    svg = vl_convert.vegalite_to_svg(effects_chart(rows, noise, ["base_line", *"abcd"]).to_json(indent=None))
    drawn = " ".join(" ".join(texts(svg)).split())
    for said in ("the baseline has one seed", "arm and baseline have one seed", "the arm has no scored run"):
        assert f": {said}" in drawn, said
    rows["seeds"] = rows["baseline_seeds"] = 5
    svg = vl_convert.vegalite_to_svg(effects_chart(rows, noise, ["base_line", *"abcd"]).to_json(indent=None))
    assert "(0 against 5)" in " ".join(" ".join(texts(svg)).split())
    assert narrow.size(svg)[0] < 900


def test_the_noise_floors_say_what_the_table_says() -> None:
    assert noise_floors.SMALL_SHARE == statistics_of_noise.SMALL_SHARE
    rows = Made(["a", "b"], 3).tables()["noise_floors"]
    training = rows["kind"] == "training"
    rows.loc[training, "eval_share"], rows.loc[training, "expected_sd"] = [0.14, 0.304], [0.0066, 0.0075]
    rows.loc[training, "verdict"] = ["only more seeds help", "more seeds or more samples help"]
    chart = noise_floors_chart(rows, 1, ["a", "b"])
    drawn = texts(vl_convert.vegalite_to_svg(chart.to_json(indent=None)))
    assert {"only more seeds help (14 %)", "more seeds or more samples help (30 %)"} <= set(drawn)
    (shown,) = chart.to_dict()["datasets"].values()
    assert [row["expected_sd"] for row in shown] == pytest.approx([0.66, 0.75])  # each arm's own


@pytest.mark.parametrize("arms", [ARMS, pytest.param(MANY, marks=pytest.mark.slow)], ids=["3 arms", "20 arms"])
def test_a_narrow_window_gets_a_narrow_figure(arms: list[str]) -> None:
    found = Made(arms, 2).tables()
    for name in DRAW if len(arms) < 4 else ("effects", "learning_curves", "noise_floors", "clip_fraction"):
        spec = DRAW[name](found, arms).to_dict()
        small = narrow.fit(spec, 340)
        svg = vl_convert.vegalite_to_svg(json.dumps(small | {"datasets": spec["datasets"]}))
        assert narrow.size(svg)[0] <= 366, name  # of a window of 390
        assert MARKS.search(svg), name
        assert "datasets" not in small
        shown = arms[1:] if name in ("effects", "difficulty") else arms
        if name not in ("seeds_needed", "gradient_weight", "upper_bounds"):
            assert set(shown) <= set(texts(svg)), name  # stacked panels have names of their own
