"""Branch arms in figures: where their lines begin; and the figure of ratio and advantage."""

from typing import Any

import altair as alt
import pandas as pd
import pytest
from copies import STUDY
from report_study import BENCHMARK

from workflow_scripts import stage_settings
from workflow_scripts.figures import branches
from workflow_scripts.figures.learning_curves import learning_curves_chart
from workflow_scripts.figures.ratio_advantage import ratio_advantage_chart
from workflow_scripts.study import load

ARMS = ["fixed", "late", "other"]
BRANCHED = {"late": {"arm": "fixed", "step": 4}}


def layers(chart: alt.TopLevelMixin, panel: int = 0) -> list[dict[str, Any]]:
    """The layers of one panel, in their order, each with its mark and its rows."""
    told = chart.to_dict()
    rows = told.get("vconcat", [told])
    found = [panel for row in rows for panel in row.get("hconcat", [row])][panel]["layer"]
    return [{"mark": layer["mark"], "rows": told["datasets"][layer["data"]["name"]]} for layer in found]


def line(layers: list[dict[str, Any]], width: int, value: str, **where: Any) -> list[tuple[float, float]]:
    """The points of a line of that width: thin 1, bold 3."""
    (rows,) = (layer["rows"] for layer in layers if layer["mark"].get("strokeWidth") == width)
    return [(row["step"], row[value]) for row in rows if all(row[key] == given for key, given in where.items())]


def rings(layers: list[dict[str, Any]], value: str) -> list[tuple[str, float, float]]:
    """Arm, step and value of each ring."""
    return [(r["arm"], r["step"], r[value]) for one in layers if one["mark"].get("size") == 150 for r in one["rows"]]


def test_settings_name_branches_only_where_there_are_any() -> None:
    """Else a study without branches would lose its cache."""
    assert stage_settings.branches(load(STUDY)) == {"branches": BRANCHED}
    assert stage_settings.records(load(STUDY), 1)["branches"] == BRANCHED
    without = load(STUDY | {"arms": {name: arm for name, arm in STUDY["arms"].items() if name != "late"}})
    assert stage_settings.branches(without) == {}
    assert "branches" not in stage_settings.records(without, 1)


def scores() -> pd.DataFrame:
    """Fixed with seeds 0 to 2, late with seeds 0 and 1 only; a run's score is step / 100 + seed / 10, late 5 higher."""
    rows = [{"level": "arm", "arm": "base", "seed": None, "step": 0, "score": 0.03}]
    for arm, seeds, steps, more in (("fixed", 3, (4, 8), 0.0), ("other", 3, (4, 8), 0.0), ("late", 2, (8,), 0.05)):
        for step in steps:
            runs = [step / 100 + seed / 10 + more for seed in range(seeds)]
            rows += [{"level": "run", "arm": arm, "seed": s, "step": step, "score": v} for s, v in enumerate(runs)]
            rows.append({"level": "arm", "arm": arm, "seed": None, "step": step, "score": sum(runs) / seeds})
    return pd.DataFrame(rows).assign(benchmark=BENCHMARK, pass_at=1)


def test_a_branch_starts_where_it_leaves_its_parent_and_not_at_the_base() -> None:
    found = layers(learning_curves_chart(scores(), ARMS, BRANCHED))
    assert line(found, 1, "score", arm="late", seed=1) == [(4, pytest.approx(14)), (8, pytest.approx(23))]
    # at 4 the mean of the parent's seeds 0 and 1; its third would make it 14
    assert line(found, 3, "score", arm="late") == [(4, pytest.approx(9)), (8, pytest.approx(18))]
    assert rings(found, "score") == [("late", 4, pytest.approx(9))]
    # the parent goes on in the same figure
    assert line(found, 3, "score", arm="fixed") == [(0, 3.0), (4, pytest.approx(14)), (8, pytest.approx(18))]
    assert line(found, 1, "score", arm="other", seed=0) == [(0, 3.0), (4, pytest.approx(4)), (8, pytest.approx(8))]


def test_without_branches_every_arm_starts_at_the_base() -> None:
    chart = learning_curves_chart(scores(), ARMS)
    found = layers(chart)
    assert line(found, 3, "score", arm="late")[0] == (0, 3.0)
    assert rings(found, "score") == []
    assert branches.HOW_TO_READ not in chart.to_json(ensure_ascii=False)
    assert branches.HOW_TO_READ in learning_curves_chart(scores(), ARMS, BRANCHED).to_json(ensure_ascii=False)


def test_a_branch_of_a_run_that_is_missing_starts_at_its_own_first_point() -> None:
    rows = scores()
    rows = rows[(rows["arm"] != "fixed") | (rows["seed"] != 1)]
    found = layers(learning_curves_chart(rows, ARMS, BRANCHED))
    assert line(found, 1, "score", arm="late", seed=1) == [(8, pytest.approx(23))]
    assert line(found, 1, "score", arm="late", seed=0) == [(4, pytest.approx(4)), (8, pytest.approx(13))]


def updates(arm: str, seed: int, values: dict[int, float | None]) -> list[dict[str, Any]]:
    """Rows of `dynamics` over all rollouts: two updates to a batch, step -> correlation."""
    return [
        {"arm": arm, "seed": seed, "step": step, "update_index": (step - 1) % 2, "group_correct": None, "rollouts": 8,
         "mean_abs_ratio_deviation": 9.0, "ratio_advantage_correlation": value}
        for step, value in values.items()
    ]  # fmt: skip


def by_correct(arm: str, seed: int, step: int, values: dict[int, tuple[int, float]]) -> list[dict[str, Any]]:
    """Rows of `dynamics` by correct rollouts: group_correct -> (rollouts, deviation)."""
    return [
        {"arm": arm, "seed": seed, "step": step, "update_index": (step - 1) % 2, "group_correct": correct,
         "rollouts": count, "mean_abs_ratio_deviation": value, "ratio_advantage_correlation": 0.9}
        for correct, (count, value) in values.items()
    ]  # fmt: skip


def test_correlation_over_training_leaves_out_the_first_update_of_a_batch() -> None:
    rows = [
        *updates("fixed", 0, {1: 0.9, 2: 0.5, 3: 0.9, 4: 0.3, 5: 0.9, 6: None}),
        *updates("fixed", 1, {1: 0.9, 2: 0.7, 3: 0.9, 4: 0.5, 5: 0.9, 6: 0.1}),
        *updates("late", 1, {5: 0.9, 6: 0.2}),
    ]
    found = layers(ratio_advantage_chart(pd.DataFrame(rows), ARMS, BRANCHED))
    bold = line(found, 3, "correlation", arm="fixed")
    assert bold == [(2, pytest.approx(0.6)), (4, pytest.approx(0.4)), (6, pytest.approx(0.1))]
    assert line(found, 1, "correlation", arm="fixed", seed=0) == [(2, 0.5), (4, 0.3)]
    # the branch has seed 1 alone, so it starts at that seed's .5 and not at the mean of both
    assert line(found, 3, "correlation", arm="late") == [(4, 0.5), (6, 0.2)]
    assert rings(found, "correlation") == [("late", 4, 0.5)]


def test_several_updates_of_a_batch_are_one_point_and_many_batches_a_moving_mean() -> None:
    rows = pd.DataFrame(updates("fixed", 0, {step: 0.1 * step for step in range(1, 5)}))
    rows = rows.assign(update_index=[0, 1, 2, 3])
    assert line(layers(ratio_advantage_chart(rows, ARMS)), 1, "correlation") == [(4, pytest.approx(0.3))]
    values = {step: float(step % 4 == 0) for step in range(1, 81)}  # forty batches, in turn 0 and 1
    chart = ratio_advantage_chart(pd.DataFrame(updates("fixed", 0, values)), ARMS)
    found = line(layers(chart), 1, "correlation")
    assert len(found) == 40
    assert [value for _, value in found] == [0.0] + [0.5] * 39
    assert "moving mean over 2 rollout batches" in chart.to_json()


def test_drift_by_correct_rollouts_is_pooled_over_rollouts() -> None:
    rows = [
        *updates("fixed", 0, {2: 0.5}),
        *by_correct("fixed", 0, 1, {1: (8, 7.0)}),  # the first update of its batch
        *by_correct("fixed", 0, 2, {1: (6, 0.02), 2: (2, 0.01)}),
        *by_correct("fixed", 1, 2, {1: (2, 0.06)}),
    ]
    found = layers(ratio_advantage_chart(pd.DataFrame(rows), ARMS), panel=1)
    (bold,) = (layer["rows"] for layer in found if layer["mark"].get("strokeWidth") == 3)
    pooled = {row["group_correct"]: row["deviation"] for row in bold}
    assert pooled == {1: pytest.approx((6 * 0.02 + 2 * 0.06) / 8), 2: pytest.approx(0.01)}


def test_drift_of_a_branch_and_its_parent_is_of_the_same_updates() -> None:
    rows = [
        *updates("fixed", 0, {2: 0.5, 6: 0.4}),
        *by_correct("fixed", 0, 2, {1: (8, 7.0)}),  # before the branch: drift is larger at the beginning
        *by_correct("fixed", 0, 6, {1: (8, 0.02)}),
        *by_correct("late", 0, 6, {1: (8, 0.03)}),
    ]
    chart = ratio_advantage_chart(pd.DataFrame(rows), ARMS, BRANCHED)
    (bold,) = (layer["rows"] for layer in layers(chart, panel=1) if layer["mark"].get("strokeWidth") == 3)
    assert {row["arm"]: row["deviation"] for row in bold} == {"fixed": pytest.approx(0.02), "late": pytest.approx(0.03)}
    assert "updates after 4 alone" in chart.to_json()


def test_an_arm_with_one_point_is_a_dot() -> None:
    rows = pd.DataFrame(updates("fixed", 0, {2: 0.5, 4: 0.4}) + updates("other", 0, {2: 0.3}))
    dots = [layer["rows"] for layer in layers(ratio_advantage_chart(rows, ARMS)) if layer["mark"].get("size") == 45]
    assert [(row["arm"], row["correlation"]) for row in dots[0]] == [("other", 0.3)]
