"""Verdicts: pinned ones, properties, hostile input, and the two stages that use them.

The pinned verdicts lie in tests/golden/verdicts.json. To add a case, write it there with status and found null. Then
    ARMSLENGTH_REGENERATE=1 python -m pytest tests/unit/test_grading.py -k pinned
fills in what is null. It refuses to change a verdict that is there unless exact_answer.REWARD_VERSION has been raised
above the file's reward_version: runs that are trained must not silently keep a reward that no longer exists.
"""

import json
import os
import time
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_scripts import grading, tables
from workflow_scripts.errors import UserError
from workflow_scripts.grading import exact_answer
from workflow_scripts.job import Job
from workflow_scripts.stages import audit_gold, grade

GOLDEN = Path(__file__).parents[1] / "golden" / "verdicts.json"
exact = grading.grader("exact_answer")


def status(completion: str, answer: str, truncated: bool = False) -> str:
    return exact(completion, answer, truncated).status


def regenerated(golden: dict, version: int) -> dict:
    """The golden file with today's verdicts; an AssertionError if one changed under the same version."""
    cases = []
    for case in golden["verdicts"]:
        verdict = grading.grader(case["grader"])(case["completion"], case["answer"], case["truncated"])
        today = {**case, "status": verdict.status, "found": verdict.answer}
        assert case["status"] is None or today == case or version > golden["reward_version"], (
            f"the verdict changed, {case} is now {verdict}: raise exact_answer.REWARD_VERSION, then regenerate"
        )
        cases.append(today)
    return {"reward_version": version, "verdicts": cases}


def test_pinned_verdicts():
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    today = regenerated(golden, grading.version("exact_answer"))
    if os.environ.get("ARMSLENGTH_REGENERATE"):
        GOLDEN.write_text(json.dumps(today, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")
    else:
        assert today == golden, "regenerate the golden verdicts (see the top of this file)"


def test_a_changed_verdict_needs_a_new_version():
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    case = next(case for case in golden["verdicts"] if case["status"] == "correct")
    changed = {**golden, "verdicts": [{**case, "status": "wrong"}]}
    with pytest.raises(AssertionError, match="REWARD_VERSION"):
        regenerated(changed, golden["reward_version"])
    assert regenerated(changed, golden["reward_version"] + 1)["verdicts"] == [case]


def test_unknown_grader_names_the_nearest():
    with pytest.raises(KeyError, match="no grader 'exact_anwser'; nearest: exact_answer"):
        grading.grader("exact_anwser")


numbers = st.fractions(max_denominator=10**6) | st.integers().map(Fraction)


@given(numbers)
def test_a_number_equals_itself_and_nothing_near(value):
    assert status(f"#### {value}", str(value)) == "correct"
    assert status(f"#### {value + Fraction(1, 10**9)}", str(value)) == "wrong"


@given(st.integers(-(10**12), 10**12), st.integers(0, 3))
def test_spellings_of_a_whole_number_agree(value, zeros):
    tail = "." + "0" * zeros if zeros else ""
    for spelled in (f"{value:,}{tail}", f"${value}$", f"{value}.", f"\\${value}", f"**{value}**", f"{value} eggs."):
        assert status(f"#### {spelled}", str(value)) == "correct", spelled
        assert status(f"so the answer is {spelled}", str(value)) == "correct", spelled
    assert status(f"\\boxed{{{value}}}", f"{value}{tail}") == "correct"
    assert status(f"#### {str(value).replace('-', chr(0x2212))}", str(value)) == "correct"


@given(st.text(alphabet=st.characters(codec="utf-8")), st.integers(-99, 999), st.booleans())
def test_any_text_gets_a_verdict_and_only_a_marked_number_is_correct(text, answer, truncated):
    verdict = exact(text, str(answer), truncated)
    assert verdict.status in {"correct", "wrong", "truncated" if truncated else "unparsed"}
    assert (verdict.answer is None) == (verdict.status in {"truncated", "unparsed"})
    if "#" not in text and "boxed" not in text and "answer" not in text.lower():
        assert verdict.answer is None


@given(st.text(alphabet="0123456789 .,+-*/=#\\boxed{}answeri", max_size=60), st.integers(0, 99))
def test_what_the_text_says_last_after_the_marker_decides(text, answer):
    assert status(f"{text}\n#### {answer}", str(answer)) == "correct"
    assert status(f"{text}\n#### {answer + 1}", str(answer)) == "wrong"


@given(st.text(max_size=40), st.text(max_size=12))
def test_an_unreadable_reference_answer_is_never_matched(text, answer):
    if exact(f"#### {answer}", "0", False).answer is None:
        assert status(f"{text} #### 5", answer) != "correct"
        assert status(f"#### {answer}", answer) != "correct"


def test_a_number_the_limit_may_have_cut_is_no_answer():
    assert status("12 + 5 = 17 . #### 1", "1", truncated=True) == "truncated"
    assert status("the answer is 1", "1", truncated=True) == "truncated"
    assert status("\\boxed{1}", "1", truncated=True) == "correct"
    assert status("#### 1\nThat is", "1", truncated=True) == "correct"


@pytest.mark.parametrize(
    "hostile",
    [
        "#" * 10**6,
        "#### " * 200_000,
        "\\boxed{" * 150_000,
        "{" * 500_000 + "}" * 500_000,
        "####" + " " * 10**6,
        "answer is " * 100_000,
        "answer" + " " * 10**6 + "is 9",
        "#### " + "9" * 10**7,
        "\\boxed{" + "9" * 10**6 + "}",
        "#### 1e999999999",
        "#### 9" + "^9" * 100,
        "#### " + "1," * 10**5,
        "#### " + "\\text{" * 40,
        "#### 1/" + "0" * 90,
    ],
    ids=lambda text: f"{text[:12]!r}x{len(text)}",
)
def test_hostile_completions_are_bounded(hostile):
    start = time.process_time()
    assert status(hostile, "9") in {"unparsed", "wrong"}
    assert time.process_time() - start < 2.0


def problem(number: int, answer: str) -> dict:
    return {
        "problem_id": f"{number:016x}",
        "benchmark": "set",
        "row": number,
        "question": f"question {number}",
        "answer": answer,
        "difficulty": None,
    }


def job(folder: Path, settings: dict, inputs: dict[str, Path], output: str) -> Job:
    files = {name: [str(path)] for name, path in inputs.items()}
    return Job(settings, {}, "code", folder, files, {output: [str(folder / f"{output}.parquet")]}, ())


def test_gold_audit_drops_what_does_not_grade_itself(tmp_path):
    answers = ["72", "3/4", "1,2", "\\pi", "27.0", "5 million", "5 wrong", "1,000"]
    path = tmp_path / "problems.parquet"
    tables.write(path, tables.PROBLEMS, [problem(i, answer) for i, answer in enumerate(answers)], {})
    audit_gold.main(job(tmp_path, {"grader": "exact_answer"}, {"problems": path}, "audit"))
    rows = tables.read(tmp_path / "audit.parquet", tables.GOLD_AUDIT).to_pylist()
    assert [row["answer"] for row in rows if row["dropped"]] == ["1,2", "\\pi", "5 wrong"]
    assert all(bool(row["reason"]) == row["dropped"] for row in rows)
    assert tables.provenance(tmp_path / "audit.parquet")["dropped"] == 3


def completions(*texts: str, problem_id: str = f"{1:016x}") -> list[dict]:
    run = {"arm": "gapo", "seed": 0, "step": 4, "benchmark": "set", "problem_id": problem_id}
    return [
        {**run, "sample": i, "completion": text, "completion_tokens": 9, "truncated": text.endswith("…")}
        for i, text in enumerate(texts)
    ]


GRADED = {"grader": "exact_answer", "sampled": {"temperature": 1.0}, "sampling_code": "c"}
DRAWN = {"settings": GRADED["sampled"], "code": GRADED["sampling_code"]}


def test_grade_gives_every_completion_its_status(tmp_path, monkeypatch):
    asked = []

    def counting(completion: str, answer: str, truncated: bool) -> grading.Grade:
        asked.append(completion)
        return exact(completion, answer, truncated)

    monkeypatch.setattr(exact_answer, "grade", counting)
    holdout, made = tmp_path / "holdout.parquet", tmp_path / "completions.parquet"
    tables.write(holdout, tables.PROBLEMS, [problem(1, "34")], {})
    texts = ["#### 34", "#### 35", "34", "17 + 17 …", "#### 34", "34"]
    tables.write(made, tables.COMPLETIONS, completions(*texts), DRAWN)
    grade.main(job(tmp_path, GRADED, {"completions": made, "holdout": holdout}, "samples"))
    rows = tables.read(tmp_path / "samples.parquet", tables.SAMPLES).to_pylist()
    assert [row["status"] for row in rows] == ["correct", "wrong", "unparsed", "truncated", "correct", "unparsed"]
    assert [row["correct"] for row in rows] == [row["status"] == "correct" for row in rows]
    assert [row["answer"] for row in rows] == ["34", "35", None, None, "34", None]
    assert asked == texts[:4]  # identical completions are graded once


def test_grade_names_a_problem_that_is_not_in_the_holdout(tmp_path):
    holdout, made = tmp_path / "holdout.parquet", tmp_path / "completions.parquet"
    tables.write(holdout, tables.PROBLEMS, [problem(1, "34")], {})
    tables.write(made, tables.COMPLETIONS, completions("#### 34", problem_id="f" * 16), DRAWN)
    with pytest.raises(UserError, match=f"problem {'f' * 16} is not in"):
        grade.main(job(tmp_path, GRADED, {"completions": made, "holdout": holdout}, "samples"))


@pytest.mark.parametrize("other", [{"settings": {"temperature": 0.3}}, {"code": "d"}, {"settings": None}])
def test_grade_refuses_completions_that_were_drawn_in_another_way(tmp_path, other):
    """A cluster job that outlived its Snakemake leaves them, after those that the study asks for by now."""
    holdout, made = tmp_path / "holdout.parquet", tmp_path / "completions.parquet"
    tables.write(holdout, tables.PROBLEMS, [problem(1, "34")], {})
    tables.write(made, tables.COMPLETIONS, completions("#### 34"), DRAWN | other)
    with pytest.raises(UserError, match=r"completions.parquet: drawn with other settings .*; delete it to draw again"):
        grade.main(job(tmp_path, GRADED, {"completions": made, "holdout": holdout}, "samples"))
    assert not (tmp_path / "samples.parquet").exists()
