"""The analysis stages on made-up counts: what a study may ask of them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from analysis_counts import (
    PROBLEMS,
    ROLES,
    SAMPLES,
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


@pytest.fixture
def analyse(tmp_path: Path) -> Run:
    """analyse(table, settings, rows of counts) -> the table as the stage wrote it."""
    return analysis_in(tmp_path)


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
    variances = {arm: run_scores(rows, arm).var(ddof=1) for arm in ROLES}
    compared = {arm: np.sqrt((variances[arm] + variances["fixed"]) / 2) for arm in ("gapo", "matched")}
    widest = max(compared, key=compared.__getitem__)
    effects = analyse("effects", chosen, rows).query("primary and arm == @widest").iloc[0]
    assert list(power.index) == sorted({3, 5, 8, 10, 20, int(effects["seeds_needed"])})
    assert set(power["run_sd_of"]) == {f"{widest} and fixed"}
    assert power["run_sd"].to_numpy() == pytest.approx(compared[widest])
    assert power.loc[5, "mde80_family"] == pytest.approx(effects["mde80"])  # the page says one thing
    assert power.index[power["resolves_margin"]].min() == effects["seeds_needed"]
    assert power.loc[5, "mde80_one"] == pytest.approx(2.0244 * compared[widest], rel=1e-4)
    assert (power["mde80_family_upper80"] > power["mde80_family"]).all()
    assert (power["mde80_family"] > power["mde80_one"]).all()
    assert (power["resolves_margin"] == (power["mde80_family"] <= 0.05)).all()
    assert (power["seconds_per_run"] == 25.0).all()
    assert power["extra_seconds"].tolist() == [max(seeds - 5, 0) * 5 * 25 for seeds in power.index]
    alone = settings(runs={arm: [0] if arm == "fixed" else [0, 1] for arm in ROLES})
    power = analyse("power", alone, counts(alone))
    assert set(power["run_sd_of"]) == {" and ".join(sorted(arm for arm in ROLES if arm != "fixed"))}


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
    assert runs["gapo", 0] == [3, 1, 1, 0, 1.5, 1.5, 0.5]  # against the run of another seed
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
