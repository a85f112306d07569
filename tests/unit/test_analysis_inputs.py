"""The analysis stages on counts that lack something, or are not what they should be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from analysis_counts import (
    PROBLEMS,
    ROLES,
    STAGES,
    Run,
    analysis_in,
    counts,
    primary,
    problem_rows,
    run_scores,
    settings,
)
from scipy import stats

from workflow_scripts import tables
from workflow_scripts.errors import UserError


@pytest.fixture
def analyse(tmp_path: Path) -> Run:
    """analyse(table, settings, rows of counts) -> the table as the stage wrote it."""
    return analysis_in(tmp_path)


@pytest.mark.parametrize("absent", ["fixed", "gapo"])
@pytest.mark.parametrize("declared", [True, False])
def test_an_absent_arm_is_a_row_with_a_reason(analyse: Run, absent: str, declared: bool) -> None:
    chosen = settings(allow_missing=True)
    rows = [row for row in counts(chosen) if row["arm"] != absent]
    if not declared:  # as with only_arms
        chosen["runs"] = {arm: seeds for arm, seeds in chosen["runs"].items() if arm != absent}
    if not declared and absent == "fixed":
        chosen["last_steps"] = dict.fromkeys(chosen["runs"], 48)
        chosen["roles"] = {arm: role for arm, role in ROLES.items() if arm != absent}
    found = primary(analyse("effects", chosen, rows)).loc["gapo"]
    assert found["verdict"] == "not assessable"
    assert f"{absent} {'has no run' if declared else 'is not part'}" in found["reason"]
    assert found[["delta", "se", "ci_low", "ci_high", "p", "mde80", "seeds_needed"]].isna().all()
    for table in ("scores", "noise_floors", "power", "difficulty", "coverage"):
        written = analyse(table, chosen, rows)
        assert len(written)
        if table == "coverage" or (table == "scores" and not declared):
            assert absent not in set(written["arm"])
        elif table == "scores":
            row = written[written["arm"] == absent].drop_duplicates(["level", "step", "benchmark", "seeds"])
            assert row[["step", "seeds"]].to_numpy().tolist() == [[48, 0]]
            assert f"{absent} has no run" in row["reason"].item()
            assert row[["score", "ci_low", "problems"]].isna().all(axis=None)
        if table == "difficulty":
            assert written[written["arm"] == "gapo"]["delta"].isna().all()


def test_one_seed_per_arm_is_never_assessable(analyse: Run) -> None:
    chosen = settings(runs={arm: [0] for arm in ROLES}, looks=[1])
    rows = counts(chosen)
    found = analyse("effects", chosen, rows)
    assert (found["verdict"] == "not assessable").all()
    assert found["delta"].notna().all()
    assert found[["se", "df", "ci_low", "ci_high", "p", "p_holm", "p_bh", "mde80"]].isna().all(axis=None)
    assert found["reason"].str.contains("fewer than 2 seeds").all()
    power = analyse("power", chosen, rows)
    assert power[["run_sd", "mde80_one", "resolves_margin"]].isna().all(axis=None)
    floors = analyse("noise_floors", chosen, rows).query("kind == 'training'")
    assert (floors["verdict"] == "not assessable").all()


def test_missing_runs_are_named_and_the_others_used(analyse: Run) -> None:
    chosen = settings(allow_missing=True)
    rows = [row for row in counts(chosen) if (row["arm"], row["seed"]) not in {("gapo", 3), ("gapo", 4)}]
    found = primary(analyse("effects", chosen, rows)).loc["gapo"]
    assert found["seeds"] == 3
    assert "gapo: seed 3, 4 missing" in found["reason"]
    pair = run_scores(rows, "gapo"), run_scores(rows, "fixed")
    forms = [stats.ttest_ind(*pair, equal_var=equal).confidence_interval(0.975) for equal in (True, False)]
    assert found["ci_high"] - found["ci_low"] == pytest.approx(max(form.high - form.low for form in forms))


def test_a_run_that_ended_early_counts_with_its_last_checkpoint(analyse: Run) -> None:
    chosen = settings()
    rows = [row for row in counts(chosen) if (row["arm"], row["seed"], row["step"]) != ("gapo", 2, 48)]
    found = primary(analyse("effects", chosen, rows)).loc["gapo"]
    assert found["seeds"] == 5
    assert "gapo, seed 2: ended at step 24" in found["reason"]
    early = run_scores([row for row in rows if row["seed"] == 2], "gapo", step=24)
    scores = np.concatenate([run_scores(rows, "gapo"), early])
    assert found["delta"] == pytest.approx(scores.mean() - run_scores(rows, "fixed").mean())


def test_a_look_that_was_not_named_is_exploratory(analyse: Run) -> None:
    chosen = settings(looks=[3, 8])
    found = primary(analyse("effects", chosen, counts(chosen))).loc["gapo"]
    assert not found["planned_look"]
    assert "not a planned look" in found["reason"]
    assert found["level"] == pytest.approx(1 - 0.05 / 4)


def test_arms_of_different_length_are_compared_at_their_ends(analyse: Run) -> None:
    chosen = settings(last_steps=dict.fromkeys(ROLES, 48) | {"gapo": 24})
    rows = [row for row in counts(chosen) if (row["arm"], row["step"]) != ("gapo", 48)]
    found = primary(analyse("effects", chosen, rows)).loc["gapo"]
    assert found["delta"] == pytest.approx(run_scores(rows, "gapo", step=24).mean() - run_scores(rows, "fixed").mean())
    assert "against step 48" in found["reason"]
    named = settings(last_steps=chosen["last_steps"], endpoint={"pass_at": 1, "checkpoint": 24})
    found = primary(analyse("effects", named, rows)).loc["gapo"]
    same = run_scores(rows, "gapo", step=24).mean() - run_scores(rows, "fixed", step=24).mean()
    assert found["delta"] == pytest.approx(same)


def test_a_study_without_successes_or_with_one_problem_does_not_crash(analyse: Run) -> None:
    chosen = settings()
    rows = counts(chosen)
    for degenerate in (
        [{**row, "correct": 0} for row in rows],
        [row for row in rows if row["problem_id"] == "sums-000"],
        [{**row, "excluded": "contaminated"} for row in rows],
    ):
        written = {table: analyse(table, chosen, degenerate) for table in STAGES}
        population = written["effects"].query("estimand == 'population'")
        assert (population["verdict"] == "not assessable").all()
        assert written["effects"]["reason"].notna().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"correct": 9},
            "correct must lie between 0 and samples; arm fixed, seed 0, step 24, .*problem_id sums-000: 9",
        ),
        ({"samples": 7, "correct": 1}, "pass_at 8 needs as many samples; arm fixed, seed 0, .*1 correct of 7"),
        ({"problem_id": "other"}, "arm fixed, seed 0, step 24 has 40 problems of sums and arm base.*or not the same"),
    ],
)
def test_faulty_counts_are_refused_by_name(analyse: Run, change: dict[str, Any], message: str) -> None:
    chosen = settings()
    rows = counts(chosen)
    place = next(i for i, row in enumerate(rows) if row["arm"] == "fixed")
    rows[place] = rows[place] | change
    with pytest.raises(UserError, match=message):
        analyse("effects", chosen, rows)


@pytest.mark.parametrize("column", ["correct", "samples", "step", "arm", "problem_id"])
def test_a_null_in_counts_is_named(analyse: Run, column: str) -> None:
    chosen = settings()
    rows = counts(chosen)
    rows[7] = rows[7] | {column: None}
    with pytest.raises(UserError, match=rf"counts.parquet: no {column}; arm .*, problem_id .* of .* samples"):
        analyse("coverage", chosen, rows)


def test_a_look_is_planned_where_both_arms_have_that_number(analyse: Run) -> None:
    chosen = settings(looks=[3, 5])
    rows = [row for row in counts(chosen) if row["arm"] != "fixed" or row["seed"] < 3]
    found = primary(analyse("effects", chosen, rows))
    assert not found["planned_look"].any()
    assert found.loc["gapo", "reason"].startswith("5 and 3 seeds were not a planned look: exploratory")
    even = [row for row in rows if row["arm"] == "base" or row["seed"] % 10 < 3]
    assert primary(analyse("effects", chosen, even))["planned_look"].all()


def foreign(rows: list[dict[str, Any]]) -> Callable[..., None]:
    """In place of `tables.write`: a parquet file with these rows, in their order, that no stage has checked."""

    def write(path: Path, table: tables.Table, *_: Any) -> None:
        pq.write_table(pa.Table.from_pylist(rows, schema=tables.schema(table)), path)

    return write


def test_duplicate_counts_are_refused(analyse: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = settings()
    rows = counts(chosen)
    analyse("scores", chosen, rows)  # makes the folder
    with monkeypatch.context() as patch:
        patch.setattr(tables, "write", foreign([*rows, rows[0]]))
        with pytest.raises(UserError, match="two rows for one problem; arm base, seed 0, step 0"):
            analyse("scores", chosen, rows)


@pytest.mark.parametrize("table", STAGES)
def test_the_order_of_the_rows_of_counts_does_not_matter(
    analyse: Run, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings(benchmarks=["sums", "choice"])
    rows = counts(chosen)
    in_order = analyse(table, chosen, sorted(rows, key=lambda row: [row[c] for c in tables.COUNTS.key]))
    assert analyse(table, chosen, rows[::-1]).equals(in_order)


def test_a_run_that_ended_early_counts_at_every_later_step_and_adds_none(analyse: Run) -> None:
    """At a step of its own, too, where it diverged before its first checkpoint."""
    chosen = settings(checkpoints={arm: [24, 48] for arm in ROLES})
    rows = [row for row in counts(chosen) if (row["arm"], row["seed"]) != ("gapo", 1)]
    rows += problem_rows("gapo", 1, 13, "sums", np.zeros(PROBLEMS))
    effects = analyse("effects", chosen, rows)
    assert set(effects["step"]) == {24, 48}
    assert (effects["seeds"] == 5).all()
    for step in (24, 48):
        found = effects.query("arm == 'gapo' and step == @step and pass_at == 1 and estimand == 'benchmark'").iloc[0]
        assert "gapo, seed 1: ended at step 13, which counts" in found["reason"]
        of_others = [run_scores(rows, "gapo", step=step).sum(), run_scores(rows, "fixed", step=step).mean()]
        assert found["delta"] == pytest.approx(of_others[0] / 5 - of_others[1])
    scores = analyse("scores", chosen, rows).query("arm == 'gapo' and metric == 'avg@n'")
    assert scores.query("level == 'arm'")["reason"].tolist() == ["gapo, seed 1: ended at step 13, which counts"] * 2
    scores = scores.query("level == 'run'")
    assert scores.query("seed == 1")["score"].tolist() == [0, 0]
