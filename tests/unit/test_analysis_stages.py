"""The analysis stages on made-up counts: what a study may ask of them, and what may be missing."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from workflow_scripts import tables
from workflow_scripts.stages import (
    estimate_effects,
    estimate_power,
    estimate_scores,
    measure_noise_floors,
    summarise_coverage,
    summarise_difficulty,
)
from workflow_scripts.stages._command import Job, StageError

STAGES: dict[str, tuple[Any, tables.Table]] = {
    "scores": (estimate_scores, tables.SCORES),
    "effects": (estimate_effects, tables.EFFECTS),
    "noise_floors": (measure_noise_floors, tables.NOISE_FLOORS),
    "power": (estimate_power, tables.POWER),
    "difficulty": (summarise_difficulty, tables.DIFFICULTY),
    "coverage": (summarise_coverage, tables.COVERAGE),
}
PROBLEMS, SAMPLES = 40, 8
SOLVE_RATES = {"base": 0.3, "fixed": 0.6, "gapo": 0.62, "matched": 0.61, "placebo": 0.6, "slow": 0.4}
ROLES = dict.fromkeys(("fixed", "gapo", "matched"), "comparison") | {"placebo": "placebo", "slow": "sensitivity"}


def settings(**changes: Any) -> dict[str, Any]:
    """What the rules hand to every analysis stage, for a study like the default one."""
    return {
        "baseline": "fixed",
        "roles": ROLES,
        "runs": {arm: [10, 11, 12, 13, 14] if arm == "placebo" else [0, 1, 2, 3, 4] for arm in ROLES},
        "benchmarks": ["sums"],
        "pass_at": [1, 8],
        "endpoint": {"pass_at": 1, "checkpoint": "last"},
        "margin": 0.05,
        "alpha": 0.05,
        "looks": [5],
        "last_steps": dict.fromkeys(ROLES, 48),
        "base_repeats": [0, 1, 2],
        "allow_missing": False,
    } | changes


def problem_rows(arm: str, seed: int, step: int, benchmark: str, correct: Iterable[int]) -> list[dict[str, Any]]:
    """Rows of counts of one run at one step."""
    return [
        {
            "arm": arm, "seed": seed, "step": step, "benchmark": benchmark, "problem_id": f"{benchmark}-{i:03}",
            "samples": SAMPLES, "correct": int(c), "truncated": 1, "unparsed": 2, "timeout": 0, "completion_tokens": 80,
        }
        for i, c in enumerate(correct)
    ]  # fmt: skip


def counts(chosen: dict[str, Any]) -> list[dict[str, Any]]:
    """Counts of all declared runs at steps 24 and 48, and of the base model; the same for every call."""
    rows = []
    for benchmark in chosen["benchmarks"]:
        easiness = np.random.default_rng(1).normal(0, 1, PROBLEMS)
        runs = [("base", repeat, 0) for repeat in chosen["base_repeats"]]
        runs += [(arm, seed, step) for arm, seeds in chosen["runs"].items() for seed in seeds for step in (24, 48)]
        for number, (arm, seed, step) in enumerate(runs):
            rng = np.random.default_rng(number)
            run = rng.normal(0, 0.0 if arm == "base" else 0.1)
            rate = 1 / (1 + np.exp(-easiness - run - np.log(SOLVE_RATES[arm] / (1 - SOLVE_RATES[arm]))))
            rows += problem_rows(arm, seed, step, benchmark, rng.binomial(SAMPLES, rate))
    return rows


Run = Callable[..., pd.DataFrame]


@pytest.fixture
def analyse(tmp_path: Path) -> Run:
    """analyse(table, settings, rows of counts) -> the table as the stage wrote it."""

    def run(table: str, chosen: dict[str, Any], rows: list[dict[str, Any]], **more: list[str]) -> pd.DataFrame:
        tables.write(tmp_path / "tables/counts.parquet", tables.COUNTS, rows, {})
        timed = [{"arm": "fixed", "seed": 0, "train_seconds": 20.0, "sample_seconds": 5.0}, {"arm": "gapo", "seed": 0}]
        tables.write(tmp_path / "tables/runs.parquet", tables.RUNS, timed, {})
        stage, schema = STAGES[table]
        inputs = {name: [str(tmp_path / f"tables/{name}.parquet")] for name in ("counts", "runs")} | more
        output = tmp_path / f"tables/{table}.parquet"
        stage.main(Job(chosen, {}, "c0de", tmp_path, inputs, {table: [str(output)]}, stage.LIBRARIES))
        return tables.read(output, schema).to_pandas()

    return run


def primary(effects: pd.DataFrame) -> pd.DataFrame:
    """The primary rows by arm."""
    return effects[effects["primary"]].set_index("arm")


def run_scores(rows: list[dict[str, Any]], arm: str, benchmark: str = "sums", step: int = 48) -> np.ndarray:
    """pass@1 of each run of an arm, straight from the rows."""
    frame = pd.DataFrame(rows).query("arm == @arm and benchmark == @benchmark and step == @step")
    return frame.groupby("seed")["correct"].mean().to_numpy() / SAMPLES


def test_the_primary_effect_is_the_t_test_of_the_run_scores_at_the_corrected_level(analyse: Run) -> None:
    chosen = settings()
    rows = counts(chosen)
    found = primary(analyse("effects", chosen, rows))
    assert set(found.index) == {"gapo", "matched", "placebo", "slow"}
    for arm, level in {"gapo": 0.975, "matched": 0.975, "placebo": 0.95, "slow": 0.95}.items():
        test = stats.ttest_ind(run_scores(rows, arm), run_scores(rows, "fixed"))
        interval = test.confidence_interval(level)
        got = found.loc[arm]
        assert got["level"] == pytest.approx(level)
        assert (got["ci_low"], got["ci_high"], got["p"]) == pytest.approx((interval.low, interval.high, test.pvalue))
        assert (got["seeds"], got["baseline_seeds"], got["look"], got["planned_look"]) == (5, 5, 5, True)
        assert (got["estimand"], got["problems"], got["samples"]) == ("benchmark", PROBLEMS, SAMPLES)
    assert found.loc["slow", "verdict"] == "worse"
    family = found.loc[["gapo", "matched"], "p"]
    assert found.loc[family.idxmin(), "p_holm"] == pytest.approx(min(1, 2 * family.min()))
    assert found.loc[["placebo", "slow"], "p_holm"].isna().all()


def test_the_family_is_adjusted_by_holm(analyse: Run) -> None:
    chosen = settings(roles=ROLES | {"placebo": "comparison"}, pass_at=[1])
    found = primary(analyse("effects", chosen, counts(chosen))).sort_values("p").query("arm != 'slow'")
    stepped = np.maximum.accumulate(found["p"].to_numpy() * [3, 2, 1])
    assert found["p_holm"].to_numpy() == pytest.approx(np.minimum(stepped, 1))
    assert found["level"].to_numpy() == pytest.approx(1 - 0.05 / 3)


def test_everything_else_is_exploratory_and_adjusted_together(analyse: Run) -> None:
    chosen = settings(benchmarks=["sums", "more"])
    effects = analyse("effects", chosen, counts(chosen))
    assert len(effects) == 4 * 3 * 2 * 2 * 2  # arms, benchmarks and macro, steps, pass_at, estimands
    assert (primary(effects)["benchmark"] == "macro").all()
    rest = effects[~effects["primary"]]
    family = rest[rest["arm"].isin(["gapo", "matched"])].dropna(subset="p")
    assert family["p_bh"].to_numpy() == pytest.approx(stats.false_discovery_control(family["p"]))
    assert rest["reason"].str.startswith("exploratory").all()
    assert effects["p_holm"].notna().sum() == 2


def test_the_macro_average_weighs_benchmarks_not_problems(analyse: Run) -> None:
    chosen = settings(benchmarks=["more", "sums"])
    rows = [row for row in counts(chosen) if row["benchmark"] == "sums" or row["problem_id"] < "more-010"]
    delta = primary(analyse("effects", chosen, rows)).loc["gapo", "delta"]
    each = [run_scores(rows, "gapo", name).mean() - run_scores(rows, "fixed", name).mean() for name in ("more", "sums")]
    assert delta == pytest.approx(np.mean(each))


def test_excluded_problems_do_not_count(analyse: Run) -> None:
    chosen = settings()
    rows = counts(chosen)
    kept = [row for row in rows if row["problem_id"] >= "sums-010"]
    marked = [row if row["problem_id"] >= "sums-010" else {**row, "excluded": "contaminated"} for row in rows]
    pd.testing.assert_frame_equal(analyse("effects", chosen, marked), analyse("effects", chosen, kept))
    assert (analyse("coverage", chosen, marked)["problems"] == PROBLEMS - 10).all()


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
    with pytest.raises(StageError, match=message):
        analyse("effects", chosen, rows)


@pytest.mark.parametrize("column", ["correct", "samples", "step", "arm", "problem_id"])
def test_a_null_in_counts_is_named(analyse: Run, column: str) -> None:
    chosen = settings()
    rows = counts(chosen)
    rows[7] = rows[7] | {column: None}
    with pytest.raises(StageError, match=rf"counts.parquet: no {column}; arm .*, problem_id .* of .* samples"):
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
        with pytest.raises(StageError, match="two rows for one problem; arm base, seed 0, step 0"):
            analyse("scores", chosen, rows)


@pytest.mark.parametrize("table", STAGES)
def test_the_order_of_the_rows_of_counts_does_not_matter(
    analyse: Run, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings(benchmarks=["sums", "choice"])
    rows = counts(chosen)
    in_order = analyse(table, chosen, sorted(rows, key=lambda row: [row[c] for c in tables.COUNTS.key]))
    assert analyse(table, chosen, rows[::-1]).equals(in_order)


def test_scores_hold_every_run_and_the_interval_over_runs(analyse: Run) -> None:
    chosen = settings()
    rows = counts(chosen)
    scores = analyse("scores", chosen, rows)
    runs = scores.query("level == 'run' and arm == 'gapo' and step == 48 and pass_at == 1")
    averages = scores.query("level == 'run' and arm == 'gapo' and step == 48 and metric == 'avg@n'")
    assert averages["score"].tolist() == runs["score"].tolist()
    assert runs["ci_high"].to_numpy() == pytest.approx(runs["score"] + stats.norm.ppf(0.975) * runs["se"])
    assert runs["score"].to_numpy() == pytest.approx(run_scores(rows, "gapo"))
    arm = scores.query("level == 'arm' and arm == 'gapo' and step == 48 and pass_at == 1").iloc[0]
    expected = stats.ttest_1samp(run_scores(rows, "gapo"), 0).confidence_interval(0.95)
    assert (arm["ci_low"], arm["ci_high"]) == pytest.approx((expected.low, expected.high))
    assert arm["truncated_share"] == 1 / SAMPLES
    assert arm["unparsed_share"] == 2 / SAMPLES
    assert arm["mean_completion_tokens"] == 80 / SAMPLES
    assert scores.query("arm == 'base' and level == 'run'")["seed"].nunique() == 3
    assert scores.query("pass_at == 8")["se"][lambda se: scores["level"] == "run"].isna().all()  # samples < 2 pass_at


def test_a_selection_benchmark_has_scores_and_no_effects(analyse: Run) -> None:
    rows = counts(settings(benchmarks=["sums", "choice"]))
    chosen = settings(selection="choice")
    assert set(analyse("scores", chosen, rows)["benchmark"]) == {"sums", "choice"}
    for table in ("effects", "noise_floors", "coverage", "difficulty"):
        assert set(analyse(table, chosen, rows)["benchmark"]) == {"sums"}


def test_noise_floors_of_four_kinds(analyse: Run) -> None:
    chosen = settings()
    rows = counts(chosen)
    floors = analyse("noise_floors", chosen, rows).query("pass_at == 1").set_index(["kind", "arm", "step"])
    scores = run_scores(rows, "base", step=0)
    base = pd.DataFrame(rows).query("arm == 'base'")
    rate = base["correct"] / SAMPLES
    expected = np.sqrt((rate * (1 - rate) / (SAMPLES - 1)).sum() / 3) / PROBLEMS
    evaluation = floors.loc[("evaluation", "base", 0)]
    assert (evaluation["sd"], evaluation["expected_sd"]) == pytest.approx((scores.std(ddof=1), expected))
    assert evaluation["band"] == pytest.approx(1.959964 * np.sqrt(2) * expected)
    assert "in 40 % of cases" in evaluation["reason"]
    training = floors.loc[("training", "gapo", 48)]
    assert training["sd"] == pytest.approx(run_scores(rows, "gapo").std(ddof=1))
    assert training["sd_low"] < training["sd"] < training["sd_high"]
    assert 0 < training["eval_share"] <= 1
    placebo = floors.loc[("placebo", "placebo", 48)]
    effect = primary(analyse("effects", chosen, rows)).loc["placebo"]
    assert placebo["band"] == pytest.approx((effect["ci_high"] - effect["ci_low"]) / 2)
    assert placebo["runs"] == 10
    assert floors.loc[("sensitivity", "slow", 48), "verdict"] == "told from the baseline"
    assert re.search(
        r"difference \N{MINUS SIGN}\d+\.\d points: worse", floors.loc[("sensitivity", "slow", 48), "reason"]
    )
    close = [{**row, "arm": "slow"} if row["arm"] == "matched" else row for row in rows if row["arm"] != "slow"]
    blind = analyse("noise_floors", chosen, close).query("kind == 'sensitivity' and pass_at == 1").iloc[0]
    assert blind["verdict"] == "not told from the baseline"
    better = [{**row, "correct": SAMPLES - row["correct"] // 4} if row["arm"] == "slow" else row for row in rows]
    wrong = analyse("noise_floors", chosen, better).query("kind == 'sensitivity' and pass_at == 1").iloc[0]
    assert wrong["verdict"] == "not told from the baseline"
    assert "better, though made to lose" in wrong["reason"]


def test_power_says_what_more_seeds_would_buy(analyse: Run) -> None:
    chosen = settings()
    rows = counts(chosen)
    power = analyse("power", chosen, rows).set_index("seeds")
    assert list(power.index) == [3, 5, 8, 10, 20]
    variances = [run_scores(rows, arm).var(ddof=1) for arm in ROLES]
    assert power["run_sd"].to_numpy() == pytest.approx(np.sqrt(np.mean(variances)))
    assert power.loc[5, "mde80_one"] == pytest.approx(2.0244 * np.sqrt(np.mean(variances)), rel=1e-4)
    assert (power["mde80_family_upper80"] > power["mde80_family"]).all()
    assert (power["mde80_family"] > power["mde80_one"]).all()
    assert (power["resolves_margin"] == (power["mde80_family"] <= 0.05)).all()
    assert (power["seconds_per_run"] == 25.0).all()
    assert power["extra_seconds"].tolist() == [0, 0, 3 * 5 * 25, 5 * 5 * 25, 15 * 5 * 25]


def test_difficulty_splits_by_the_base_model_and_by_the_source(analyse: Run, tmp_path: Path) -> None:
    chosen = settings()
    rows = counts(chosen)
    holdout = [{"problem_id": f"sums-{i:03}", "difficulty": 1 + i % 3} for i in range(PROBLEMS)]
    tables.write(tmp_path / "holdouts/sums.parquet", tables.PROBLEMS, holdout, {})
    found = analyse("difficulty", chosen, rows, holdout=[str(tmp_path / "holdouts/sums.parquet")])
    found = found.query("arm == 'gapo' and pass_at == 1").set_index(["split_by", "bin"])
    delta = run_scores(rows, "gapo").mean() - run_scores(rows, "fixed").mean()
    for split_by in ("base_solve_rate", "difficulty"):
        part = found.loc[split_by]
        assert part["problems"].sum() == PROBLEMS
        assert (part["problems"] * part["delta"]).sum() / PROBLEMS == pytest.approx(delta)
    assert list(found.loc["difficulty"].index) == ["1", "2", "3"]
    assert (found["ci_low"].dropna() < found["delta"][found["ci_low"].notna()]).all()


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


def test_coverage_counts_gained_and_lost_problems(analyse: Run) -> None:
    chosen = settings(
        roles={"fixed": "comparison", "gapo": "comparison", "placebo": "placebo"},
        runs={"fixed": [0, 1], "gapo": [0], "placebo": [7]},
        base_repeats=[0, 1],
    )
    rows = [
        row
        for arm, seed, step, correct in (
            ("base", 0, 0, [0, 0, 1, 8]), ("base", 1, 0, [1, 0, 0, 8]),
            ("fixed", 0, 48, [3, 0, 0, 8]), ("fixed", 1, 48, [3, 2, 0, 8]),
            ("gapo", 0, 48, [0, 5, 6, 8]), ("placebo", 7, 48, [0, 0, 0, 8]),
        )
        for row in problem_rows(arm, seed, step, "sums", correct)
    ]  # fmt: skip
    columns = ["solved", "gained", "lost", "placebo_gained", "placebo_lost", "gained_from_base", "lost_from_base"]

    def found(chosen: dict[str, Any], level: str = "run") -> dict[tuple[str, int], list[float]]:
        table = analyse("coverage", chosen, rows).query("level == @level").set_index(["arm", "seed"])
        assert set(table["against"].dropna()) == {"fixed"}
        return {key: [None if np.isnan(x) else x for x in row] for key, row in table[columns].T.to_dict("list").items()}

    runs = found(chosen)
    assert runs["gapo", 0] == [3, (2 + 1) / 2, (1 + 1) / 2, 0, 1.5, 1.5, 0.5]
    assert runs["fixed", 0] == [2, 0, 1, 0, 1.5, 0.5, 0.5]  # against the baseline's other run
    assert runs["base", 0] == [2, None, None, None, None, 1, 1]
    assert [row[:5] for (arm, _), row in found(chosen, "arm").items() if arm == "fixed"] == [[2.5, 0.5, 0.5, 0, 1.5]]
    without = analyse("coverage", chosen | {"roles": dict.fromkeys(("fixed", "gapo"), "comparison")}, rows)
    known = without.query("arm == 'gapo' and level == 'arm'").iloc[0]
    assert (known["placebo"], known["placebo_gained"], known["placebo_lost"]) == ("fixed", 0.5, 0.5)
    histograms = without.query("arm == 'fixed' and level == 'arm'")["solve_rate_histogram"].iloc[0]
    assert histograms.tolist() == [3, 0, 1, 2, 0, 0, 0, 0, 2]


def test_equal_inputs_give_equal_bytes(analyse: Run, tmp_path: Path) -> None:
    chosen = settings()
    rows = counts(chosen)
    for table in STAGES:
        analyse(table, chosen, rows)
        first = (tmp_path / f"tables/{table}.parquet").read_bytes()
        analyse(table, chosen, rows)
        assert (tmp_path / f"tables/{table}.parquet").read_bytes() == first
