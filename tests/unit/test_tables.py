"""Every parquet file: columns with unit and meaning, footers, atomic and deterministic writing, clear faults."""

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow_scripts import job, tables

ALL = {value.name: value for value in vars(tables).values() if isinstance(value, tables.Table)}
ROW = {"problem_id": "a", "benchmark": "b", "row": 0, "question": "1+1?", "answer": "2", "difficulty": None}


@pytest.mark.parametrize("table", ALL.values(), ids=ALL)
def test_every_column_has_unit_and_meaning(table: tables.Table) -> None:
    for column in table.columns:
        words = tables.describe(table, column)
        assert words["unit"].strip(), column
        assert words["meaning"].strip(), column
    assert set(table.key) <= set(table.columns)


def test_no_wording_without_a_column() -> None:
    wording = tables.schemas._wording()
    used = {column for table in ALL.values() for column in table.columns}
    assert set(wording["columns"]) <= used
    for name, entries in wording.items():
        if name != "columns":
            assert set(entries) <= set(ALL[name].columns), name


@pytest.mark.parametrize("table", ALL.values(), ids=ALL)
def test_meaning_and_provenance_lie_in_the_file(table: tables.Table, tmp_path: Path) -> None:
    tables.write(tmp_path / "t.parquet", table, [], {"code": "c0de", "settings": {"seed": 1}})
    schema = pq.read_schema(tmp_path / "t.parquet")
    for field in schema:
        assert field.metadata[b"meaning"].decode() == tables.describe(table, field.name)["meaning"]
        assert field.metadata[b"unit"]
    assert schema.metadata[b"armslength_table"].decode() == table.name
    footer = tables.provenance(tmp_path / "t.parquet")
    assert footer["code"] == "c0de"
    assert footer["settings"] == {"seed": 1}
    assert len(footer["content"]) == 16


def test_equal_rows_give_equal_bytes_from_any_form(tmp_path: Path) -> None:
    forms = {
        "rows": [ROW],
        "columns": {name: [value] for name, value in ROW.items()},
        "frame": pd.DataFrame([ROW]).astype({"difficulty": "Int64"}),
        "shuffled": pa.Table.from_pylist([ROW], schema=tables.schema(tables.PROBLEMS)).select(sorted(ROW)),
    }
    written = set()
    for name, rows in forms.items():
        tables.write(tmp_path / f"{name}.parquet", tables.PROBLEMS, rows, {"code": "x"})
        written.add((tmp_path / f"{name}.parquet").read_bytes())
    assert len(written) == 1


@settings(max_examples=30, deadline=None)
@given(values=st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.floats(allow_nan=True))), max_size=20))
def test_rows_come_back(values: list[tuple[str, float | None]], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("t") / "t.parquet"
    rows = [{"step": i, "metric": text, "value": value} for i, (text, value) in enumerate(values)]
    tables.write(path, tables.TRAINER_LOG, rows, {})
    assert str(tables.read(path, tables.TRAINER_LOG).to_pylist()) == str(rows)


def test_the_wording_of_a_column_is_no_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else better words would execute again whatever reads a table that is made again."""
    tables.write(tmp_path / "a.parquet", tables.PROBLEMS, [ROW], {})
    monkeypatch.setattr(tables.schemas, "describe", lambda *_: {"unit": "text", "meaning": "in better words"})
    tables.write(tmp_path / "b.parquet", tables.PROBLEMS, [ROW], {})
    assert tables.input_digest(tmp_path / "a.parquet") == tables.input_digest(tmp_path / "b.parquet")


def test_content_digest_is_of_the_rows_not_of_provenance(tmp_path: Path) -> None:
    path, other, changed = (tmp_path / f"{n}.parquet" for n in "abc")
    tables.write(path, tables.PROBLEMS, [ROW], {"code": "1"})
    tables.write(other, tables.PROBLEMS, [ROW], {"code": "2"})
    tables.write(changed, tables.PROBLEMS, [{**ROW, "answer": "3"}], {"code": "1"})
    assert tables.input_digest(path) == tables.input_digest(other)
    assert tables.input_digest(path) != tables.input_digest(changed)


def test_a_footer_names_inputs_as_they_were_when_the_job_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that outlives its Snakemake must not say that it was made from what came meanwhile."""
    made = tmp_path / "runs.parquet"
    arguments = {
        "--settings": "{}",
        "--code": "c",
        "--root": str(tmp_path),
        "--input": f"train={tmp_path / 'train.txt'}",
    }
    monkeypatch.setattr("sys.argv", ["stage", *sum(arguments.items(), ()), "--output", f"runs={made}"])
    (tmp_path / "train.txt").write_text("first")
    before = tables.inputs_digest([str(tmp_path / "train.txt")], tmp_path)

    def main(job: job.Job) -> None:
        (tmp_path / "train.txt").write_text("second")
        job.write("runs", tables.RUNS, [])

    job.run(main)
    assert tables.provenance(made)["inputs"] == before
    assert before != tables.inputs_digest([str(tmp_path / "train.txt")], tmp_path)


def test_inputs_digest_moves_with_the_results(tmp_path: Path) -> None:
    digests = []
    for root in (tmp_path / "here", tmp_path / "there" / "deeper"):
        for name in ("b", "a"):
            tables.write(root / f"{name}.parquet", tables.PROBLEMS, [ROW], {})
        digests.append(tables.inputs_digest([str(root / "b.parquet"), str(root / "a.parquet")], root))
        digests.append(tables.inputs_digest([str(root / "a.parquet"), str(root / "b.parquet")], root))
    assert len(set(digests)) == 1
    assert tables.inputs_digest([str(root / "a.parquet")], root) != digests[0]


FAULTS = {
    "unknown column": ([{**ROW, "extra": 1}], "has no column extra"),
    "same key twice": ([ROW, ROW], "same problem_id"),
}


@pytest.mark.parametrize(("rows", "message"), FAULTS.values(), ids=FAULTS)
def test_faulty_rows_are_refused(rows: list[dict], message: str, tmp_path: Path) -> None:
    with pytest.raises(tables.TableError, match=message):
        tables.write(tmp_path / "t.parquet", tables.PROBLEMS, rows, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cut", [0, 3, 100, -1])
def test_a_truncated_file_is_named(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    tables.write(path, tables.PROBLEMS, [ROW], {})
    path.write_bytes(path.read_bytes()[:cut])
    for read in (lambda: tables.read(path, tables.PROBLEMS), lambda: tables.provenance(path)):
        with pytest.raises(tables.TableError) as caught:
            read()
        assert str(path) in str(caught.value)
        assert "delete it" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_damaged_body_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    rows = [{**ROW, "problem_id": f"p{i}", "row": i, "question": f"{i} apples and {i * i} pears?"} for i in range(999)]
    tables.write(path, tables.PROBLEMS, rows, {})
    data = bytearray(path.read_bytes())
    for i in range(40, 2000):
        data[i] ^= 0x5A
    path.write_bytes(data)
    with pytest.raises(tables.TableError, match="delete it"):
        tables.read(path, tables.PROBLEMS)


def test_a_missing_file_and_a_foreign_table_are_named(tmp_path: Path) -> None:
    with pytest.raises(tables.TableError, match="missing"):
        tables.read(tmp_path / "none.parquet", tables.PROBLEMS)
    pq.write_table(pa.table({"x": [1]}), tmp_path / "foreign.parquet")
    with pytest.raises(tables.TableError, match="not a table problems"):
        tables.read(tmp_path / "foreign.parquet", tables.PROBLEMS)
    assert tables.provenance(tmp_path / "foreign.parquet") == {}


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    tables.write(path, tables.PROBLEMS, [ROW], {})
    before = path.read_bytes()

    def full(*args: object, **kwargs: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(tables.files.pq, "write_table", full)
    with pytest.raises(OSError, match="no space"):
        tables.write(path, tables.PROBLEMS, [{**ROW, "answer": "3"}], {})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]


def test_footer_is_plain_json(tmp_path: Path) -> None:
    tables.write(tmp_path / "t.parquet", tables.PROBLEMS, [ROW], {"libraries": {"scipy": "1"}})
    footer = json.loads(pq.read_schema(tmp_path / "t.parquet").metadata[b"armslength"])
    assert footer["libraries"] == {"scipy": "1"}
