"""The grader math_answer: golden verdicts, real reference answers, limits, its processes, the stages that use it."""

import json
import re
import sys
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problem_files import real, stage_job

from workflow_scripts import grading, tables
from workflow_scripts.benchmarks.boxes import last_box
from workflow_scripts.grading import _pool, _server, math_answer
from workflow_scripts.grading._answer_text import latex
from workflow_scripts.stages import audit_gold

GOLDEN = tomllib.loads((Path(__file__).parents[1] / "golden" / "math_answers.toml").read_text(encoding="utf-8"))
ENDLESS = "\\sum_{k=1}^{10^{9}} k^k"  # runs into the limit of processor time
SLOW = "x^{9^{9^{9}}}"


def status(said: str, gold: str, truncated: bool = False) -> str:
    return math_answer.grade(said, gold, truncated).status


def boxed(said: str, gold: str) -> grading.Row:
    return f"so \\boxed{{{said}}}.", gold, False


def test_golden_verdicts():
    """By hand, half of them before the grader was written."""
    cases = [
        (kind, boxed(said, gold) if form == "boxed" else (said, gold, False), right)
        for form, kinds in GOLDEN.items()
        for kind, rows in kinds.items()
        for gold, said, right, *_ in rows
    ]
    assert len(cases) >= 200
    verdicts = grading.grade_many("math_answer", [row for _, row, _ in cases])
    faults = [
        f"{kind}: {row[0]} for {row[1]} is {verdict.status}, not {right}"
        for (kind, row, right), verdict in zip(cases, verdicts, strict=True)
        if verdict.status != right
    ]
    assert not faults, "\n".join(faults)


decimals = st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**7), max_value=10**7)
spelled_numbers = st.one_of(
    st.builds(
        lambda value, how: how.format(value),
        st.integers(-(10**12), 10**12) | decimals,
        st.sampled_from(["{}", "{:,}", "${}$", " {} ", "{:+}", "0{}", "{}0", "{}.0"]),
    ),
    st.builds(
        lambda sign, groups, rest: sign + ",".join(groups) + rest,
        st.sampled_from(["", "-", "+"]),
        st.lists(st.sampled_from(["1", "23", "456", "7890"]), min_size=1, max_size=3),
        st.sampled_from(["", ".", ".5", ".25,3", "$"]),
    ),
)


@given(spelled_numbers, spelled_numbers, st.booleans())
@settings(max_examples=200, deadline=None)
def test_the_fast_path_agrees_with_the_slow_one_on_all_it_accepts(said, gold, same):
    gold = said if same else gold
    numbers = latex.plain_number(said), latex.plain_number(gold)
    if None in numbers:
        return
    fast = math_answer.grade(f"\\boxed{{{said}}}", gold, False)
    slow = _server.compare(latex.tidy(said) or "", latex.tidy(gold) or "")
    assert (fast.status, fast.answer) == slow


@given(st.integers(-(10**9), 10**9), decimals)
def test_a_number_equals_itself_and_nothing_near(whole, places):
    for value in (Decimal(whole), places):
        assert status(f"\\boxed{{{value}}}", str(value)) == "correct"
        assert status(f"\\boxed{{{value + Decimal('0.0001')}}}", str(value)) == "wrong"


pieces = [
    *"{}()[]0123xyn+-=<,^_|!%.&' ", "\\frac", "\\sqrt", "\\text{cm}", "\\pm ", "\\cup ", "\\{", "\\}", "\\\\",
    "\\infty",
    "\\boxed{", "\\begin{pmatrix}", "\\end{pmatrix}", "#### ", "answer is ", "</think>", "\x00", "½",
]  # fmt: skip
texts = st.lists(st.sampled_from(pieces), max_size=12).map("".join)


@given(st.lists(st.tuples(texts, texts, st.booleans()), min_size=1, max_size=20))
@settings(max_examples=12, deadline=None)
def test_any_text_gets_a_verdict_and_only_a_marked_answer_is_correct(rows):
    for (said, gold, cut), verdict in zip(rows, math_answer.grade_many(rows), strict=True):
        assert verdict.status in {"correct", "wrong", "timeout", "truncated" if cut else "unparsed"}
        assert (verdict.answer is None) == (verdict.status in {"truncated", "unparsed", "timeout"})
        if not re.search("boxed|#|answer", said):
            assert verdict.answer is None
        if math_answer.grade(math_answer.stated(gold), gold, False).status != "correct":
            assert verdict.status != "correct"  # what the audit drops pays nothing


def test_what_the_token_limit_may_have_cut_is_no_answer():
    assert status("\\boxed{\\frac{1}{2}}", "1/2", truncated=True) == "correct"
    assert status("\\boxed{\\frac{1}{2}}", "1/3", truncated=True) == "wrong"
    assert status("\\boxed{\\frac{1}{2}", "1/2", truncated=True) == "truncated"
    assert status("#### 1", "1", truncated=True) == "truncated"
    assert status("the answer is $x", "x", truncated=True) == "truncated"
    assert status("<think> \\boxed{1}", "1", truncated=True) == "truncated"


@pytest.mark.parametrize(
    ("completion", "right"),
    [
        ("So 2+3 is \\boxed{5}. Wait, let me re-check", "truncated"),
        ("so \\boxed{5}, 6", "truncated"),
        ("so \\boxed{5}" + "." * 81, "truncated"),
        ("so \\boxed{5}.", "correct"),
        ("$$\\begin{aligned}x&=\\boxed{\\boxed{5}}\\end{aligned}$$\n\\]\\right) **", "correct"),
        ("Hm, \\boxed{6}. </think> It is \\boxed{5}, as was to be shown by", "correct"),
        ("a</think> b <think>\\boxed{5}", "truncated"),
    ],
)
def test_a_box_of_a_completion_that_was_cut_is_an_answer_where_it_ends_it_or_the_thinking_is_over(completion, right):
    """The prompt may have opened the thinking: a completion cut inside then shows no tag. Uncut, its last box pays."""
    assert status(completion, "5", truncated=True) == right
    assert status(completion, "5") == ("unparsed" if completion.endswith("<think>\\boxed{5}") else "correct")


def test_full_caches_lose_no_verdict_of_another_thread(monkeypatch):
    """A thread that empties the cache between another's look-ups."""
    monkeypatch.setattr(math_answer, "_MOST_KNOWN", 2)
    monkeypatch.setattr(math_answer, "_known", {})
    monkeypatch.setattr(_pool, "ask", lambda pairs: time.sleep(0.001) or [("correct", None)] * len(pairs))
    rows = [boxed(f"x+{n}", "x") for n in range(6)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda n: math_answer.grade_many(rows[n % 3 :] + rows), range(200)))
    finally:
        sys.setswitchinterval(interval)
    assert {verdict.status for verdicts in found for verdict in verdicts} == {"correct"}
    assert len(math_answer._known) <= 6


@pytest.mark.parametrize(
    "hostile",
    [
        "\\boxed{" * 12_000,
        "{" * 40_000 + "}" * 40_000,
        "#### Step 1\n" * 7_000,
        "answer is " * 8_000,
        "</think>" * 10_000,
        "\\boxed{" + "9" * 80_000 + "}",
        "\\boxed{" + "(" * 200 + "1" + ")" * 200 + "}",
        "\\boxed{" + "\\text{a} " * 110 + "1}",
        "\\boxed{" + "a(" * 60 + "}",
        "\\boxed{" + "{" * 90 + "}" * 89 + "}",
        "\\boxed{1\x00\x00}" + "x" * 80_000,
    ],
    ids=lambda text: f"{text[:12]!r}x{len(text)}",
)
def test_long_and_deep_completions_are_read_in_linear_time(hostile):
    start = time.process_time()
    assert status(hostile, "\\sqrt{2}") in {"unparsed", "wrong"}
    assert time.process_time() - start < 1.0


def reference_answers(name: str) -> list[str]:
    text = real(name).read_text(encoding="utf-8")
    rows = json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]
    if name.startswith("olympiadbench"):
        return [", ".join(row["final_answer"]) for row in rows]
    if name.startswith("minerva"):
        return [last_box(row["solution"]) or "" for row in rows]
    return [str(row["answer"]) for row in rows]


@pytest.mark.parametrize(
    ("name", "dropped"),
    [
        ("math500.jsonl", 0),
        ("aime24.jsonl", 0),
        ("aime25.jsonl", 0),
        ("amc23.jsonl", 0),
        ("deepscaler_aime_train.json", 0),
        pytest.param("deepscaler_math_train.json", 0.005, marks=pytest.mark.slow),
        pytest.param("minerva_math.jsonl", 0.005, marks=pytest.mark.slow),
        pytest.param("olympiadbench.jsonl", 0.005, marks=pytest.mark.slow),
    ],
)
def test_real_reference_answers_grade_themselves_correct(name, dropped):
    golds = reference_answers(name)
    verdicts = grading.grade_many("math_answer", [(math_answer.stated(gold), gold, False) for gold in golds])
    faults = [(gold, verdict) for gold, verdict in zip(golds, verdicts, strict=True) if verdict.status != "correct"]
    assert len(faults) <= dropped * len(golds), faults


def bare(gold: str) -> list[str]:
    """A reference answer without what may be missing: unit, degree and money sign, base, name, brackets, order."""
    gold = re.sub(
        r"\\(?:text|mbox)\s*\{[^{}]*\}(?:\^\d)?|\^\\circ|\\\$|,\\!|\\left|\\right|_\{?\d\}?$|^x\s*=", "", gold
    )
    return sorted(re.sub(r"[\s{}()]", "", gold).split(","))


@pytest.mark.slow
def test_no_reference_answer_of_math500_is_paid_for_another():
    golds = sorted(set(reference_answers("math500.jsonl")))
    rows = [(math_answer.stated(said), gold, False) for gold in golds for said in golds if said != gold]
    verdicts = grading.grade_many("math_answer", rows)
    assert {verdict.status for verdict in verdicts} <= {"correct", "wrong"}
    paid = [row for row, verdict in zip(rows, verdicts, strict=True) if verdict.status == "correct"]
    unjustified = [row for row in paid if bare(last_box(row[0])) != bare(row[1])]
    assert len(paid) >= 10 and not unjustified


def problem(number: int, answer: str) -> dict:
    return {"problem_id": f"{number:016x}", "benchmark": "set", "row": number, "question": f"question {number}",
            "answer": answer, "difficulty": None}  # fmt: skip


def test_the_audit_drops_what_cannot_be_read(tmp_path):
    answers = ["\\frac{1}{2}", "1, -2", "9.81\\tolerance{0.05}", "\\frac{1}{0}", "\\frac{", "\\text{even}", "\\ldots"]
    path = tmp_path / "problems.parquet"
    tables.write(path, tables.PROBLEMS, [problem(n, answer) for n, answer in enumerate(answers)], {})
    audit_gold.main(stage_job(tmp_path, {"grader": "math_answer"}, {"problems": [path]}, "audit"))
    rows = tables.read(tmp_path / "audit.parquet", tables.GOLD_AUDIT).to_pylist()
    assert [row["answer"] for row in rows if row["dropped"]] == ["\\frac{1}{0}", "\\frac{", "\\ldots"]


def test_versions_and_libraries_are_each_graders_own(monkeypatch):
    assert grading.version("exact_answer") == grading.version("math_answer") == 3
    assert grading.version("my.module:reward") == grading.REWARD_VERSION == 1
    monkeypatch.setattr(math_answer, "REWARD_VERSION", 4)
    grading.hold_to(3, "exact_answer")
    with pytest.raises(grading.RewardVersionError, match="held to reward version 3, this code has 4"):
        grading.hold_to(3, "math_answer")
    assert grading.libraries("exact_answer") == {}  # the keys of its results name no library
    assert set(grading.libraries("math_answer")) == {"math-verify", "latex2sympy2-extended", "sympy"}
    assert threading.active_count() < 20  # the grader starts no thread
