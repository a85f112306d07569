"""Statistics and compare on what other projects' users have: the right value of each case, and of its neighbours."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from analysis_counts import Run, analysis_in, problem_rows, settings
from compare_calls import EXAMPLE, entry, log, one_line, said, table
from scipy import stats

from workflow_scripts import tables
from workflow_scripts.commands import compare, simulate
from workflow_scripts.figures import words
from workflow_scripts.figures.costs import seeds_needed_chart
from workflow_scripts.launch.study_file import DEFAULT_STUDY
from workflow_scripts.report import grids
from workflow_scripts.statistics import power
from workflow_scripts.statistics.arm import Arm
from workflow_scripts.statistics.effects import NO_SPREAD, Verdict, judge
from workflow_scripts.study import StudyFaults, load

# No spread, no plan

SAMPLES = 8
FLAT = "have the same score within their arm, so there is no spread between runs to plan with"


def runs_of(correct: dict[str, list[int]]) -> list[dict[str, Any]]:
    """Counts of two problems: of each arm, for each seed, so many correct on both."""
    return [
        row
        for arm, each in correct.items()
        for seed, c in enumerate(each)
        for row in problem_rows(arm, seed, 48, "sums", [c, c])
    ]


@pytest.mark.parametrize(
    ("correct", "reason"),
    [
        ({"fixed": [0, 0, 0], "gapo": [0, 0, 0]}, f"all seeds of fixed and gapo {FLAT}"),
        ({"fixed": [8, 8, 8], "gapo": [8, 8, 8]}, f"all seeds of fixed and gapo {FLAT}"),
        ({"fixed": [4, 4], "gapo": [6, 6]}, f"all seeds of fixed and gapo {FLAT}"),
        ({"fixed": [4], "gapo": [6, 6]}, f"all seeds of gapo {FLAT}"),
        ({"fixed": [4], "gapo": [6]}, "no arm has two seeds, so the spread between runs is not known"),
    ],
)  # fmt: skip
def test_there_is_no_plan_without_spread(tmp_path: Path, correct: dict[str, list[int]], reason: str) -> None:
    analyse: Run = analysis_in(tmp_path)
    chosen = settings(
        roles=dict.fromkeys(correct, "comparison"), runs={arm: list(range(len(c))) for arm, c in correct.items()}
    )
    rows = runs_of(correct)
    found = analyse("power", chosen, rows)
    unknown = ["run_sd", "run_sd_upper80", "run_sd_of", "mde80_one", "mde80_family", "mde80_family_upper80"]
    assert found[[*unknown, "resolves_margin"]].isna().all(axis=None)
    assert set(found["reason"]) == {reason}
    assert set(analyse("effects", chosen, rows)["verdict"]) == {Verdict.NOT_ASSESSABLE}
    drawn = json.dumps(seeds_needed_chart(found, 0.05).to_dict())
    assert reason.split(",")[0][:40] in drawn and "resolve it" not in drawn
    assert grids.power(found.replace({np.nan: None}).to_dict("records")).note.endswith(f"{reason}.")
    scores = analyse("scores", chosen, rows)
    assert scores[(scores["level"] == "arm") & (scores["metric"] == "pass@k")]["ci_low"].isna().all()


def test_a_plan_is_made_of_the_comparison_that_has_spread(tmp_path: Path) -> None:
    correct = {"fixed": [8, 8], "gapo": [8, 8], "matched": [2, 4]}
    chosen = settings(roles=dict.fromkeys(correct, "comparison"), runs={arm: [0, 1] for arm in correct})
    found = analysis_in(tmp_path)("power", chosen, runs_of(correct))
    assert set(found["run_sd_of"]) == {"matched and fixed"}
    assert found["reason"].isna().all() and (found["run_sd"] > 0).all()


def test_a_run_whose_samples_are_all_right_has_no_interval_of_no_width(tmp_path: Path) -> None:
    chosen = settings(roles=dict.fromkeys(("fixed", "gapo"), "comparison"), runs={"fixed": [0, 1], "gapo": [0, 1]})
    scores = analysis_in(tmp_path)("scores", chosen, runs_of({"fixed": [8, 8], "gapo": [7, 8]}))
    runs = scores.query("level == 'run' and pass_at == 1 and metric == 'pass@k' and arm != 'base'")
    assert runs["ci_low"].isna().tolist() == [True, True, False, True]


# What is said without spread


@pytest.mark.parametrize(
    ("scores", "measured"),
    [(("50", "75"), "+25.0"), (("50", "50"), "0.0"), (("0", "100"), "+100.0"), (("100", "0"), "−100.0")],
)
def test_without_variance_the_sentence_is_true(tmp_path: Path, scores: tuple[str, str], measured: str) -> None:
    counts = {arm: [(int(c), int(c))] * 3 for arm, c in zip("ab", scores, strict=True)}
    (tmp_path / "x.csv").write_text(table(counts))
    code, out, _ = said(tmp_path / "x.csv")
    assert (code, out.count(f"b: not assessable; {NO_SPREAD}; measured {measured} points, without an interval")) == (
        0,
        1,
    )
    assert "both arms have the same score" not in out


# Intervals are of scores


def arms(*scores: list[float], problems: int = 4) -> tuple[Arm, ...]:
    """An arm of each list: the score of each seed on all of its problems."""
    made = []
    for each in scores:
        score = np.tile(np.array(each)[:, None], (1, problems))
        made.append(Arm(tuple(range(len(each))), (score,), (np.zeros_like(score),)))
    return tuple(made)


def two_seeds(first: tuple[int, int], second: tuple[int, int]) -> str:
    """Two arms of two seeds, c of 100 on two problems."""
    return table({"a": [(c, c) for c in first], "b": [(c, c) for c in second]})


@pytest.mark.parametrize(
    ("first", "second"),
    [((50, 50), (30, 60)), ((20, 20), (20, 75)), ((10, 90), (20, 80)), ((0, 0), (0, 100)), ((99, 100), (0, 60))],
)
def test_intervals_stay_within_what_scores_can_be(
    tmp_path: Path, first: tuple[int, int], second: tuple[int, int]
) -> None:
    (tmp_path / "x.csv").write_text(two_seeds(first, second))
    code, out, _ = said(tmp_path / "x.csv", "--output", tmp_path, "--looks", "2,3")
    assert code == 0
    effects = tables.read(tmp_path / "effects.parquet", tables.EFFECTS).to_pandas()
    known = effects.dropna(subset="ci_low")
    assert len(known) and (known["ci_low"] >= -1).all() and (known["ci_high"] <= 1).all()
    assert (known["ci_low"] <= known["delta"]).all() and (known["delta"] <= known["ci_high"]).all()
    wide = known[known["ci_high"] - known["ci_low"] >= 1]
    assert wide["reason"].str.contains("the interval is uninformative: it spans").all()
    assert ("the interval is uninformative" in out) == bool(wide["primary"].any())
    scores = tables.read(tmp_path / "scores.parquet", tables.SCORES).to_pandas().dropna(subset="ci_low")
    assert (scores["ci_low"] >= 0).all() and (scores["ci_high"] <= 1).all()
    floors = tables.read(tmp_path / "noise_floors.parquet", tables.NOISE_FLOORS).to_pandas()
    assert not (floors["band"] > 1).any() and not (floors["sd_high"] > np.maximum(floors["sd"], 0.5)).any()
    shown = float(effects.query("primary")["mde80"].iloc[0])
    assert (f"  {words.detectable(shown)}  " in out) and ("> 100" in out or (effects["mde80"].dropna() <= 1).all())


def test_the_bound_changes_no_verdict_and_no_other_number() -> None:
    rng = np.random.default_rng(5)
    for _ in range(300):
        sides = arms(*(rng.uniform(0, 1, 2).tolist() for _ in range(2)))
        found = judge(*sides, "benchmark", 0.05, 0.05)
        assert found.estimate is not None
        low, high = found.estimate.interval(0.05)
        assert found.estimate.bounded_interval(0.05) == (max(low, -1), min(high, 1))
        assert (found.verdict == "better") == (low > 0) and (found.verdict == "worse") == (high < 0)


# One problem a row for pass@k


def rows(runs: list[tuple[Any, ...]], header: str = "arm,seed,problem,n,c") -> str:
    """csv of the same problems for two arms with two seeds."""
    lines = [",".join(map(str, (arm, seed, *run))) for arm in "ab" for seed in (0, 1) for run in runs]
    return "\n".join([header, *lines]) + "\n"


AGGREGATES = {
    "one set": rows([("gsm8k", 480, 293)]),
    "one set, plausible n": rows([("mine", 64, 30)]),
    "two sets as problems": rows([("gsm8k", 480, 293), ("MATH-500", 500, 100)]),
    "two sets of equal size": rows([("GSM8K", 500, 293), ("minerva_math", 500, 100)]),
    "editions of equal size": rows([("AIME 2024", 30, 5), ("aime_2025", 30, 4), ("HMMT Feb 2025", 30, 3)]),
    "splits of equal size": rows([("gsm8k_test", 500, 293), ("hendrycks_math_500", 500, 100)]),
    "subjects": rows([("Algebra", 124, 60), ("Geometry", 41, 20), ("Counting", 38, 4)]),
    "a benchmark's own name": rows([("my set", "my-set", 40, 20)], "arm,seed,benchmark,problem,n,c"),
    "one of two benchmarks": rows(
        [("x", "p1", 8, 2), ("x", "p2", 8, 2), ("y", "all", 800, 20)], "arm,seed,benchmark,problem,n,c"
    ),
}
BY_PROBLEM = {
    "eight samples": rows([(f"p{i}", 8, i) for i in range(8)]),
    "lost samples": rows([("p0", 8, 1), ("p1", 7, 1), ("p2", 6, 2)]),
    "many samples": rows([(f"p{i}", 480, 10 * i) for i in range(8)]),
    "two rounds": rows([(f"p{i}", 64 if i % 2 else 128, i) for i in range(8)]),
    "problems numbered by set": rows([(f"aime-2024-{i}", 8, i) for i in range(1, 6)]),
    "a problem called test": rows([("test", 8, 1), ("p1", 8, 1), ("p2", 8, 2)]),
}


@pytest.mark.parametrize("name", AGGREGATES)
def test_totals_of_a_set_have_a_mean_and_no_pass_at_k(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.csv").write_text(AGGREGATES[name])
    for options in ("8", "1,8"):
        code, out, err = said(tmp_path / "x.csv", "--pass-at", options)
        assert (code, out) == (1, "")
        assert "x.csv: pass@8 needs a row for each problem, and n = " in one_line(err)
    assert said(tmp_path / "x.csv")[0] == 0  # pass@1 is a mean


@pytest.mark.parametrize("name", BY_PROBLEM)
def test_a_row_for_each_problem_has_pass_at_k(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.csv").write_text(BY_PROBLEM[name])
    assert said(tmp_path / "x.csv", "--pass-at", "4")[0] == 0


def test_a_log_of_one_problem_has_pass_at_k(tmp_path: Path) -> None:
    for arm in "ab":
        (tmp_path / arm).write_text(log(entry(1, acc=0.5, filtered_resps=[["x"] * 4])))
    assert said(*(f"{arm}:0={tmp_path / arm}" for arm in "ab"), "--pass-at", "2")[0] == 0


# Numbers at their extremes

EXTREMES = ("0", "1", "-1", "-0.0", "nan", "inf", "-inf", "1e-300", "1e-12", "1e300", "10" * 50, "", "x", "0x1")


@pytest.mark.parametrize("value", EXTREMES)
@pytest.mark.parametrize("option", ["--alpha", "--margin", "--pass-at", "--looks"])
def test_an_option_out_of_range_is_named_with_value_and_range(
    tmp_path: Path, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.csv").write_text(EXAMPLE)
    given = ["--baseline", "a", *(() if option == "--margin" else ("--margin", "0.05")), f"{option}={value}"]
    whole = option in ("--pass-at", "--looks")
    if whole and value == "1" and option == "--pass-at":
        assert compare.main([str(tmp_path / "x.csv"), *given]) == 0
    elif whole and value == "10" * 50:  # a whole number: a look that never comes, more samples than there are
        code, err = compare.main([str(tmp_path / "x.csv"), *given]), capsys.readouterr().err
        assert (
            code == 1 and "fewer than --pass-at" in one_line(err) if option == "--pass-at" else (code, err) == (0, "")
        )
    else:
        with pytest.raises(SystemExit, match="2"):
            compare.main([str(tmp_path / "x.csv"), *given])
        allowed = {"--alpha": "a number from 1e-06 to below 0.5 (0.05 is usual)"}
        allowed["--margin"] = "a number from 1e-06 to below 1 (0.03 is 3 points)"
        expected = allowed.get(option, "whole numbers from")
        assert f"argument {option}: {value!r}: {expected}" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("alpha", ["1e-6", "0.0001", "0.05", "0.4999"])
@pytest.mark.parametrize("counts", [((5, 50), (20, 60)), ((50, 50), (30, 60)), ((50, 51, 52), (70, 71, 72, 70))])
def test_every_allowed_level_gives_numbers(tmp_path: Path, alpha: str, counts: Any) -> None:
    (tmp_path / "x.csv").write_text(
        table({arm: [(c, c) for c in each] for arm, each in zip("ab", counts, strict=True)})
    )
    for looks in ((), ("--looks", ",".join(map(str, range(2, 40))))):
        code, out, err = said(tmp_path / "x.csv", "--alpha", alpha, *looks, "--output", tmp_path)
        assert (code, err) == (0, "") and "nan" not in out and "inf " not in out and "100.0 %" not in out
        row = tables.read(tmp_path / "effects.parquet", tables.EFFECTS).to_pandas().query("primary").iloc[0]
        assert 0 < row["mde80"] < math.inf and row["level"] < 1


@pytest.mark.parametrize("df", [1.0, 1.3, 2.0, 4.0])
def test_detectable_effects_go_on_smoothly_where_the_noncentral_t_ends(df: float) -> None:
    edge = 2 * stats.t.sf(power.FAR, df)
    inside, outside = power.mde_in_se(df, edge * 1.0001), power.mde_in_se(df, edge / 1.0001)
    assert outside == pytest.approx(inside, rel=3e-4)
    assert power.mde_in_se(df, 1e-12) > power.mde_in_se(df, 1e-9)


@pytest.mark.parametrize("key", ["alpha", "margin"])
@pytest.mark.parametrize("value", [0, 1, -1, 1e-300, 1e-12, 1e300, math.nan, math.inf, -math.inf, True, "x", None, [1]])
def test_the_same_keys_of_a_study_have_the_same_range(key: str, value: Any) -> None:
    with pytest.raises(StudyFaults) as fault:
        load(yaml.safe_load(DEFAULT_STUDY.read_text(encoding="utf-8")) | {"analysis": {key: value}})
    (line,) = str(fault.value).splitlines()
    assert f"analysis.{key}" in line
    assert any(part in line for part in ("at least 1e-06", "less than", "number"))


@pytest.mark.parametrize(("key", "values"), [("alpha", (1e-6, 0.4999)), ("margin", (1e-6, 0.9999))])
def test_the_ends_of_the_range_are_allowed(key: str, values: tuple[float, float]) -> None:
    for value in values:
        load(yaml.safe_load(DEFAULT_STUDY.read_text(encoding="utf-8")) | {"analysis": {key: value}})


@pytest.mark.parametrize("value", EXTREMES)
@pytest.mark.parametrize("option", ["--repetitions", "--seed", "--processes"])
def test_options_of_simulate_at_their_extremes(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    if (option, value) in (("--seed", "0"), ("--seed", "1"), ("--processes", "1")):
        simulate.parser().parse_args([f"{option}={value}"])
        return
    with pytest.raises(SystemExit, match="2"):
        simulate.parser().parse_args([f"{option}={value}"])
    assert f"argument {option}: {value!r}: a whole number from" in capsys.readouterr().err.splitlines()[-1]


# Which metric counts


def lines(**metrics: list[float]) -> str:
    """A log with these values of each metric by problem."""
    each = [dict(zip(metrics, values, strict=True)) for values in zip(*metrics.values(), strict=True)]
    return log(*(entry(i, metrics=list(metrics)) | values for i, values in enumerate(each)))


def detailed(path: Path, **metrics: list[float]) -> None:
    """Details of lighteval with these values of each metric by problem."""
    each = [dict(zip(metrics, values, strict=True)) for values in zip(*metrics.values(), strict=True)]
    pq.write_table(
        pa.Table.from_pylist(
            [{"doc": {"query": f"q{i}"}, "metric": m, "model_response": {"text": ["x"]}} for i, m in enumerate(each)]
        ),
        path,
    )


MIXED, ZERO, ONE = [0.0, 1.0, 1.0, 0.0], [0.0] * 4, [1.0] * 4


@pytest.mark.parametrize("harness", ["lm-eval", "lighteval"])
@pytest.mark.parametrize(
    ("metrics", "refusal"),
    [
        ({"exact_match": ZERO, "math_verify": MIXED}, "exact_match is 0 on all 4 problems while math_verify varies"),
        ({"math_verify": MIXED, "exact_match": ZERO}, "exact_match is 0 on all 4 problems while math_verify varies"),
        ({"exact_match": ONE, "math_verify": MIXED}, "exact_match is 1 on all 4 problems while math_verify varies"),
        ({"exact_match": MIXED, "math_verify": ZERO}, "math_verify is 0 on all 4 problems while exact_match varies"),
        ({"exact_match": MIXED, "math_verify": MIXED[::-1]}, None),
        ({"exact_match": ZERO, "math_verify": ZERO}, None),
        ({"exact_match": MIXED, "length": [10.0, 20.0, 30.0, 10.0]}, ""),
        ({"exact_match": MIXED, "pass@4": ONE}, ""),
        ({"exact_match": ZERO}, ""),
    ],
)
def test_the_metric_taken_is_named_with_its_alternative(
    tmp_path: Path, harness: str, metrics: dict[str, list[float]], refusal: str | None
) -> None:
    for arm in "ab":
        if harness == "lm-eval":
            (tmp_path / arm).write_text(lines(**metrics))
        else:
            detailed(tmp_path / arm, **metrics)
    logs = [f"{arm}:0={tmp_path / arm}" for arm in "ab"]
    code, out, err = said(*logs)
    if refusal:
        assert (code, out) == (1, "")
        assert f"{refusal}; choose what counts as correct with --metric exact_match or" in one_line(err)
        for chosen in metrics:
            code, out, err = said(*logs, "--metric", chosen)
            assert (code, err, "counts as correct" in out) == (0, "", False)
    else:
        note = "exact_match counts as correct; the log also has math_verify, which --metric can choose."
        assert (code, err, note in out) == (0, "", refusal is None)


def test_a_metric_is_for_logs(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(EXAMPLE)
    assert "--metric acc: only logs have metrics" in one_line(said(tmp_path / "x.csv", "--metric", "acc")[2])


def test_no_name_of_a_file_reaches_the_terminal_as_a_command(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(table({"a": [(5, 6), (7, 8)], "\x1b[31m\u202eb": [(5, 6), (9, 8)]}))
    code, out, _ = said(tmp_path / "x.csv")
    assert code == 0 and "?[31m?b: " in out and not {"\x1b", "\u202e"} & set(out)


def test_two_arms_must_count_the_same_metric(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(lines(exact_match=MIXED))
    (tmp_path / "b").write_text(lines(math_verify=MIXED))
    err = one_line(said(f"a:0={tmp_path / 'a'}", f"b:0={tmp_path / 'b'}")[2])
    assert "b: math_verify counts as correct here, but exact_match in " in err
    for name, of in (("a", "strict-match"), ("b", "flexible-extract")):
        (tmp_path / name).write_text(log(*(entry(i, acc=x, filter=of) for i, x in enumerate(MIXED))))
    err = one_line(said(f"a:0={tmp_path / 'a'}", f"b:0={tmp_path / 'b'}")[2])
    assert "acc,flexible-extract counts as correct here, but acc,strict-match in " in err
