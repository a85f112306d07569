"""The page of studies of other sizes than the default one, and of what is broken or missing in them."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import report_study
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st
from large_study import LONG, UNICODE, Rows, arms_of, large, settings
from report_study import BENCHMARK

from workflow_scripts import tables
from workflow_scripts.report import findings, grids, page
from workflow_scripts.report.rows import open_questions, similar_pairs
from workflow_scripts.stages import report

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><text>drawn</text></svg>'


def page_of(root: Path, rows: Rows, arms: list[str], seeds: int, **more: Any) -> str:
    """The report's html."""
    job = report_study.write(root, rows, settings(arms, seeds) | more, {"effects": SVG, "costs": SVG})
    report.main(job)
    return Path(job.output("report")).read_text(encoding="utf-8")


def text(html: str) -> str:
    """What a reader sees, in one line."""
    body = re.sub(r"<(title|style|script|nav|svg)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", re.sub(r"</?(b|span)\b[^>]*>", "", body)))


def section(html: str, name: str) -> str:
    """Text of one section."""
    return text(re.search(rf'<section id="{name}">.*?</section>', html, flags=re.DOTALL).group())


def test_twenty_arms_of_ten_seeds_stay_below_15_mb(tmp_path: Path) -> None:
    """Without figures, for which a budget of 15 x 400 kB is left."""
    arms = arms_of(20)
    rows = large(arms, 10)
    began = time.process_time()
    html = page_of(tmp_path, rows, arms, 10)
    assert time.process_time() - began < 10  # seconds of CPU, of which writing the tables is a part
    assert len(html.encode()) < 15e6 - 15 * 4e5
    answer = section(html, "answer")
    assert "19 arms compared with gspo_asym:" in answer
    assert answer.count("margin 5") >= 19
    assert LONG in answer
    assert UNICODE in answer
    assert len(re.findall('<details class="check"', html)) < 25  # one per check, not per check and arm
    assert "200 rows" in section(html, "provenance")


@pytest.mark.parametrize("names", [["gspo_asym"], arms_of(2)], ids=["baseline alone", "one arm"])
def test_one_seed_and_few_arms(tmp_path: Path, names: list[str]) -> None:
    html = page_of(tmp_path, large(names, 1, problems=2), names, 1)
    shown = text(html)
    assert "One seed only: gspo_asym" in section(html, "warnings")
    assert "the spread between runs is not known" in section(html, "power")
    assert ("No arm was compared with gspo_asym." in shown) == (len(names) == 1)
    assert ("1 not assessable" in shown) == (len(names) == 2)
    assert not re.search(r"\b(nan|None|inf)\b", shown)


def broken(rows: Rows, name: str) -> Rows:
    """What a study that went wrong leaves."""
    if name == "missing runs":
        gone = {"status": "missing", "reason": "killed at update 12", "steps": None, "train_seconds": None}
        return {"runs": [row | gone if row["seed"] else row for row in rows["runs"]]}
    if name == "gates":
        failed = [row | {"verdict": "fail"} for row in rows["reachability"]]
        return {"reachability": failed}
    if name == "nothing clipped":
        none = dict.fromkeys(("clipped_quadrant_1_tokens", "clipped_quadrant_3_tokens", "decisive_tokens"), 0)
        return {"policies": [row | none for row in rows["policies"]]}
    if name == "no texts":
        counts = {"sample": None, "status": None, "completion": None, "characters": None, "reason": "not kept"}
        return {"examples": [row | counts for row in rows["examples"] if not row["sample"]]}
    return {"effects": [], "scores": [], "coverage": [], "difficulty": [], "examples": [], "noise_floors": []}


SAID = {
    "missing runs": ("warnings", "4 of 6 runs are missing: gspo_asym seeds 1, 2"),
    "gates": ("checks", "fail the clip acts gspo_asym: 12.0 % seen; and 1 more"),
    "nothing clipped": ("tables", "0 % 0 %"),
    "no texts": ("examples", "compute.keep.completions: false keeps none"),
    "nothing evaluated": ("examples", "No completions: no run has been evaluated."),
}


@pytest.mark.parametrize("name", SAID)
def test_the_page_says_what_is_broken(tmp_path: Path, name: str) -> None:
    arms = arms_of(2)
    rows = large(arms, 3, problems=2)
    html = page_of(tmp_path, rows | broken(rows, name), arms, 3)
    where, said = SAID[name]
    assert said in section(html, where)
    assert not re.search(r"\b(nan|None)\b", text(html))


def test_checks_are_one_line_each_the_worst_first() -> None:
    rows = {
        "good": [{"arm": "a", "verdict": "pass", "message": "1 % seen"}],
        "not here": [{"arm": "", "verdict": None, "message": "no clip"}],
        "mixed": [{"arm": "a", "verdict": None, "message": "x"}, {"arm": "b", "verdict": "warn", "message": "9 %"}],
        "bad": [{"arm": "", "verdict": "fail", "message": "0 of 3"}],
        "half": [{"arm": "a", "verdict": None, "message": "x"}, {"arm": "b", "verdict": "pass", "message": "2 %"}],
    }
    rows["premise: drift grows with advantage"] = [
        {"arm": "placebo", "verdict": "pass", "message": "r 0.1"}, {"arm": "a", "verdict": None, "message": "one arm"},
    ]  # fmt: skip
    found = findings.worst_first(rows, {"a", "b"})
    assert [(group["name"], group["verdict"]) for group in found] == [
        ("bad", "fail"), ("mixed", "warn"), ("good", "pass"), ("half", "pass"), ("not here", None),
        ("premise: drift grows with advantage", None),
    ]  # fmt: skip
    assert [group["line"] for group in found[:3]] == ["0 of 3", "b: 9 %; and 1 more", "a: 1 % seen"]


def test_seeds_that_are_lacking_are_priced_with_the_baseline_s() -> None:
    """9 needed, 5 and 4 there: 9 runs of 60 s. A verdict waits for nothing, and none is priced without a time."""
    row = {"arm": "a", "verdict": "inconclusive: underpowered", "seeds": 5, "baseline_seeds": 4, "seeds_needed": 9}
    settled = row | {"arm": "b", "verdict": "better"}
    unknown = row | {"arm": "c", "verdict": "inconclusive", "seeds_needed": None}
    lacking = unknown | {"arm": "d", "verdict": "not assessable", "seeds": 1, "reason": "one seed"}
    void = settled | {"arm": "e", "void": "decisive tokens: none"}
    assert open_questions([row, settled, unknown, lacking, void], 60.0) == [
        {"arm": "a", "have": 5, "needed": 9, "seconds": 540.0, "why": None},
        {"arm": "c", "have": 5, "needed": None, "seconds": None, "why": None},
        {"arm": "d", "have": 1, "needed": None, "seconds": None, "why": "one seed"},
        {"arm": "e", "have": 5, "needed": 9, "seconds": None, "why": "no number of seeds helps: decisive tokens: none"},
    ]  # fmt: skip
    assert open_questions([row], None)[0]["seconds"] is None


def test_the_pairs_most_alike_of_each_kind_are_shown() -> None:
    def pair(kind: str, n: int, alike: float, caught: bool | None = None) -> dict[str, Any]:
        return {"benchmark": BENCHMARK, "kind": kind, "holdout_problem_id": f"h{n:02d}", "other_problem_id": f"o{n}",
                "coverage": 0.5, "similarity": alike, "removed": kind == "ngram", "caught": caught,
                "holdout_question": "a  b\n" + "x" * 400, "other_question": None}  # fmt: skip

    rows = [
        *(pair("template_twin", n, n / 100) for n in range(30)),
        pair("ngram", 0, 0.9),
        pair("control_words", 1, 1, True),
    ]
    found = similar_pairs(rows)
    assert [row["kind"] for row in found] == ["ngram", *["template_twin"] * 10]
    assert [row["similarity"] for row in found[1:4]] == [0.29, 0.28, 0.27]
    assert found[1]["holdout_question"] == "a b " + "x" * 296 + "…"
    grid = grids.pairs(found)
    assert "ngram 1; word_problems_test template twin 30" in grid.note
    assert "benchmark" not in grid.columns  # one benchmark: the title names it
    assert grid.title.endswith(BENCHMARK)


@given(
    st.recursive(
        st.text() | st.none() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
@settings_of_hypothesis(max_examples=60, deadline=None)
def test_embedded_data_is_what_it_was_and_cannot_end_its_element(data: object) -> None:
    held = str(page.inert_json(data))
    assert json.loads(held) == data
    assert "<" not in held
    assert held.isascii()


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("from ``power``: a < b", "from <code>power</code>: a &lt; b"),
        ("``<x>``", "<code>&lt;x&gt;</code>"),
        ("a\n  b", "a b"),
    ],
)
def test_captions_are_text_with_names_in_them(said: str, shown: str) -> None:
    assert str(page.caption(said)) == shown


def test_tables_that_lack_columns_are_named(tmp_path: Path) -> None:
    job = report_study.write(tmp_path, report_study.contents(), report_study.ANALYSIS, {})
    tables.write(job.input("examples"), tables.RUNS, report_study.runs(), {})
    with pytest.raises(tables.TableError, match=r"examples.parquet: column .*question.* is missing"):
        report.main(job)


def test_an_arm_whose_change_never_reached_the_loss_has_no_verdict(tmp_path: Path) -> None:
    """The gates of clipping are for arms that differ in their bounds; frozen weights are for all."""
    rows = [
        {"arm": "a", "check": "decisive_tokens", "verdict": "fail", "message": "0 of 9 tokens"},
        {"arm": "b", "check": "decisive_tokens", "verdict": None, "message": "differs in more"},
        {"arm": "b", "check": "clip_live", "verdict": "fail", "message": "clipped 0 %"},
        {"arm": "c", "check": "decisive_tokens", "verdict": "pass", "message": "3 of 9 tokens"},
        {"arm": "c", "check": "clip_live", "verdict": "fail", "message": "clipped 0 %"},
        {"arm": "d", "check": "frozen_weights", "verdict": "fail", "message": "changed"},
    ]
    found = findings.void(rows)
    assert set(found) == {"a", "c", "d"}
    assert found["a"] == "decisive tokens: 0 of 9 tokens"
    arms = arms_of(2)
    tables = large(arms, 3, problems=2)
    of_arm = next(row for row in tables["effects"] if row["primary"] and row["role"] == "comparison")
    gate = {"arm": of_arm["arm"], "check": "decisive_tokens"}
    tables["reachability"] = [row for row in tables["reachability"] if gate.items() - row.items()]
    tables["reachability"].append(gate | {"verdict": "fail", "message": "0 of 9 tokens"})
    html = page_of(tmp_path, tables, arms, 3)
    assert "void: decisive tokens: 0 of 9 tokens; measured" in text(section(html, "answer"))
    assert "no number of seeds helps: decisive tokens: 0 of 9 tokens." in text(section(html, "power"))


def test_runs_and_looks_are_checks_of_their_own() -> None:
    runs = [{"status": "done"}, {"status": "missing"}]
    effects = [{"arm": "a", "primary": True, "estimand": "benchmark", "look": 1, "planned_look": False}]
    assert [(row["verdict"], row["message"]) for row in findings.run_checks(runs, effects)] == [
        ("warn", "1 of 2 runs trained and evaluated"), ("warn", "a look at 1 seed was not planned"),
    ]  # fmt: skip
    assert [row["verdict"] for row in findings.run_checks(runs[:1], [effects[0] | {"planned_look": True}])] == [
        "pass", "pass",
    ]  # fmt: skip
