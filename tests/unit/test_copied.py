"""Answers copied from the question, alternatives, and tolerances in percent."""

import pytest
import yaml
from problem_files import real, stage_job

from workflow_scripts import grading, stage_settings, tables
from workflow_scripts.benchmarks import sources
from workflow_scripts.grading.math_answer import copies
from workflow_scripts.launch.study_file import DEFAULT_STUDY
from workflow_scripts.report import findings, warnings
from workflow_scripts.stages import audit_gold, grade
from workflow_scripts.study import load

QUESTION = (
    r"Evaluate $\frac68$ and \(x^2\), \[3+4\] and $$\sqrt{50}$$ for \$5. Let $x = 3\cdot 2$ for all $n$, in $1000$ "
    r"steps of the $12^{\mathrm{th}}$. $\textbf{(A)}\ 12\qquad\textbf{(B)}\ \frac{1}{2}$ "
    r"\begin{align*} 2&+2\\ 9 \end{align*}"
)


def test_the_expressions_of_a_question():
    assert copies.expressions(QUESTION) == [
        r"\frac68", "x^2", "3+4", r"\sqrt{50}", r"x = 3\cdot 2", "n", "1000", r"12^{\mathrm{th}}",
        r"\textbf{(A)}\ 12\qquad\textbf{(B)}\ \frac{1}{2}", "2&+2", "9",
    ]  # fmt: skip
    assert copies.expressions(r"It costs \$5 and \$10, $a$ and $a$.") == ["a"]


COPIED = [  # answer, reference answer, whether it is a copy
    (r"\frac{6}{8}", r"\frac34", True),
    (r"\dfrac 6 8", r"\frac34", True),
    ("6/8", r"\frac34", True),
    (r"x=\frac68", r"\frac34", True),
    ("(3 + 4)", "7", True),
    (r"3+4 \text{ cm}", r"7\text{ cm}", True),
    (r"3 \times 2", "6", True),
    (r"\frac12", "0.5", True),
    ("2+2", "4", True),
    ("x=7", "7", False),
    ("3+4=7", "7", False),  # worked out
    ("4+3", "7", False),  # other text
    ("1000", "1{,}000", False),  # the reference stands in the question, too
    ("12", "B", False),
    ("B", r"\text{(B)}", False),  # options of a choice
    (r"\textbf{(B)}\ \frac12", "B", False),
    ("12^{th}", "12", False),
    ("n", "f(n)=n", False),
    (r"\frac68", r"\frac34 \alternatively \frac68", False),
    (r"\sqrt{50}", r"7.07\tolerance{1\%}", True),
]


@pytest.mark.parametrize(("answer", "reference", "is_copy"), COPIED)
def test_a_copy_is_an_expression_of_the_question_that_the_reference_is_not(answer, reference, is_copy):
    assert copies.copied(answer, reference, QUESTION) is is_copy


def test_copies_are_refused_or_paid():
    rows = [(f"so \\boxed{{{said}}}", r"\frac34", False) for said in (r"\frac68", "0.75", r"\frac12")]
    assert [v.status for v in grading.grade_many("math_answer", rows)] == ["correct", "correct", "wrong"]
    refused = grading.grade_many("math_answer", rows, [QUESTION] * 3)
    assert [v.status for v in refused] == ["wrong", "correct", "wrong"]
    assert grading.knows_copies("math_answer") and not grading.knows_copies("exact_answer")
    assert not grading.knows_copies("package.module:function")


@pytest.mark.parametrize(
    ("said", "reference", "status"),
    [
        (r"3.275 \times 10^{12}", r"3.3e12\tolerance{1\%}", "correct"),
        (r"3.26 \times 10^{12}", r"3.3e12\tolerance{1\%}", "wrong"),
        ("-3.3e12", r"3.3e12\tolerance{1\%}", "wrong"),
        (r"1.61 \text{ cm}", r"1.6\tolerance{1\%}", "correct"),
        (r"5\%", r"0.05\tolerance{1\%}", "correct"),
        ("-0.333", r"-1./3\tolerance{1\%}", "correct"),
        ("0.8776", r"\arcsin(10/13)\tolerance{1\%}", "correct"),
        ("0.001", r"0\tolerance{1\%}", "wrong"),
        ("1,010", r"1000\tolerance{1\%}", "correct"),
        ("1,011", r"1000\tolerance{1\%}", "wrong"),
        ("9.85", r"9.81\tolerance{0.05}", "correct"),  # absolute
        (r"9.81\tolerance{1\%}", "9.81", "unparsed"),
        ("x", r"x\tolerance{1\%}", "unparsed"),
        ("7", r"3 \alternatively 7", "correct"),
        ("3", r"3 \alternatively 7", "correct"),
        ("3, 7", r"3 \alternatively 7", "wrong"),
        ("1.62", r"x \alternatively 1.6\tolerance{2\%}", "correct"),
    ],
)
def test_tolerances_in_percent_and_alternatives(said, reference, status):
    (verdict,) = grading.grade_many("math_answer", [(f"\\boxed{{{said}}}", reference, False)])
    assert verdict.status == status


def test_alternatives_hold_for_every_grader():
    rows = [(f"#### {said}", r"3 \alternatively 7", False) for said in ("7", "3", "5")]
    assert [v.status for v in grading.grade_many("exact_answer", rows)] == ["correct", "correct", "wrong"]
    assert grading.stated("exact_answer", r"3 \alternatively 7") == grading.stated("exact_answer", "3")


def problem(number: int, question: str, answer: str) -> dict:
    return {"benchmark": "mine", "problem_id": f"p{number}", "row": number, "question": question, "answer": answer}


PROBLEMS = [
    problem(0, r"Simplify $\frac68$.", r"\frac34"),
    problem(1, "Which is larger, $2$ or $1$?", "2"),
    problem(2, "How many of $x$?", "5"),
    problem(3, "Which?", r"np.pi \alternatively 4"),
]


@pytest.mark.parametrize(("said", "paid"), [({"copied": "refuse"}, [False, True]), ({}, [True, True])])
def test_the_audit_lists_what_a_copy_is_paid(said, paid, tmp_path):
    tables.write(tmp_path / "problems.parquet", tables.PROBLEMS, PROBLEMS, {})
    job = stage_job(tmp_path, {"grader": "math_answer"} | said, {"problems": [tmp_path / "problems.parquet"]}, "audit")
    audit_gold.main(job)
    rows = tables.read(tmp_path / "audit.parquet", tables.GOLD_AUDIT).to_pylist()
    assert [row["copy"] for row in rows] == [r"\frac68", "2", None, None]
    assert [row["copy_paid"] for row in rows] == [*paid, None, None]
    assert not any(row["dropped"] for row in rows)
    footer = tables.provenance(tmp_path / "audit.parquet")
    assert (footer["copies"], footer["copies_paid"]) == (2, sum(paid))
    checks = [row for row in findings.audit_checks([rows]) if row["check"] == "copied answers"]
    (message,) = [row["message"] for row in checks]
    assert message.startswith(f"mine: {sum(paid)} of 4 problems ({25 * sum(paid):.1f} %) pay an answer that copies")
    assert ("leaves 1 more unpaid" in message) is bool(said)
    assert [row["verdict"] for row in checks] == ["warn"]
    assert any(line.startswith("Copied answers: mine") for line in warnings.warnings([], [], [], checks))


def test_few_copies_are_no_warning():
    rows = [{**problem(n, "", ""), "status": "correct", "dropped": False, "reason": None, "copy": None,
             "copy_paid": None} for n in range(40)]  # fmt: skip
    assert [row["check"] for row in findings.audit_checks([rows])] == ["gold audit"]
    rows[0] |= {"copy": "x", "copy_paid": True}
    assert [row["verdict"] for row in findings.audit_checks([rows])] == ["pass", "pass"]


def study(**change):
    config = yaml.safe_load(DEFAULT_STUDY.read_text(encoding="utf-8"))
    return load(config | change)


def test_the_key_reaches_training_and_grading_of_graders_that_know_copies():
    config = yaml.safe_load(DEFAULT_STUDY.read_text(encoding="utf-8"))
    assert "copied" not in stage_settings.train(study(), "gapo", 0, 1) | stage_settings.audit_train_set(study(), 1)
    math = {"training": config["training"] | {"reward": "math_answer"}}
    assert stage_settings.train(study(**math), "gapo", 0, 1)["copied"] == "refuse"
    assert stage_settings.audit_train_set(study(**math), 1)["copied"] == "refuse"
    assert stage_settings.rewards(study(**math), 1)["copied"] == dict.fromkeys(config["arms"], "refuse")
    pay = study(**math, grading={"copied": "pay"})
    assert "copied" not in stage_settings.train(pay, "gapo", 0, 1) | stage_settings.audit_train_set(
        pay, 1
    ) | stage_settings.rewards(pay, 1)


def test_grading_completions_refuses_copies(tmp_path):
    tables.write(tmp_path / "holdout.parquet", tables.PROBLEMS, PROBLEMS, {})
    rows = [
        {"benchmark": "mine", "problem_id": "p0", "sample": n, "completion": f"\\boxed{{{said}}}", "truncated": False}
        for n, said in enumerate((r"\frac68", r"\frac34"))
    ]
    tables.write(tmp_path / "completions.parquet", tables.COMPLETIONS, rows, {"settings": {}, "code": "c"})
    files = {"completions": [tmp_path / "completions.parquet"], "holdout": [tmp_path / "holdout.parquet"]}
    for said, right in (({"copied": "refuse"}, [False, True]), ({}, [True, True])):
        asked = {"grader": "math_answer", "sampled": {}, "sampling_code": "c"} | said
        grade.main(stage_job(tmp_path, asked, files, "samples"))
        samples = tables.read(tmp_path / "samples.parquet", tables.SAMPLES).to_pylist()
        assert [row["correct"] for row in samples] == right


@pytest.mark.slow
def test_the_share_of_math500_that_pays_copies(tmp_path):
    """46 of 500 where copies are paid (9.2 %), beside 3 whose reference answer itself stands in the question."""
    path = real("math500.jsonl")
    found, _ = sources.fetch({"name": "math500", "source": "local"}, str(path.parent))
    tables.write(tmp_path / "problems.parquet", tables.PROBLEMS, found, {})
    asked = {"grader": "math_answer", "copied": "refuse"}
    audit_gold.main(stage_job(tmp_path, asked, {"problems": [tmp_path / "problems.parquet"]}, "audit"))
    footer = tables.provenance(tmp_path / "audit.parquet")
    assert 48 <= footer["copies"] <= 51 and footer["copies_paid"] <= 6
