"""`armslength compare`: the report's numbers and verdicts for tables and logs from elsewhere."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from compare_calls import EXAMPLE, HEADER, big, entry, log, said, table

from workflow_scripts import tables
from workflow_scripts.commands.selftest import ALPHA, BASELINE, MARGIN, TREATMENT
from workflow_scripts.job import Job
from workflow_scripts.stages import estimate_effects, estimate_scores, measure_noise_floors
from workflow_scripts.statistics.effects import NO_SPREAD

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "tests/golden/sample_logs"  # its README.md says what wrote them


def effects(folder: Path) -> pd.DataFrame:
    """The effects that --output wrote, on these problems, by arm."""
    return tables.read(folder / "effects.parquet", tables.EFFECTS).to_pandas().query("primary").set_index("arm")


# The same numbers


def test_the_worked_example_of_selftest(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(EXAMPLE)
    code, out, err = said(tmp_path / "x.csv", "--output", tmp_path / "out", "--alpha", ALPHA)
    assert (code, err) == (0, "")
    assert "b: better than a: +4.0 points [+1.7, +6.3], margin 5\n" in out
    row = effects(tmp_path / "out").loc["b"]
    expected = {"delta": 0.04, "se": 0.01, "df": 8, "ci_low": 0.01693996, "ci_high": 0.06306004, "p": 0.003950}
    assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert (row["verdict"], row["seeds"], row["problems"], row["samples"], row["role"]) == (
        "better", 5, 2, 100, "comparison",
    )  # fmt: skip
    assert row[["planned_look", "reason"]].isna().all()


def study_counts() -> pd.DataFrame:
    """Counts of three arms on two benchmarks at two steps; one arm has fewer seeds."""
    rng = np.random.default_rng(7)
    rows = []
    for arm, seeds, lift in (("fixed", (0, 1, 2, 10), 0.0), ("long", (0, 1, 2, 10), 0.8), ("short", (3, 4, 5), -0.1)):
        for seed in seeds:
            for step in (24, 48):
                for benchmark, problems in (("sums", 30), ("more", 7)):
                    easy = np.random.default_rng(problems).normal(0, 1, problems) + lift + rng.normal(0, 0.2)
                    for i, c in enumerate(rng.binomial(8, 1 / (1 + np.exp(-easy)))):
                        rows.append((arm, seed, step, benchmark, f"é{i}", 8, int(c)))
    return pd.DataFrame(rows, columns=["arm", "seed", "step", "benchmark", "problem", "n", "c"])


@pytest.mark.parametrize("form", ["csv", "parquet", "counts.parquet"])
def test_the_numbers_are_those_of_a_study_with_the_same_counts(tmp_path: Path, form: str) -> None:
    frame = study_counts()
    runs = {arm: sorted(int(seed) for seed in group["seed"].unique()) for arm, group in frame.groupby("arm")}
    chosen = {
        "baseline": "fixed", "roles": {"long": "comparison", "short": "comparison"}, "runs": runs,
        "benchmarks": ["more", "sums"], "pass_at": [1, 4], "endpoint": {"pass_at": 1, "checkpoint": "last"},
        "margin": MARGIN, "alpha": 0.1, "looks": [3, 4], "last_steps": dict.fromkeys(runs, 48),
        "base_repeats": [], "allow_missing": False,
    }  # fmt: skip
    counts = frame.rename(columns={"problem": "problem_id", "n": "samples", "c": "correct"})
    counts = counts.assign(truncated=0, unparsed=0, timeout=0, completion_tokens=0, excluded=None)
    left_out = counts.groupby(["arm", "seed", "step", "benchmark"]).head(1).assign(problem_id="z", excluded="gold")
    tables.write(tmp_path / "counts.parquet", tables.COUNTS, pd.concat([counts, left_out]), {})
    shuffled = frame.sample(frac=1, random_state=1)
    file = {"csv": tmp_path / "x.csv", "parquet": tmp_path / "x.pq"}.get(form, tmp_path / "counts.parquet")
    shuffled.to_csv(tmp_path / "x.csv", index=False)
    shuffled.to_parquet(tmp_path / "x.pq")
    options = ("--alpha", "0.1", "--looks", "3,4", "--pass-at", "1,4", "--output", tmp_path / "out")
    assert said(file, *options, baseline="fixed")[0] == 0
    for stage, schema in (
        (estimate_effects, tables.EFFECTS),
        (estimate_scores, tables.SCORES),
        (measure_noise_floors, tables.NOISE_FLOORS),
    ):
        ours = tmp_path / f"{schema.name}.parquet"
        inputs = {"counts": [str(tmp_path / "counts.parquet")]}
        stage.main(Job(chosen, {}, "", tmp_path, inputs, {schema.name: [str(ours)]}, stage.LIBRARIES))
        wanted, got = (tables.read(path, schema).to_pandas() for path in (ours, tmp_path / "out" / ours.name))
        wanted = wanted[wanted["kind"] == "training"] if schema is tables.NOISE_FLOORS else wanted
        unknown = ["truncated_share", "unparsed_share", "mean_completion_tokens"] if schema is tables.SCORES else []
        assert got[unknown].isna().all(axis=None)
        wanted, got = (x.drop(columns=unknown).reset_index(drop=True) for x in (wanted, got))
        pd.testing.assert_frame_equal(got, wanted, check_exact=True)
    assert len(effects(tmp_path / "out")) == 2


def test_of_a_study_s_counts_the_base_is_no_arm_and_controls_are_outside_the_family(tmp_path: Path) -> None:
    frame = study_counts().rename(columns={"problem": "problem_id", "n": "samples", "c": "correct"})
    frame = frame.assign(truncated=0, unparsed=0, timeout=0, completion_tokens=0, excluded=None)
    with_base = pd.concat([frame, frame[frame["arm"] == "short"].assign(arm="base")])
    shown = []
    for name, rows in (("with", with_base), ("without", frame)):
        tables.write(tmp_path / name, tables.COUNTS, rows, {})
        shown.append(said(tmp_path / name, baseline="fixed")[1])
    note = "base, the model before training, is left out"
    assert note in shown[0] and "base:" not in shown[0]
    assert [line for line in shown[0].splitlines() if "intervals of" in line or "long:" in line] == [
        line for line in shown[1].splitlines() if "intervals of" in line or "long:" in line
    ]
    assert "intervals of 97.5 %" in shown[1]
    alone = said(tmp_path / "without", "--placebo", "short", baseline="fixed")[1]
    assert "intervals of 95.0 %" in alone and "short:" in alone
    for options, expected in (
        (("--placebo", "fixed"), "--placebo fixed: no such arm; there are long, short"),
        (("--placebo", "short", "--sensitivity", "short"), "--sensitivity short: it is a placebo arm already"),
    ):
        code, out, err = said(tmp_path / "without", *options, baseline="fixed")
        assert (code, out) == (1, "") and expected in err


def test_an_arm_called_base_is_an_arm(tmp_path: Path) -> None:
    for name in ("b", "base"):
        (tmp_path / name).write_text(EXAMPLE.replace(",b,", f",{name},"))
    outs = [said(tmp_path / name)[1].split("\n\n")[1] for name in ("b", "base")]
    assert outs[1] == outs[0].replace("b:", "base:")


# Logs of harnesses


def last_number(text: str) -> str:
    """The answer as the task of the logs finds it."""
    return (re.findall(r"-?\d+", text) or [""])[-1]


def graded(run: str, strict: bool = False) -> list[int]:
    """Correct of the four responses to each of the five problems of a run; strict: of the first, after ####."""
    name = "samples_sums_2*" if strict else "samples_sums_avg4*"
    entries = [json.loads(line) for line in next((LOGS / run).glob(name)).read_text().splitlines()]
    if strict:
        entries = [entry for entry in entries if entry["filter"] == "strict-match"]
        return [int(bool(re.search(rf"#### {e['target']}(?!\d)", e["resps"][0][0]))) for e in entries]
    return [sum(last_number(text) == e["target"] for text in e["resps"][0]) for e in entries]


def scores(folder: Path) -> dict[tuple[str, int], float]:
    """Score of each run."""
    rows = tables.read(folder / "scores.parquet", tables.SCORES).to_pandas().query("level == 'run' and pass_at == 1")
    return {(arm, seed): score for arm, seed, score in zip(rows["arm"], rows["seed"], rows["score"], strict=True)}


def test_logs_of_lm_eval_with_four_graded_responses(tmp_path: Path) -> None:
    runs = [(arm, seed) for arm in ("half", "full") for seed in (100, 101)]
    logs = [f"{arm}:{seed}={next((LOGS / f'{arm}-{seed}').glob('*avg4*'))}" for arm, seed in runs]
    code, out, err = said(*logs, "--output", tmp_path, "--pass-at", "1,4", baseline="half")
    assert (code, err) == (0, "")
    assert "sums_avg4" in out
    assert "4 samples" in out
    assert scores(tmp_path) == pytest.approx({(a, s): sum(graded(f"{a}-{s}")) / 20 for a, s in runs})
    row = effects(tmp_path).loc["full"]
    means = [[sum(graded(f"{arm}-{seed}")) / 20 for seed in (100, 101)] for arm in ("half", "full")]
    assert row["delta"] == pytest.approx(np.mean(means[1]) - np.mean(means[0]))
    assert (row["benchmark"], row["df"], row["samples"]) == ("sums_avg4", 2, 4)


def test_a_log_of_two_filters_needs_one_named_and_grades_the_first_response(tmp_path: Path) -> None:
    logs = [f"{arm}:100={next((LOGS / f'{arm}-100').glob('samples_sums_2*'))}" for arm in ("half", "full")]
    code, _, err = said(*logs, baseline="half")
    assert code == 1
    assert "2 filters (strict-match, flexible-extract); choose one, as in --metric exact_match,strict-match" in err
    code, out, _ = said(*logs, "--metric", "exact_match,strict-match", "--output", tmp_path, baseline="half")
    assert code == 0
    assert scores(tmp_path) == pytest.approx(
        {(arm, 100): np.mean(graded(f"{arm}-100", strict=True)) for arm in ("half", "full")}
    )
    assert "4 responses a problem, of which exact_match grades one" in out
    assert "full: not assessable; an arm has fewer than 2 seeds (1 against 1); measured" in out
    assert said(*logs, "--metric", "exact_match,strct", baseline="half")[2].endswith(
        "no filter strct; did you mean strict-match? (it has strict-match, flexible-extract)\n"
    )


@pytest.mark.parametrize(("version", "metric"), [("0.13", "avg@n:n=4"), ("0.6", "math_pass@1:4_samples")])
def test_details_of_lighteval(tmp_path: Path, version: str, metric: str) -> None:
    logs = []
    for arm in ("half", "full"):
        folder = tmp_path / arm / "details/2026-11-30T00-50-00.123456"
        folder.mkdir(parents=True)
        target = folder / "details_sums|0_2026-11-30T00-50-00.123456.parquet"
        target.write_bytes((LOGS / f"{arm}-100" / f"lighteval-{version}.parquet").read_bytes())
        logs.append(f"{arm}:100={tmp_path / arm}")
    code, _, err = said(*logs, baseline="half")
    assert (code, "; choose one, as in --metric" in err) == (1, True)
    code, out, err = said(*logs, "--metric", metric, "--output", tmp_path, baseline="half")
    assert (code, err) == (0, "")
    assert "sums|0" in out
    assert "4 samples" in out
    assert scores(tmp_path) == pytest.approx({(arm, 100): sum(graded(f"{arm}-100")) / 20 for arm in ("half", "full")})


def test_a_metric_that_one_of_several_answers_satisfies_is_refused() -> None:
    log = LOGS / "half-100/lighteval-0.13.parquet"
    err = said(f"a:0={log}", "--metric", "pass@k:k=4&n=4")[2]
    assert "pass@k:k=4&n=4 is 1 as soon as one of 4 answers is correct: c cannot be determined" in err


def test_what_other_versions_of_lm_eval_write(tmp_path: Path) -> None:
    likelihoods = {"resps": [[["-1.5", "False"]], [["-2.5", "False"]]], "filtered_resps": [["-1.5", "False"]] * 2}
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + log(entry(1, **likelihoods), "", entry(2, acc=0.0)).encode())
    old = [{"doc_id": i, "doc": {}, "target": "x", "arguments": [], "resps": [["x"]], "filtered_resps": ["x"], "acc": i}
           for i in (1, 0)]  # fmt: skip
    old[1]["doc_id"] = 2
    (tmp_path / "b.jsonl").write_text(json.dumps(old, indent=2))
    code, out, err = said(f"a:0={tmp_path / 'a.jsonl'}", f"b=1:0={tmp_path / 'b.jsonl'}")
    assert (code, err) == (0, "")
    assert "b=1: not assessable" in out
    assert "2 problems in 1 benchmark, 1 sample each" in out
    assert "measured 0.0 points" in out


def test_a_problem_that_is_another_one_is_refused_and_another_prompt_is_said(tmp_path: Path) -> None:
    for name, more in (("a", {}), ("b", {"prompt_hash": "p"}), ("c", {"doc_hash": "other"})):
        (tmp_path / f"{name}.jsonl").write_text(log(entry(1, **more)))
    a, b, c = (f"{name}:0={tmp_path / name}.jsonl" for name in "abc")
    assert "all: prompts differ between" in said(a, b)[1]
    code, _, err = said(a, c)
    assert code == 1
    assert "c.jsonl: problem 1 of all is another one than in " in err


# What is defined


def test_the_forms_a_table_may_have(tmp_path: Path) -> None:
    expected = None
    quoted = EXAMPLE.replace(",0,100", ',"a\nb",100')
    forms = {
        "plain": EXAMPLE.encode(),
        "crlf": EXAMPLE.replace("\n", "\r\n").encode(),
        "bom": b"\xef\xbb\xbf" + EXAMPLE.encode(),
        "semicolons": EXAMPLE.replace(",", ";").encode(),
        "tabs": EXAMPLE.replace(",", "\t").encode(),
        "floats": EXAMPLE.replace(",100,", ",100.0,").encode(),
        "blank lines": ("\n" + EXAMPLE.replace("\nb-0", "\n\nb-0") + "\n\n").encode(),
        "spaces in the header": EXAMPLE.replace(HEADER, HEADER.replace(",", ", ")).encode(),
        "no run": re.sub(r"(?m)^[^,]*,", "", EXAMPLE).encode(),
        "other columns": re.sub(r"(?m)$", ",x", EXAMPLE.rstrip("\n")).replace("c,x", "c,note", 1).encode(),
        "line break in a field": quoted.encode(),
    }
    for name, content in forms.items():
        (tmp_path / "x").write_bytes(content)
        code, out, err = said(tmp_path / "x")
        assert (code, err) == (0, ""), name
        expected = expected or out
        assert out == expected, name


def test_designs_that_allow_no_interval(tmp_path: Path) -> None:
    same_score = NO_SPREAD
    cases = {
        "one seed": (
            {"a": BASELINE[:1], "b": TREATMENT},
            "b: not assessable; an arm has fewer than 2 seeds (5 against 1); measured +4.0 points, without an interval",
        ),
        "zero variance": (
            {"a": [(7, 5)] * 3, "b": [(8, 5)] * 3},
            f"b: not assessable; {same_score}; measured +0.5 points, without an interval",
        ),
        "no success": ({"a": BASELINE, "b": [(0, 0)] * 5}, "b solves nothing: no sample of any run is correct."),
        "all solved": ({"a": BASELINE, "b": [(100, 100)] * 5}, "b solves everything"),
        "one problem": ({"a": [(7,), (9,)], "b": [(30,), (31,)]}, "b: better than a"),
        "unequal seeds": ({"a": BASELINE, "b": TREATMENT[:3]}, "Arms have different numbers of seeds: a 5, b 3."),
        "the same file twice": (
            {"a": [range(12), range(12)], "b": [range(1, 13), range(2, 14)]},
            "all: 2 runs have the same counts on every problem. One file given twice?",
        ),
    }
    for name, (counts, expected) in cases.items():
        (tmp_path / "x.csv").write_text(table(counts))
        code, out, err = said(tmp_path / "x.csv")
        assert (code, err) == (0, ""), name
        assert expected in out, name
    assert "One seed only" not in out
    (tmp_path / "x.csv").write_text(EXAMPLE.replace("a-0,a,0,1,100,50", "a-0,a,0,1,10,5"))
    assert "all: between 10 and 100 samples a problem; runs with fewer are noisier." in said(tmp_path / "x.csv")[1]


def test_looks_and_arms_share_the_level(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(table({"a": BASELINE, "b": TREATMENT, "c": BASELINE[::-1]}))
    assert said(tmp_path / "x.csv", "--looks", "3,8", "--output", tmp_path)[0] == 0
    found = effects(tmp_path)
    assert found["level"].tolist() == pytest.approx([1 - 0.05 / 4] * 2)
    assert found["planned_look"].tolist() == [False, False]
    assert found.loc["b", "reason"] == "5 seeds were not a planned look: exploratory"
    assert found.loc["b", "p_holm"] == pytest.approx(2 * found.loc["b", "p"])


def test_problems_that_a_run_lacks(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(EXAMPLE + "b-3,b,3,extra,100,1\n")
    code, _, err = said(tmp_path / "x.csv")
    assert code == 1
    assert "a, seed 0 lacks 1 of the 3 problems of all, such as extra; every run needs the same ones" in err
    code, out, _ = said(tmp_path / "x.csv", "--common-problems")
    assert (code, "1 of 3 problems are not in every run and are left out." in out) == (0, True)
    assert "b: better than a: +4.0 points [+1.7, +6.3], margin 5" in out
    (tmp_path / "x.csv").write_text(f"{HEADER}\nr,a,0,1,8,2\nq,b,0,2,8,2\n")
    assert said(tmp_path / "x.csv", "--common-problems")[2].endswith("no problem is in all runs\n")


def test_shards_are_one_run_and_a_problem_in_two_is_refused(tmp_path: Path) -> None:
    head, *rows = EXAMPLE.splitlines()
    for name, part in (("one", rows[:7]), ("two", rows[7:]), ("three", rows[6:])):
        (tmp_path / name).write_text("\n".join([head, *part]))
    whole, parts = said(tmp_path / "one", tmp_path / "two"), (tmp_path / "one", tmp_path / "three")
    assert "b: better than a: +4.0 points [+1.7, +6.3], margin 5" in whole[1]
    assert said(*parts)[2] == (
        f"armslength compare: {parts[1]}, line 2: a, seed 3, problem 0 of all is there already: {parts[0]}, line 8\n"
    )


def test_markdown_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(EXAMPLE.replace("run,", "benchmark,").replace("a-", "x|").replace("b-", "x|"))
    (tmp_path / "x.csv").write_text(re.sub(r"(?m)^x\|\d", "x|0", (tmp_path / "x.csv").read_text()))
    out = said(tmp_path / "x.csv", "--markdown")[1]
    lines = [line for line in out.splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert "- b: better than a" in out


@pytest.mark.slow
def test_three_million_rows_take_seconds(tmp_path: Path) -> None:
    big(tmp_path / "x.csv", 20, 10, 10, 1500)
    start = time.perf_counter()
    assert said(tmp_path / "x.csv", baseline="arm0")[0] == 0
    assert time.perf_counter() - start < 20


def test_it_starts_without_torch() -> None:
    code = "import sys; from workflow_scripts.commands import compare; print({'torch', 'snakemake'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
