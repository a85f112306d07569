"""`armslength compare` on what it cannot use: one line that names the file, the row and the fault."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compare_calls import EXAMPLE, HEADER, big, entry, log, said, table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workflow_scripts.commands.selftest import BASELINE, TREATMENT


def line(number: int, text: str) -> str:
    """The example with one line replaced."""
    lines = EXAMPLE.splitlines()
    lines[number - 1] = text
    return "\n".join(lines) + "\n"


FAULTS = {
    "empty": ("", "the file is empty"),
    "blank": (" \n\n", "the file is empty"),
    "header only": (HEADER + "\n", "no rows below the header"),
    "no csv": ("what is this\n", "no column arm (it has what is this)"),
    "missing column": (EXAMPLE.replace("problem", "problems"), "no column problem or problem_id; did you mean problem"),
    "column twice": (EXAMPLE.replace("run,arm", "arm,arm"), "two columns are called arm"),
    "too many correct": (line(5, "a-1,a,1,1,100,101"), "line 5: c is 101 of n = 100 samples"),
    "negative": (line(5, "a-1,a,1,1,100,-1"), "line 5: c is -1, and should be at least 0"),
    "no samples": (line(5, "a-1,a,1,1,0,0"), "line 5: n is 0, and should be at least 1"),
    "half a sample": (line(5, "a-1,a,1,1,100,0.5"), "line 5: c is '0.5', and should be a whole number"),
    "not a number": (line(5, "a-1,a,1,1,100,nan"), "line 5: c is 'nan', and should be a whole number"),
    "infinite": (line(5, "a-1,a,1,1,inf,1"), "line 5: n is 'inf', and should be a whole number"),
    "no value": (line(5, "a-1,a,1,1,100,"), "line 5: c is empty, and should be a whole number"),
    "seed in words": (line(5, "a-1,a,first,1,100,1"), "line 5: seed is 'first', and should be a whole number"),
    "no arm": (line(5, "a-1,,1,1,100,1"), "line 5: arm is empty"),
    "no problem": (line(5, "a-1,a,1, ,100,1"), "line 5: problem is empty"),
    "too few fields": (line(5, "a-1,a,1,1,100"), "line 5: 5 fields, and the header has 6"),
    "row twice": (EXAMPLE + "a-1,a,1,1,100,3\n", "line 22: a, seed 1, problem 1 of all is there already: "),
    "run of two seeds": (line(5, "a-0,a,1,1,100,1"), "line 5: run a-0 has another arm or seed than before"),
    "seed of two runs": (line(5, "other,a,1,1,100,1"), "line 5: arm a, seed 1 has another run than before"),
    "single arm": (table({"a": BASELINE}), "only one arm, a: nothing to compare it with"),
    "no baseline": (table({"aa": BASELINE, "b": TREATMENT}), "--baseline a: no such arm; did you mean aa?; there are"),
    "macro": (EXAMPLE.replace("run,", "benchmark,").replace("a-0", "macro"), "a benchmark may not be called macro"),
    "log without arm": (log(entry(1)), "a log does not say of which arm and seed it is; give it as ARM:SEED=FILE"),
    "latin 1": ("run,arm\n\xe9,b".encode("latin-1"), "not UTF-8 text"),
    "binary": (b"\x00\x01\x02", "neither csv, parquet nor jsonl"),
    "truncated parquet": (b"PAR1abcdef", "not a readable parquet file (truncated?)"),
}  # fmt: skip
LOG_FAULTS = {
    "broken line": (log(entry(1), '{"doc_id": 2, '), "line 2: no JSON"),
    "other JSON": (log({"a": 1}), "line 1: no doc_id: not a sample log of lm-evaluation-harness"),
    "no metric": (log(entry(1, metrics=[])), "0 metrics (none); choose one"),
    "two metrics": (log(entry(1, metrics=["acc", "acc_norm"])), "2 metrics (acc, acc_norm); choose one, as in"),
    "no number": (log(entry(1), entry(2, acc=None)), "line 2: acc is None, and should be a number"),
    "NaN": (log('{"doc_id": 1, "metrics": ["acc"], "acc": NaN}'), "line 1: acc is nan, and should be a number"),
    "perplexity": (log(entry(1, acc=7.5)), "line 1: acc is 7.5, which is no share correct of one graded response"),
    "no share": (log(entry(1, acc=0.4, filtered_resps=[["x"] * 4])), "line 1: acc is 0.4, which is no share correct"),
    "problem twice": (log(entry(1), entry(1)), "line 2: a, seed 0, problem 1 of all is there already: "),
    "one of many": (log(entry(1, metrics=["pass@4"], **{"pass@4": 1.0})), "pass@4 is 1 as soon as one of 4 answers"),
    "one of many, by name": (log(entry(1, metrics=["pass_at_8"], pass_at_8=1.0)), "as soon as one of 8 answers"),
    "no name": (log('{"doc_id": null, "metrics": [[]]}'), "line 1: metrics holds [], and should be names"),
    "digits": ("{" + '"doc_id":' + "9" * 5000 + "}\n", "no JSON that can be read: ValueError"),
    "list": ("[1,\n2", "line 2: no JSON"),
    "table": (EXAMPLE, "a table names its arms and seeds itself; give it without ARM:SEED="),
}  # fmt: skip


def refused(path: Path, content: str | bytes, expected: str, argument: str) -> None:
    """One line that names the file and the fault."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = said(argument)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert expected in err
    assert err.startswith("armslength compare: ")
    if not expected.startswith(("only one arm", "--baseline", "a benchmark")):
        assert str(path) in err


@pytest.mark.parametrize("name", FAULTS)
def test_a_table_that_cannot_be_used_is_one_line(tmp_path: Path, name: str) -> None:
    refused(tmp_path / "x.csv", *FAULTS[name], argument=str(tmp_path / "x.csv"))


@pytest.mark.parametrize("name", LOG_FAULTS)
def test_a_log_that_cannot_be_used_is_one_line(tmp_path: Path, name: str) -> None:
    refused(tmp_path / "x.jsonl", *LOG_FAULTS[name], argument=f"a:0={tmp_path / 'x.jsonl'}")


def test_arguments_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(log(entry(1)))
    for argument, expected in (
        (f"{tmp_path}/none.csv", "none.csv: No such file or directory"),
        (f"a:0={tmp_path}/none.jsonl", "none.jsonl: No such file or directory"),
        (f"a=0={tmp_path}/x.jsonl", "no such file, and not ARM:SEED=FILE"),
        (f"a:first={tmp_path}/x.jsonl", "seed is 'first', and should be a whole number: ARM:SEED=FILE"),
        (f"a:={tmp_path}/x.jsonl", "seed is '', and should be a whole number"),
        (f"a:0={tmp_path}", "a folder without samples_*.jsonl or details_*.parquet"),
    ):
        code, out, err = said(argument)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert expected in err
    (tmp_path / "x.csv").write_text(EXAMPLE)
    assert "line 2: n is 100, fewer than --pass-at 128" in said(tmp_path / "x.csv", "--pass-at", "128")[2]
    assert "x.csv" in said(tmp_path / "x.csv", "--output", tmp_path / "x.csv")[2]
    for option, value in (
        ("--pass-at", "0"),
        ("--pass-at", "1,1"),
        ("--looks", "1"),
        ("--alpha", "2"),
        ("--alpha", "x"),
    ):
        with pytest.raises(SystemExit):
            said(tmp_path / "x.csv", option, value)
    with pytest.raises(SystemExit):
        said(tmp_path / "x.csv", margin=3)


def test_parquet_of_other_types(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    good = {"arm": ["a", "b"], "seed": [0, 0], "problem": [1, 1], "n": [8, 8], "c": [1, 2]}
    for column, values, expected in (
        ("seed", [0, None], "row 2: seed is empty"),
        ("c", [1.0, 2.5], "row 2: c is 2.5, and should be a whole number"),
        ("c", [1.0, float("nan")], "row 2: c is nan"),
        ("c", [[1], [2]], "column c is of type list<"),
        ("arm", [["a"], ["b"]], "column arm is of type list<"),
        ("arm", ["a", None], "row 2: arm is empty"),
        ("n", [8, 2**62], ""),
        ("problem", [1.5, 1.5], ""),
    ):
        pq.write_table(pa.table(good | {column: values}), path)
        code, _, err = said(path)
        assert (code, expected in err) == (1 if expected else 0, True)
    pq.write_table(pa.table({**good, "arm": pa.array(["a", "b"]).dictionary_encode()}), path)
    assert said(path)[0] == 0


def test_one_bad_row_of_many_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    frame = big(path, 2, 5, 10, 1500)
    text = path.read_text().splitlines()
    for bad, expected in (("arm1,4,3,7,8,x", "c is 'x'"), ("arm1,4,3", "3 fields"), (text[9], "is there already")):
        path.write_text("\n".join([*text[:140_000], bad, *text[140_000:]]))
        code, _, err = said(path, baseline="arm0")
        assert code == 1
        assert f"line {140_001}: " in err
        assert expected in err
    assert len(frame) == 150_000


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=6)
NUMBER = st.one_of(st.integers(-1, 9).map(str), st.sampled_from(["", "1.0", "nan", "1e400", "x"]))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_table_is_a_crash(tmp_path: Path, data: st.DataObject) -> None:
    """Small tables: mostly sound ones, some cells of which are anything."""
    arms, seeds, problems = (data.draw(st.integers(1, 3)) for _ in range(3))
    rows = [[arm, str(s), str(p), "4", str(data.draw(st.integers(0, 4)))]
            for arm in "abc"[:arms] for s in range(seeds) for p in range(problems)]  # fmt: skip
    for _ in range(data.draw(st.integers(0, 2))):
        row, column = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, 4))
        rows[row][column] = data.draw(TEXT if column in (0, 2) else NUMBER)
    path = tmp_path / "x.csv"
    path.write_bytes("\n".join([HEADER[4:], *(",".join(row) for row in rows)]).encode())
    common = ["--common-problems"] if data.draw(st.booleans()) else []
    code, out, err = said(path, "--pass-at", data.draw(st.sampled_from(["1", "1,4", "2"])), *common)
    assert (code, err) == (0, "") if out else (code, err.count("\n")) == (1, 1)


ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-2, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
FIELDS = ("doc_id", "metrics", "acc", "filter", "resps", "filtered_resps", "doc_hash", "prompt_hash")
LINE = st.builds(lambda fields: entry(1, resps=[["x"]]) | fields, st.dictionaries(st.sampled_from(FIELDS), ANY))
LOG = st.lists(LINE, max_size=3).map(lambda lines: log(*lines).encode())
PATHOLOGICAL = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@PATHOLOGICAL
@given(content=st.binary(max_size=60) | ANY.map(lambda value: json.dumps(value).encode()) | LOG)
def test_no_log_is_a_crash(tmp_path: Path, content: bytes) -> None:
    """Bytes, JSON, and lines of a log some fields of which are anything."""
    (tmp_path / "x").write_bytes(content)
    code, out, err = said(f"a:0={tmp_path / 'x'}")  # one arm at most
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert said(tmp_path / "x")[0] == 1


DETAILS = {
    "new": {"doc": {"query": "q"}, "metric": {"acc": 1.0}, "model_response": {"text": ["x"]}},
    "old": {"example": "q", "metrics": "{'acc': 1.0}", "predictions": "['x']"},
}


@PATHOLOGICAL
@given(data=st.data())
def test_no_details_are_a_crash(tmp_path: Path, data: st.DataObject) -> None:
    """Details of lighteval, one field of which is anything that parquet holds, or Python prints."""
    sound = DETAILS[data.draw(st.sampled_from(["new", "old"]))]
    row = sound | {data.draw(st.sampled_from(list(sound))): data.draw(ANY | ANY.map(repr))}
    try:
        pq.write_table(pa.Table.from_pylist([row, row]), tmp_path / "x")
    except (pa.ArrowException, UnicodeError):
        return  # nothing that could lie in a file
    code, out, err = said(f"a:0={tmp_path / 'x'}")
    assert (code, out, err.count("\n")) == (1, "", 1)
