"""Problem sets, and fetching them."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problem_files import fetched, own, questions, stage_job, written

from workflow_scripts import benchmarks, grading, tables
from workflow_scripts.benchmarks import sources, word_problems
from workflow_scripts.errors import UserError
from workflow_scripts.stages import fetch_benchmark, fetch_train_set

# --- problem sets


def test_sets_are_found_by_full_name_and_by_split():
    assert {
        "word_problems_train",
        "word_problems_validation",
        "word_problems_test",
        "gsm8k_train",
        "gsm8k_test",
    } <= set(benchmarks.names())
    assert benchmarks.problem_set("gsm8k", "test") == benchmarks.problem_set("gsm8k_test")
    assert benchmarks.problem_set("gsm8k_test", "test").sources == ("hub", "local")
    assert benchmarks.problem_set("word_problems_train").sources == ("generated",)
    assert benchmarks.problem_set("word_problems_train").size is None
    for name in benchmarks.names():
        assert benchmarks.problem_set(name).grader in grading.names()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gsm8k", "nearest: gsm8k_train, gsm8k_test"),
        ("gsm8k_tset", "nearest: gsm8k_test"),
        ("zzz", "allowed: aime24, "),
    ],
)
def test_an_unknown_set_names_the_nearest(name, hint):
    with pytest.raises(KeyError, match=hint):
        benchmarks.problem_set(name)


# --- the generated task


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
@settings(max_examples=15, deadline=None)
def test_splits_have_no_text_in_common_whatever_the_seeds(first, second, third):
    parts = [
        {p.question for p in word_problems.problems(split, 300, seed)}
        for split, seed in (("train", first), ("validation", second), ("test", third))
    ]
    assert [len(part) for part in parts] == [300, 300, 300]
    assert len(set.union(*parts)) == 900


def test_generation_is_fixed_by_the_seed_and_grows_at_the_end():
    assert word_problems.generate("train", 200, 7) == word_problems.generate("train", 500, 7)[:200]
    assert word_problems.generate("train", 200, 7) != word_problems.generate("train", 200, 8)
    # Pinned: another generator would be another task under the same name.
    text = json.dumps(word_problems.generate("train", 200, 7) + word_problems.generate("test"))
    assert tables.text_digest(text) == "c3e710cf9eec047a"


def test_default_sizes():
    assert len(word_problems.generate("test")) == len(word_problems.generate("validation")) == 1000
    with pytest.raises(ValueError, match="rows and seed"):
        word_problems.generate("train")


def test_problems_are_as_described():
    many = word_problems.problems("train", 3000, 1)
    steps = Counter(len(problem.steps) for problem in many)
    assert set(steps) == {1, 2, 3} and min(steps.values()) > 500
    for problem in many:
        assert 2 <= problem.start <= 20 and problem.answer > 0
        assert all(2 <= step.operand <= 9 for step in problem.steps)
    assert {step.operator for problem in many for step in problem.steps} == set("+-*")


def single_digits(text: str) -> list[str]:
    return [part for word in text.split() for part in (word if word.isdigit() else [word])]


@given(st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_demonstrations(seed):
    rng = Random(seed)
    for problem in word_problems.problems("train", 20, seed):
        clean = word_problems.demonstration(problem)
        *work, marker, answer = clean.split()
        assert marker == "####" and int(answer) == problem.answer
        for sentence in " ".join(work).split(" . "):
            left, _, result = sentence.rstrip(" .").partition(" = ")
            assert eval(left) == int(result)
        noisy = word_problems.demonstration(problem, rng, slip=0.5, misread=0.5, unmarked=0.5)
        for text in (problem.question, clean, noisy):
            assert set(single_digits(text)) <= set(word_problems.vocabulary())
        assert len(single_digits(noisy)) <= 31  # with the end token it fits a max_completion of 32


def test_noise_has_the_asked_shares():
    rng, many = Random(5), word_problems.problems("train", 2000, 5)

    def share(wrong, **noise: float) -> float:
        return sum(wrong(word_problems.demonstration(p, rng, **noise), p) for p in many) / len(many)

    def wrong_answer(text: str, problem: word_problems.Problem) -> bool:
        return int(text.split()[-1]) != problem.answer

    def wrong_sum(text: str, problem: word_problems.Problem) -> bool:
        parts = text.split("####")[0].rstrip(" .").split(" . ")
        return any(eval(left) != int(result) for left, result in (part.split(" = ") for part in parts))

    assert share(wrong_answer) == 0
    assert share(wrong_sum, slip=0.2) == pytest.approx(0.2, abs=0.03)
    assert share(wrong_answer, slip=0.2) == pytest.approx(0.2, abs=0.03)
    assert share(wrong_sum, misread=0.3) == 0  # a misread operation is computed right
    assert share(wrong_answer, misread=0.3) == pytest.approx(0.3, abs=0.04)
    assert share(lambda text, problem: "####" not in text, unmarked=0.1) == pytest.approx(0.1, abs=0.03)


def test_the_vocabulary_has_no_idle_word_and_leaves_room_for_special_tokens():
    many = word_problems.problems("train", 3000, 2)
    used = {part for p in many for text in (p.question, word_problems.demonstration(p)) for part in single_digits(text)}
    assert used == set(word_problems.vocabulary())
    assert len(word_problems.vocabulary()) <= 44


# --- fetching


def test_an_own_set_loads_from_each_format(tmp_path):
    rows = [{"q": "How many?", "a": 14.0}, {"q": "How much?", "a": "3/4"}, {"q": "Which?", "a": 7}]
    written(tmp_path / "x.jsonl", rows)
    (tmp_path / "x.json").write_text(json.dumps(rows), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist([{**row, "a": str(row["a"])} for row in rows]), tmp_path / "x.parquet")
    (tmp_path / "bom.jsonl").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "x.jsonl").read_bytes().replace(b"\n", b"\r\n"))
    (tmp_path / "mac.jsonl").write_bytes((tmp_path / "x.jsonl").read_bytes().replace(b"\n", b"\r"))
    for name in ("x.jsonl", "x.json", "bom.jsonl", "mac.jsonl"):
        found = fetched(own(tmp_path / name), tmp_path)
        assert [row["answer"] for row in found] == ["14", "3/4", "7"]
        assert questions(found) == ["How many?", "How much?", "Which?"]
    assert questions(fetched(own(tmp_path / "x.parquet"), tmp_path)) == ["How many?", "How much?", "Which?"]


def test_what_only_looks_like_the_end_of_a_line_stays_in_its_text(tmp_path):
    texts = [f"a{mark}b" for mark in "\u2028\u2029\x85"]
    rows = [json.dumps({"q": text, "a": 1}, ensure_ascii=False) for text in texts]
    (tmp_path / "x.jsonl").write_bytes("\r".join(rows).encode())
    assert questions(fetched(own(tmp_path / "x.jsonl"), tmp_path)) == texts


def test_problem_ids_depend_on_set_text_and_answer_alone(tmp_path):
    rows = [{"q": f"question {i}", "a": i} for i in range(5)]
    first = fetched(own(written(tmp_path / "x.jsonl", rows)), tmp_path)
    again = fetched(own(written(tmp_path / "y.jsonl", rows[::-1])), tmp_path)
    assert [row["problem_id"] for row in first] == [row["problem_id"] for row in again][::-1]
    other = fetched({**own(tmp_path / "x.jsonl"), "name": "other"}, tmp_path)
    assert not {row["problem_id"] for row in first} & {row["problem_id"] for row in other}
    assert sources.problem_id("own", "question 0", "0") == first[0]["problem_id"] == "d3640057a93c7496"


def test_duplicates_are_dropped_and_listed(tmp_path):
    rows = [{"q": "x", "a": 1}, {"q": "y", "a": 1}, {"q": "x", "a": 1}, {"q": "x", "a": 2}, {"q": "x", "a": "1"}]
    found, record = sources.fetch(own(written(tmp_path / "x.jsonl", rows)), str(tmp_path))
    assert [row["row"] for row in found] == [0, 1, 3]
    assert record["duplicates"] == [2, 4] and record["rows"] == 5
    assert record["source"] == "local:x.jsonl"  # no folder of this machine
    assert record["sha256"] == tables.file_sha256(tmp_path / "x.jsonl")


def test_a_part_of_a_set(tmp_path):
    path = written(tmp_path / "x.jsonl", [{"q": f"question {i}", "a": i} for i in range(50)])
    assert [row["row"] for row in fetched(own(path, rows=7), tmp_path)] == list(range(7))
    part = [row["row"] for row in fetched(own(path, rows=7, seed=1), tmp_path)]
    assert part == sorted(part) and part != list(range(7)) and len(set(part)) == 7
    assert part != [row["row"] for row in fetched(own(path, rows=7, seed=2), tmp_path)]
    with pytest.raises(sources.SourceError, match=r"x\.jsonl: 51 rows asked for, 50 different ones are there"):
        fetched(own(path, rows=51), tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"x\.jsonl: the file is empty"),
        (b"\n \n", r"x\.jsonl: the file is empty"),
        (b'{"q": "x", "a": 1}\n{"q": "y", "a": }\n', r"x\.jsonl: line 2: not valid JSON"),
        (b'{"q": "x", "a": 1}\r\n\r\n{"q": "y"\r\n', r"x\.jsonl: line 3: not valid JSON"),
        (b'{"q": "x", "a": 1}\n{"q": "y", "b": 1}\n', r"x\.jsonl: line 2: no column 'a'; columns: q, b"),
        (b'{"q": "x", "a": null}\n', r"x\.jsonl: line 1: the answer is null"),
        (b'{"q": null, "a": 1}\n', r"x\.jsonl: line 1: the question is null"),
        (b'{"q": "x", "a": 1}\n{"q": " \\t ", "a": 1}\n', r"x\.jsonl: line 2: the question is empty"),
        (b'{"q": "x", "a": " "}\n', r"x\.jsonl: line 1: the answer is empty"),
        (b'{"q": "x", "a": 1}\r{"q": "y", "a": }\r', r"x\.jsonl: line 2: not valid JSON"),
        (b'{"q": "x", "a": 1}\r\n{"q": "x", "a": NaN}\r\n', r"x\.jsonl: line 2: the answer is nan, which is no number"),
        (b'{"q": "x", "a": -Infinity}\n', r"x\.jsonl: line 1: the answer is -inf, which is no number"),
        (b'{"q": "x", "a": 1e999}\n', r"x\.jsonl: line 1: the answer is inf, which is no number"),
        (b'{"q": "x", "a": true}\n', r"x\.jsonl: line 1: the answer is not a text"),
        (b'{"q": ["x"], "a": 1}\n', r"x\.jsonl: line 1: the question is not a text"),
        (b'["x", 1]\n', r"x\.jsonl: line 1: .*one object a line; a file that is one list is named \.json"),
        (b'{"q": "\xff", "a": 1}\n', r"x\.jsonl: line 1: not UTF-8 at byte 7"),
        (b'{"q": "x", "a": 1}\r{"q": "\xed\xa0\x80", "a": 1}', r"x\.jsonl: line 2: not UTF-8 at byte 7"),
        (b'{"q": "\\ud800", "a": 1}\n', r"x\.jsonl: line 1: the question holds half a character"),
        (b"[" * 100_000, r"x\.jsonl: line 1: not valid JSON \(too deep\)"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path, content, message):
    (tmp_path / "x.jsonl").write_bytes(content)
    with pytest.raises(sources.SourceError, match=message) as fault:
        fetched(own(tmp_path / "x.jsonl"), tmp_path)
    assert "\n" not in str(fault.value)


def test_other_bad_files(tmp_path):
    with pytest.raises(sources.SourceError, match=r"none\.jsonl: no such file"):
        fetched(own(tmp_path / "none.jsonl"), tmp_path)
    with pytest.raises(sources.SourceError, match="data_dir=PATH"):
        fetched({"name": "gsm8k_test", "source": "local"})
    (tmp_path / "x.csv").write_text("q,a\n", encoding="utf-8")
    with pytest.raises(sources.SourceError, match=r"must end in \.jsonl, \.json or \.parquet"):
        fetched(own(tmp_path / "x.csv"), tmp_path)
    (tmp_path / "x.json").write_text('{"q": 1}', encoding="utf-8")
    with pytest.raises(sources.SourceError, match="one list of objects"):
        fetched(own(tmp_path / "x.json"), tmp_path)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(sources.SourceError, match="not a readable parquet file"):
        fetched(own(tmp_path / "x.parquet"), tmp_path)


def test_a_changed_file_is_refused(tmp_path):
    path = written(tmp_path / "x.jsonl", [{"q": "x", "a": 1}])
    assert fetched(own(path, sha256=tables.file_sha256(path)), tmp_path)
    with pytest.raises(sources.SourceError, match=r"x\.jsonl: the file has changed"):
        fetched(own(path, sha256="0" * 64), tmp_path)


def test_without_a_hub_it_fails_at_once_and_says_what_to_set(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    start = time.perf_counter()
    with pytest.raises(sources.SourceError, match=r"HF_ENDPOINT.*HF_HOME.*gsm8k_test\.jsonl") as fault:
        fetched({"name": "gsm8k_test", "source": "hub"})
    assert "\n" not in str(fault.value) and time.perf_counter() - start < 10


def test_rows_of_another_revision_in_the_cache_are_not_taken(tmp_path):
    """`datasets` itself takes any revision that it finds where the hub does not answer."""
    script = f"""
import json, shutil
from pathlib import Path
import datasets
from workflow_scripts.benchmarks import sources
Path("x.jsonl").write_text(json.dumps({{"question": "1 + 1 ?", "answer": "#### 2"}}))
made = Path(datasets.load_dataset("json", data_files="x.jsonl", split="train").cache_files[0]["filename"])
cached = Path(datasets.config.HF_DATASETS_CACHE) / "openai___gsm8k" / "main" / "0.0.0" / "{"a" * 40}"
shutil.copytree(made.parent, cached)
(cached / made.name).rename(cached / "gsm8k-train.arrow")
info = json.loads((cached / "dataset_info.json").read_text()) | {{"dataset_name": "gsm8k", "config_name": "main"}}
(cached / "dataset_info.json").write_text(json.dumps(info))
place = {{"name": "gsm8k_train", "source": "hub", "hub_split": "train", "revision": "{"a" * 40}"}}
print(sources.fetch(place, None)[0][0]["answer"])
try:
    sources.fetch(place | {{"revision": "{"b" * 40}"}}, None)
except sources.SourceError as error:
    print(error)
"""
    environment = os.environ | {
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer, error = done.stdout.splitlines()
    assert answer == "2"
    assert "the cache holds another revision" in error


def test_the_hub_is_asked_for_the_pinned_rows(monkeypatch):
    import datasets

    asked = []

    def load(path: str, config: str | None, *, split: str, revision: str) -> datasets.Dataset:
        asked.append((path, config, split, revision))
        return datasets.Dataset.from_list(
            [{"question": "How many?", "answer": "1,000 and 34\n#### 1,034", "q": "Q", "a": 7}]
        )

    monkeypatch.setattr(datasets, "load_dataset", load)
    place = benchmarks.problem_set("gsm8k_test").hub
    assert fetched({"name": "gsm8k", "split": "test", "source": "hub"})[0]["answer"] == "1034"
    assert (
        fetched({"name": "gsm8k_test", "source": "hub", "revision": "r", "split": "x"})[0]["benchmark"] == "gsm8k_test"
    )
    fields = {"question": "q", "answer": "a"}
    mine = fetched({"name": "own", "source": "hub", "path": "me/own", "revision": "r", "config": "c", "fields": fields})
    assert (mine[0]["question"], mine[0]["answer"], mine[0]["benchmark"]) == ("Q", "7", "own")
    assert asked == [
        (place.path, "main", "test", place.revision),
        (place.path, "main", "x", "r"),
        ("me/own", "c", "train", "r"),
    ]


def test_an_endpoint_that_does_not_answer_counts_as_offline(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert not sources._online()


def test_fetch_stages_write_rows_and_their_source(tmp_path):
    assert fetch_train_set.main is fetch_benchmark.main
    entry = {"name": "word_problems_train", "source": "generated", "rows": 30, "seed": 3}
    fetch_train_set.main(stage_job(tmp_path, {"set": entry}, {}, "problems"))
    path = tmp_path / "problems.parquet"
    first = path.read_bytes()
    rows = tables.read(path, tables.PROBLEMS).to_pylist()
    assert [row["question"] for row in rows] == questions(word_problems.generate("train", 30, 3))
    assert {row["benchmark"] for row in rows} == {"word_problems_train"} and {row["difficulty"] for row in rows} == {
        1,
        2,
        3,
    }
    assert tables.provenance(path)["source"]["rows"] == 30
    fetch_train_set.main(stage_job(tmp_path, {"set": entry}, {}, "problems"))
    assert path.read_bytes() == first
    job = stage_job(tmp_path, {"set": own(tmp_path / "none.jsonl")}, {}, "problems", {"data_dir": str(tmp_path)})
    with pytest.raises(UserError, match=r"none\.jsonl: no such file"):
        fetch_benchmark.main(job)
