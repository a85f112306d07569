"""Each published set, in the formats it is published in; a user's own files; the audit of reference answers."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from problem_files import REAL, fetched, own, real, stage_job, written

from workflow_scripts import benchmarks, stage_settings, tables
from workflow_scripts.benchmarks import boxes, sources
from workflow_scripts.launch.study_file import DEFAULT_STUDY
from workflow_scripts.stages import audit_gold
from workflow_scripts.study import load

BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'


def dapo(question: str, answer: str, index: int = 0, before: str = BEFORE) -> dict:
    return {
        "data_source": "math_dapo",
        "prompt": [{"content": before + question + AFTER, "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": str(index)},
    }


def olympiad(answers: list[str], **more: object) -> dict:
    row = {"id": 1, "question": "Q", "final_answer": answers, "error": None, "unit": None, "context": None}
    return row | {"answer_type": "Numerical", "is_multiple_answer": len(answers) > 1} | more


# set, a row as one of its sources has it (the texts are made up), and (question, answer, difficulty)
FORMS = [
    ("math500", {"problem": "Q", "solution": "", "answer": r"\frac12", "level": 3}, ("Q", r"\frac12", 3)),
    ("aime24", {"id": 60, "problem": "Q", "solution": "", "answer": "025", "year": "2024"}, ("Q", "25", None)),
    ("aime25", {"problem": "Q", "answer": 70, "id": "0"}, ("Q", "70", None)),
    ("amc23", {"id": 0, "question": "Q", "answer": -27.0, "url": ""}, ("Q", "-27", None)),
    ("amc23", {"id": 0, "question": "Q", "answer": "27"}, ("Q", "27", None)),
    ("minerva_math", {"problem": "Q", "solution": r"so $\boxed{1.6} \mathrm{cm}$"}, ("Q", r"1.6\tolerance{1\%}", None)),
    ("minerva_math", {"question": "Q", "answer": "1e-3"}, ("Q", r"1e-3\tolerance{1\%}", None)),
    ("minerva_math", {"question": "Q", "answer": r"\frac{K-1}{L}"}, ("Q", r"\frac{K-1}{L}", None)),
    ("minerva_math", {"question": "Q", "answer": "np.arcsin(10/13)"}, ("Q", r"\arcsin(10/13)\tolerance{1\%}", None)),
    ("minerva_math", {"problem": "Q", "answer": ["x", "-3./2"]}, ("Q", r"x \alternatively -3./2\tolerance{1\%}", None)),
    ("olympiadbench", olympiad(["2"]), ("Q", "2", None)),
    ("olympiadbench", olympiad(["$1$", "$-1$"], context="C"), ("C\n\nQ", "$1$, $-1$", None)),
    ("olympiadbench", olympiad(["$4.2$"], error="1e-1", unit="%"), ("Q", r"4.2\tolerance{0.1}", None)),
    ("math_train", {"problem": "Q", "level": "Level 4", "solution": r"\boxed{1} \boxed{x^{2}}"}, ("Q", "x^{2}", 4)),
    ("math_train", {"problem": "Q", "level": "Level ?", "solution": r"is $\boxed 7$."}, ("Q", "7", None)),
    ("deepscaler", {"problem": "Q", "answer": "5", "solution": ""}, ("Q", "5", None)),
    ("deepscaler_math_train", {"problem": "Q", "answer": None, "difficulty": 2.0, "type": ""}, ("Q", "", 2)),
    ("deepscaler_aime_train", {"problem": "Q", "answer": "5", "difficulty": 4.25, "year": 1990}, ("Q", "5", None)),
    ("dapo_math", dapo("Q", "34"), ("Q", "34", None)),
    ("svamp", {"ID": "1", "Body": "B.", "Question": "Q", "Answer": 145.0}, ("B. Q", "145", None)),
    ("svamp", {"ID": "1", "Body": "B", "Question": "Q", "Answer": "145.0"}, ("B, Q", "145", None)),  # the hub's
    ("mawps_singleop", {"input": "Q", "target": 14.0}, ("Q", "14", None)),
    ("mawps_test", {"question": "Q", "result": "1_034", "result_float": 1034.0}, ("Q", "1034", None)),
    ("mawps_test", {"question": "Q", "result": "1/3", "result_float": 0.333}, ("Q", "1/3", None)),
]


@pytest.mark.parametrize(("name", "row", "expected"), FORMS)
def test_a_row_of_each_published_form(name, row, expected, tmp_path):
    """From the published name of the file, and from jsonl, a json list and parquet under another."""
    published = benchmarks.problem_set(name).file
    files = {"x.jsonl": lambda path: written(path, [row]), "x.json": lambda path: path.write_text(json.dumps([row]))}
    files["x.parquet"] = lambda path: pq.write_table(pa.Table.from_pylist([row]), path)
    write = next(write for example, write in files.items() if Path(example).suffix == Path(published).suffix)
    write(tmp_path / published)
    for file, write in files.items():
        write(tmp_path / file)
    for path in (None, *files):
        entry = {"name": name, "source": "local"} | ({"path": path} if path else {})
        (found,) = fetched(entry, tmp_path)
        assert (found["question"], found["answer"], found["difficulty"]) == expected
        assert found["benchmark"] == name


def test_every_set_names_what_it_is():
    for name in benchmarks.names():
        entry = benchmarks.problem_set(name)
        assert entry.name == (f"{entry.benchmark}_{entry.split}" if entry.split else entry.benchmark)
        assert entry.version >= 1
        if entry.hub:  # a commit, never a branch
            assert len(entry.hub.revision) == 40 and set(entry.hub.revision) <= set("0123456789abcdef")
    assert benchmarks.problem_set("deepscaler", "math_train").name == "deepscaler_math_train"
    with pytest.raises(KeyError, match="nearest: deepscaler"):
        benchmarks.problem_set("deepscaler", "train")


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("aime24", {"problem": "Q", "answer": "12.5"}, "not in the form this set has"),
        ("math500", {"problem": "Q", "answer": "1"}, "no column 'level'; columns: problem, answer"),
        ("math500", {"problem": "Q", "answer": None, "level": 1}, "the answer is null"),
        ("minerva_math", {"problem": "Q", "solution": r"\boxed{1"}, "the answer is null"),
        ("olympiadbench", olympiad(["1", "2"], error="0.1"), "not in the form this set has"),
        ("olympiadbench", olympiad(["1"], language="Chinese"), "not of the text-only English part"),
        ("dapo_math", dapo("Q", "1", before="Please. "), "lacks the instruction around the problem"),
        ("dapo_math", {**dapo("Q", "1"), "prompt": []}, "not in the form this set has"),
        ("dapo_math", dapo(" \n ", "1"), "the question is empty"),
        ("svamp", {"Body": "B", "Question": "Q", "Answer": "nan"}, "the answer is nan, which is no number"),
        ("mawps_addsub", {"input": "Q", "target": float("nan")}, "the answer is nan, which is no number"),
    ],
)
def test_a_row_of_another_form_is_an_error(name, row, message, tmp_path):
    written(tmp_path / "x.jsonl", [row])
    with pytest.raises(sources.SourceError, match=rf"^x\.jsonl: line 1: .*{message}"):
        fetched({"name": name, "source": "local", "path": "x.jsonl"}, tmp_path)


def test_repeated_rows_of_a_table_larger_than_a_batch_are_dropped_and_counted(tmp_path):
    rows = [dapo(f"What is {i} + 1 ?", str(i + 1), i) for i in range(60)] * 101
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "dapo-math-17k.parquet")
    found, record = sources.fetch({"name": "dapo_math", "source": "local"}, str(tmp_path))
    assert [row["question"] for row in found] == [f"What is {i} + 1 ?" for i in range(60)]
    assert (record["rows"], record["duplicate_rows"]) == (6060, 6000)
    assert record["duplicates"] == list(range(60, 1060))  # the first thousand


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"$\boxed{\frac{1}{2}}$", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}} and \fbox{3}", "3"),
        (r"\boxed{\text{a \boxed{b}}}", r"\text{a \boxed{b}}"),
        (r"\boxed{1} then {\boxed{2}", "2"),
        (r"\boxed{1} then \boxed{2", "1"),
        (r"\boxed{1}, so $\boxed 2$.", "2"),
        (r"\boxed{}", ""),
        ("no box }{", None),
    ],
)
def test_last_box(solution, answer):
    assert boxes.last_box(solution) == answer


# --- a user's own files


def test_fields_may_lie_within_others(tmp_path):
    pq.write_table(pa.Table.from_pylist([dapo("How many?", "34", 5)]), tmp_path / "x.parquet")
    fields = {"question": "prompt.0.content", "answer": "reward_model.ground_truth", "id": "extra_info.index"}
    (row,) = fetched(own(tmp_path / "x.parquet", fields=fields), tmp_path)
    assert row["answer"] == "34" and "How many?" in row["question"] and "id" not in row
    for column in ("prompt.1.content", "prompt.x", "reward_model.gold", "reward_model.ground_truth.x"):
        with pytest.raises(
            sources.SourceError, match=rf"x\.parquet: row 1: no column '{column}'; columns: data_source,"
        ):
            fetched(own(tmp_path / "x.parquet", fields={**fields, "answer": column}), tmp_path)
    written(tmp_path / "x.jsonl", [{"a.b": "Q", "a": {"b": 7}}])  # a column of that very name comes first
    (row,) = fetched(own(tmp_path / "x.jsonl", fields={"question": "a.b", "answer": "a.b"}), tmp_path)
    assert row["answer"] == "Q"


def test_an_id_stands_for_one_problem(tmp_path):
    fields = {"question": "q", "answer": "a", "id": "n"}
    rows = [{"q": "x", "a": 1, "n": 1}, {"q": "y", "a": 1, "n": "b"}, {"q": "x", "a": 1, "n": 1}]
    found, record = sources.fetch(own(written(tmp_path / "x.jsonl", rows), fields=fields), str(tmp_path))
    assert len(found) == 2 and record["duplicates"] == [2]  # a repeated row, not another problem
    for change, message in (
        ({"q": "z"}, r"line 3: the id '1' is that of another problem \(x\.jsonl: line 1\)"),
        ({"n": None}, "line 3: the id is null"),
        ({"n": " "}, "line 3: the id is empty"),
    ):
        written(tmp_path / "x.jsonl", [*rows[:2], rows[2] | change])
        with pytest.raises(sources.SourceError, match=message):
            fetched(own(tmp_path / "x.jsonl", fields=fields), tmp_path)


@pytest.mark.parametrize(
    ("keys", "columns", "named"),
    [
        ({"path": "x.jsonl"}, ("question", "answer"), {"question": "question", "answer": "answer"}),
        ({"path": "x.parquet", "fields": {"answer": "gold"}}, ("question", "gold"), None),
        ({"path": "x.json", "fields": {"question": "q", "answer": "a", "id": "a"}}, ("q", "a"), None),
    ],
)
def test_a_study_names_a_set_of_its_own(keys, columns, named, tmp_path):
    default = yaml.safe_load(DEFAULT_STUDY.read_text(encoding="utf-8"))
    row = dict(zip(columns, ("Q", "7"), strict=True))
    written(tmp_path / "x.jsonl", [row])
    (tmp_path / "x.json").write_text(json.dumps([row]), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "x.parquet")
    mine = {"sets": {"mine": keys | {"grader": "math_answer"}}, "data_dir": str(tmp_path)}
    study = load(default | mine | {"evaluation": default["evaluation"] | {"benchmarks": ["mine"]}})
    entry = stage_settings.fetch_benchmark(study, "mine", tmp_path / "none.parquet")["set"]
    if named:
        assert entry["fields"] == named  # an id that is not named is no part of the key
    (found,) = fetched(entry, tmp_path)
    assert (found["question"], found["answer"], found["benchmark"]) == ("Q", "7", "mine")


ROW = b'{"q": "x", "a": 1}'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", b"[" + ROW + b"]", r"line 1: .*one object a line; a file that is one list is named \.json$"),
        ("x.jsonl", b"[\n" + ROW + b"\n]", r"line 1: not valid JSON .*; a file that is one list is named \.json$"),
        ("x.jsonl", b"3\n", r"line 1: a \.jsonl file has one object a line$"),
        ("x.json", ROW + b"\n" + ROW, r"line 2: not valid JSON .*; a file with one object a line is named \.jsonl$"),
        ("x.json", ROW, r"must hold one list of objects; a file with one object a line is named \.jsonl$"),
        ("x.json", b"[" + ROW + b",\n 3]", r"row 2: not in the form this set has"),
        ("x.json", b"[]", "the file is empty"),
        ("x.json", b"[\n" + ROW + b",\n{]", r"line 3: not valid JSON"),
        ("x.jsonl", ROW + b"\n" + ROW[:-2] + b"1" * 5000 + b"}", "line 2: not valid JSON .*thousands of digits"),
        ("x.jsonl", (ROW + b"\n").decode().encode("utf-16"), "this is UTF-16 text; save it as UTF-8"),
        ("x.jsonl", ROW + b"\n\xef\xbb\xbf" + ROW, "line 2: not valid JSON"),  # a BOM within is none
        ("x.jsonl.gz", gzip.compress(ROW, mtime=0), r"must end in \.jsonl, \.json or \.parquet; unpack it first$"),
        ("x.parquet", ROW, "not a readable parquet file"),
    ],
)
def test_files_that_are_not_what_their_name_says(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(sources.SourceError, match=message) as fault:
        fetched(own(tmp_path / name), tmp_path)
    assert name in str(fault.value) and "\n" not in str(fault.value)


def test_a_folder_a_table_without_rows_or_column_and_a_huge_line(tmp_path):
    (tmp_path / "x.jsonl").mkdir()
    with pytest.raises(sources.SourceError, match=r"x\.jsonl: a folder, not a file"):
        fetched(own(tmp_path / "x.jsonl"), tmp_path)
    pq.write_table(pa.table({"q": ["x"], "b": ["1"]}), tmp_path / "x.parquet")
    with pytest.raises(sources.SourceError, match=r"x\.parquet: row 1: no column 'a'; columns: q, b"):
        fetched(own(tmp_path / "x.parquet"), tmp_path)
    pq.write_table(pa.table({"q": pa.array([], pa.string()), "a": pa.array([], pa.string())}), tmp_path / "x.parquet")
    with pytest.raises(sources.SourceError, match=r"x\.parquet: the file is empty"):
        fetched(own(tmp_path / "x.parquet"), tmp_path)
    written(tmp_path / "y.jsonl", [{"q": "long " * 2_000_000, "a": 1}, {"q": "x", "a": 2}])
    assert [len(row["question"]) for row in fetched(own(tmp_path / "y.jsonl"), tmp_path)] == [10_000_000, 1]


# --- the audit of reference answers


def audited(folder: Path, rows: list[dict], grader: str) -> list[dict]:
    tables.write(folder / "problems.parquet", tables.PROBLEMS, rows, {})
    inputs = {"problems": [folder / "problems.parquet"]}
    audit_gold.main(stage_job(folder, {"grader": grader}, inputs, "audit"))
    found = tables.read(folder / "audit.parquet", tables.GOLD_AUDIT).to_pylist()
    assert tables.provenance(folder / "audit.parquet")["dropped"] == sum(row["dropped"] for row in found)
    return found


def test_the_audit_drops_what_is_missing_unreadable_or_contradicted(tmp_path):
    pairs = [("a", "1"), ("b", ""), ("c", "yes"), ("d", "2"), ("d", "3"), ("e", "0.5"), ("e", "1/2"), ("d", "yes")]
    kept, _ = sources._collected(
        [
            (number, "", {"question": question, "answer": answer, "difficulty": None})
            for number, (question, answer) in enumerate(pairs)
        ],
        "mine",
    )
    reasons = [row["reason"] for row in audited(tmp_path, kept, "exact_answer")]
    unread = "the reference answer is not of the form this grader reads"
    other = "the same question has another answer in another row"
    assert reasons == [None, "the source has no reference answer", unread, other, other, None, None, unread]


NONE, UNREAD = "the source has no reference answer", "the reference answer is not of the form this grader reads"


@pytest.mark.parametrize(
    ("name", "duplicates", "dropped"),
    [
        ("gsm8k_train", 0, {}),
        ("gsm8k_test", 0, {}),
        ("mawps_singleop", 31, {}),
        ("mawps_addsub", 0, {}),
        ("svamp", 0, {}),
        ("math500", 0, {}),
        ("aime24", 0, {}),
        ("aime25", 0, {}),
        ("amc23", 0, {}),
        ("olympiadbench", 0, {73: UNREAD, 96: UNREAD}),
        ("deepscaler_aime_train", 0, {}),
        pytest.param("minerva_math", 0, {}, marks=pytest.mark.slow),
        pytest.param(
            "deepscaler_math_train",
            0,
            dict.fromkeys((886, 1009, 5328, 5330), NONE) | {6131: UNREAD},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_real_files_have_these_rows_and_these_bad_reference_answers(name, duplicates, dropped, tmp_path, monkeypatch):
    monkeypatch.setattr(audit_gold, "expressions", lambda question: [])  # copies take longer: test_copied.py
    known = benchmarks.problem_set(name)
    real(str(known.file))
    found, record = sources.fetch({"name": name, "source": "local"}, str(REAL))
    assert (record["rows"], record["duplicate_rows"]) == (known.size, duplicates)
    audit = audited(tmp_path, found, known.grader)
    assert {row["row"]: row["reason"] for row in audit if row["dropped"]} == dropped
    assert len(found) == known.size - duplicates and len(dropped) <= 0.005 * len(found)
