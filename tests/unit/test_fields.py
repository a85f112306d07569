"""Columns of a user's own files: templates, alternatives, gaps, and columns that nobody reads."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problem_files import fetched, real, stage_job, written

from workflow_scripts import tables
from workflow_scripts.benchmarks import fields, sources
from workflow_scripts.stages import fetch_benchmark


def own(path, question, answer="answer", **more):
    return {
        "name": "mine",
        "source": "local",
        "path": path.name,
        "fields": {"question": question, "answer": answer},
    } | more


ARC = {
    "id": "Mercury_1",
    "question": "Which gas do plants take in?",
    "choices": {"text": ["oxygen", "carbon dioxide", "{helium}"], "label": ["A", "B", "C"]},
    "answerKey": "B",
}
MMLU = {"question": "2 + 2 = ?", "subject": "arithmetic", "choices": ["3", "4", "5", "6"], "answer": 1}
AQUA = {"question": "How far?", "options": ["A)21", "B)21.5", "C)22"], "rationale": "…", "correct": "B"}
MEDQA = {"question": "Which?", "options": {"A": "one", "B": "two"}, "answer_idx": "A"}
TEMPLATES = [
    (ARC, "{question}\n{choices}", "answerKey",
     "Which gas do plants take in?\n(A) oxygen\n(B) carbon dioxide\n(C) {helium}", "B"),
    (MMLU, "{question}\n{choices}", "{answer:letter}", "2 + 2 = ?\n(A) 3\n(B) 4\n(C) 5\n(D) 6", "B"),
    (AQUA, "{question}\n{options}", "correct", "How far?\nA)21\nB)21.5\nC)22", "B"),
    (MEDQA, "{question}\n{options}", "{answer_idx:letter}", "Which?\n(A) one\n(B) two", "A"),
    (MMLU, "{question} {{A}} {choices.0}, {choices.1}?", "answer", "2 + 2 = ? {A} 3, 4?", "1"),
    ({"q": {"parts": [{"text": "a {b}"}, {"text": "c"}]}, "a": 7.0}, "{q.parts.0.text} {q.parts.1.text}", "a",
     "a {b} c", "7"),
    ({"n": 3.0, "m": 10, "a": "x"}, "{n} of {m}", "a", "3 of 10", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "question", "answer", "asked", "right"), TEMPLATES)
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_template_joins_columns(row, question, answer, asked, right, form, tmp_path):
    path = tmp_path / f"x.{form}"
    written(path, [row]) if form == "jsonl" else pq.write_table(pa.Table.from_pylist([row]), path)
    (found,) = fetched(own(path, question, answer), tmp_path)
    assert (found["question"], found["answer"]) == (asked, right)


@given(st.text(), st.text())
def test_braces_of_the_values_stay_as_they_are(first, second):
    row = {"a": first, "b": second}
    if not fields.is_blank(first) and not fields.is_blank(second):
        assert fields.value(row, "{a}{{{b}}}") == f"{first}{{{second}}}"


def test_svamp_read_as_a_set_of_ones_own(tmp_path):
    path = real("svamp.jsonl")
    fields_of = {"question": "{Body} {Question}", "answer": "Answer", "id": "ID"}
    found, record = sources.fetch({"name": "mine", "source": "local", "path": path.name, "fields": fields_of},
                                  str(path.parent))  # fmt: skip
    first = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert found[0]["question"] == f"{first['Body']} {first['Question']}" and len(found) == 1000
    assert record["unused_columns"] == sorted({*first} - {"Body", "Question", "Answer", "ID"})
    with pytest.raises(sources.SourceError, match=r"line 1: no field reads column 'Body', .*'\{Body\} \{question\}'"):
        fetched(own(path, "Question", "Answer"), path.parent)


def test_alternatives_take_the_first_that_a_row_has(tmp_path):
    rows = [
        {"question": "a", "answer": 1},
        {"problem": "b", "answer": 2},
        {"question": " ", "problem": "c", "answer": 3},
    ]
    path = written(tmp_path / "x.jsonl", rows)
    assert [row["question"] for row in fetched(own(path, ["question", "problem"]), tmp_path)] == ["a", "b", "c"]
    pq.write_table(
        pa.Table.from_pylist([{"question": None, "problem": "b", "answer": 2}, rows[0]]), tmp_path / "x.parquet"
    )
    assert len(fetched(own(tmp_path / "x.parquet", ["question", "problem"]), tmp_path)) == 2
    written(path, [{"story": "s", "question": "q", "answer": 1}, {"story": "", "question": "r", "answer": 2}])
    found = fetched(own(path, ["{story}\n{question}", "question"]), tmp_path)
    assert [row["question"] for row in found] == ["s\nq", "r"]  # a context that only some have
    with pytest.raises(sources.SourceError, match="line 1: no column 'text or body'; columns: story, question, answer"):
        fetched(own(path, ["text", "body"]), tmp_path)


GAPS = [
    {"q": "a", "answer": 1}, {"q": None, "answer": 1}, {"q": "b", "answer": ""}, {"q": "c"},
    {"q": "d", "answer": float("nan")}, {"q": "e", "answer": 5},
]  # fmt: skip


def test_gaps_are_dropped_where_the_study_says_so_and_counted(tmp_path, capsys):
    path = written(tmp_path / "x.jsonl", GAPS)
    entry = own(path, "q", gaps="drop")
    fetch_benchmark.main(stage_job(tmp_path, {"set": entry}, {}, "problems", {"data_dir": str(tmp_path)}))
    assert "4 of 6 rows without question or answer left out" in capsys.readouterr().out
    found = tables.read(tmp_path / "problems.parquet", tables.PROBLEMS).to_pylist()
    assert [(row["row"], row["question"]) for row in found] == [(0, "a"), (5, "e")]
    source = tables.provenance(tmp_path / "problems.parquet")["source"]
    assert (source["rows"], source["gaps"], source["gap_rows"]) == (6, 4, [1, 2, 3, 4])
    with pytest.raises(sources.SourceError, match="line 2: the question is null"):
        fetched(own(path, "q"), tmp_path)
    with pytest.raises(sources.SourceError, match=r"none of 6 rows has both .*; no column 'text'"):  # a typing error
        fetched(own(path, "text", gaps="drop"), tmp_path)
    written(path, [*GAPS, {"q": "f", "answer": [1]}])  # not a gap
    with pytest.raises(sources.SourceError, match="line 7: the answer is not a text"):
        fetched(own(path, "q", gaps="drop"), tmp_path)


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"choices": ["x", "y"]}, "column 'choices'"),
        ({"options": {"A": "x"}, "passage": "P"}, "columns 'options', 'passage'"),
        ({"answer_choices": ["x"]}, "column 'answer_choices'"),
        ({"A": "x", "B": "y"}, "columns 'A', 'B'"),
        ({"Context": "C"}, "column 'Context'"),
        ({"input": "Translate this"}, "column 'input'"),
        ({"subject": "x", "context_id": 3, "solution": "s", "correct_option": 2, "image": None, "choices": []}, None),
    ],
)
def test_a_part_of_the_question_that_nobody_reads_is_an_error(extra, named, tmp_path):
    path = written(tmp_path / "x.jsonl", [{"question": "q", "answer": 1}, {"question": "r", "answer": 1} | extra])
    if named is None:
        assert len(fetched(own(path, "question"), tmp_path)) == 2
        return
    with pytest.raises(sources.SourceError, match=rf"^x\.jsonl: line 2: no field reads {named}, which may be") as fault:
        fetched(own(path, "question"), tmp_path)
    assert "sets.mine.unused" in str(fault.value) and "\n" not in str(fault.value)
    assert len(fetched(own(path, "question", unused=list(extra)), tmp_path)) == 2


def test_a_column_beside_one_that_is_read_within_others(tmp_path):
    path = written(tmp_path / "x.jsonl", [{"data": {"question": "q", "choices": ["a", "b"]}, "answer": 1}])
    with pytest.raises(sources.SourceError, match=r"no field reads column 'data\.choices'"):
        fetched(own(path, "data.question"), tmp_path)
    (found,) = fetched(own(path, "{data.question}\n{data.choices}"), tmp_path)
    assert found["question"] == "q\n(A) a\n(B) b"


@pytest.mark.parametrize(
    ("row", "question", "answer", "message"),
    [
        ({"question": "q", "o": [["a"]], "answer": 1}, "{question} {o}", "answer", "column 'o' is no list of options"),
        ({"question": "q", "answer": "yes"}, "question", "{answer:letter}", "'yes', which is no number of an option"),
        ({"question": "q", "answer": 30}, "question", "{answer:letter}", "30, which is no number of an option"),
        ({"question": True, "answer": 3}, "{question}?", "answer", "column 'question' holds True, which is no text"),
        ({"question": "q", "answer": 3}, "{question} {x}", "answer", "no column 'x'; columns: question, answer"),
        ({"question": "q", "a": {"b": []}, "answer": 3}, "{a.b.0}", "answer", "no column 'a.b.0'"),
    ],
)
def test_rows_that_a_template_does_not_fit(row, question, answer, message, tmp_path):
    path = written(tmp_path / "x.jsonl", [row])
    with pytest.raises(sources.SourceError, match=rf"^x\.jsonl: line 1: .*{message}"):
        fetched(own(path, question, answer), tmp_path)
