"""Problem sets, fetching, decontamination, the choice of train rows."""

import json
import os
import time
from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow_scripts import benchmarks, grading, tables
from workflow_scripts.benchmarks import sources, word_problems
from workflow_scripts.decontamination import controls, overlap
from workflow_scripts.decontamination.normalise import tokens
from workflow_scripts.stages import check_contamination, fetch_benchmark, fetch_train_set, select_train
from workflow_scripts.stages._command import Job, StageError

REAL = Path(os.environ.get("ARMSLENGTH_DATA") or Path(__file__).parents[2].parent / "shared" / "data")


def real(name: str) -> Path:
    path = REAL / name
    if not path.is_file():
        pytest.skip(f"{name} is not in {REAL}: set ARMSLENGTH_DATA to a folder that has it")
    return path


def fetched(entry: dict, data_dir: Path | None = None) -> list[dict]:
    return sources.fetch(entry, str(data_dir) if data_dir else None)[0]


def questions(rows: list[dict]) -> list[str]:
    return [row["question"] for row in rows]


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
        ("zzz", "allowed: gsm8k_test"),
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


def test_generation_is_fast():
    start = time.process_time()
    word_problems.generate("train", 4000, 7)
    for problem in word_problems.problems("train", 20_000, 8):
        word_problems.demonstration(problem)
    assert time.process_time() - start < 3.0  # 0.5 s alone; the machine may be shared


# --- fetching


def own(path: Path, **more: object) -> dict:
    fields = {"question": "q", "answer": "a"}
    return {"name": "own", "source": "local", "path": path.name, "fields": fields, **more}


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_an_own_set_loads_from_each_format(tmp_path):
    rows = [{"q": "How many?", "a": 14.0}, {"q": "How much?", "a": "3/4"}, {"q": "Which?", "a": 7}]
    written(tmp_path / "x.jsonl", rows)
    (tmp_path / "x.json").write_text(json.dumps(rows), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist([{**row, "a": str(row["a"])} for row in rows]), tmp_path / "x.parquet")
    (tmp_path / "bom.jsonl").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "x.jsonl").read_bytes().replace(b"\n", b"\r\n"))
    for name in ("x.jsonl", "x.json", "bom.jsonl"):
        found = fetched(own(tmp_path / name), tmp_path)
        assert [row["answer"] for row in found] == ["14", "3/4", "7"]
        assert questions(found) == ["How many?", "How much?", "Which?"]
    assert questions(fetched(own(tmp_path / "x.parquet"), tmp_path)) == ["How many?", "How much?", "Which?"]


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
        (b'{"q": "x", "a": true}\n', r"x\.jsonl: line 1: the answer is not a text"),
        (b'{"q": ["x"], "a": 1}\n', r"x\.jsonl: line 1: the question is not a text"),
        (b'["x", 1]\n', r"x\.jsonl: line 1: not in the form this set has"),
        (b'{"q": "\xff", "a": 1}\n', r"x\.jsonl: not UTF-8 at byte 7"),
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


def stage_job(
    folder: Path, settings: dict, inputs: dict[str, list[Path]], output: str, compute: dict | None = None
) -> Job:
    files = {name: [str(path) for path in paths] for name, paths in inputs.items()}
    return Job(settings, compute or {}, "code", folder, files, {output: [str(folder / f"{output}.parquet")]}, ())


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
    with pytest.raises(StageError, match=r"none\.jsonl: no such file"):
        fetch_benchmark.main(job)


# --- decontamination


def test_tokens():
    text = "Tom\u2019s  \\frac{1,234}{2}\\,km; \uff11\uff12 or 3.50?"
    assert tokens(text) == ["tom", "s", "1234", "2", "km", "12", "or", "3.50"]
    assert tokens("1,23 and 1\\,000") == ["1", "23", "and", "1000"]


words = st.lists(st.sampled_from(["a", "b", "c", "1", "2"]), max_size=12)


@given(words, words)
def test_word_similarity_is_the_textbook_lcs(first, second):
    longest = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, left in enumerate(first):
        for j, right in enumerate(second):
            longest[i + 1][j + 1] = longest[i][j] + 1 if left == right else max(longest[i][j + 1], longest[i + 1][j])
    total = len(first) + len(second)
    assert overlap.word_similarity(first, second) == (2 * longest[-1][-1] / total if total else 1.0)


def naive_coverage(other: list[str], holdout: list[str]) -> float:
    width = 8 if len(holdout) >= 15 else 5
    grams = {tuple(holdout[i : i + width]) for i in range(len(holdout) - width + 1)}
    held = {tuple(other[i : i + width]) for i in range(len(other) - width + 1)}
    return len(grams & held) / len(grams) if grams else 0.0


def naive_jaccard(other: list[str], holdout: list[str]) -> float:
    sides = []
    for side in (other, holdout):
        masked = ["#" if word[0].isdigit() else word for word in side]
        sides.append({tuple(masked[i : i + 5]) for i in range(len(masked) - 4)})
    return len(sides[0] & sides[1]) / len(sides[0] | sides[1]) if sides[0] & sides[1] else 0.0


small_words = st.sampled_from(["how", "many", "apples", "has", "tom", "3", "4", "5"])
texts = st.lists(st.lists(small_words, max_size=24).map(" ".join), max_size=6)


@given(texts, texts)
@settings(deadline=None)
def test_pairs_agree_with_the_definition(train, holdout):
    found = overlap.Holdout(holdout).pairs(train)
    pairs = {}
    for i in range(len(found.other)):
        pairs[found.other[i], found.holdout[i]] = (overlap.KINDS[found.kind[i]], found.coverage[i], found.jaccard[i])
    assert len(pairs) == len(found.other)
    for o, other_text in enumerate(train):
        for h, holdout_text in enumerate(holdout):
            other, item = tokens(other_text), tokens(holdout_text)
            coverage, jaccard = naive_coverage(other, item), naive_jaccard(other, item)
            plain = [[word for word in side if not word.isdigit()] for side in (other, item)]
            same_words = plain[0] == plain[1] and len(plain[0]) >= 8
            same_numbers = sorted(filter(str.isdigit, other)) == sorted(filter(str.isdigit, item))
            similarity = overlap.word_similarity(other, item) if same_numbers and jaccard else 0.0
            kind = next(
                (
                    name
                    for name, holds in (
                        ("exact", other_text == holdout_text),
                        ("ngram", coverage >= 0.8),
                        ("near", similarity >= 0.9),
                        ("template_twin", same_words or jaccard >= 0.8),
                        ("partial", coverage >= 0.5 or similarity >= 0.75),
                    )
                    if holds
                ),
                None,
            )
            assert pairs.get((o, h), (None,))[0] == kind
            if kind:
                assert pairs[o, h][1:] == pytest.approx((coverage, jaccard))


LONG = (
    "A farmer has {0} hens and each of the hens lays {1} eggs on every day of the week . He keeps a dozen and sells "
    "all the other eggs at the market for {2} coins each . How many coins does he earn in a week ?"
)


def kinds(train: list[str], holdout: list[str]) -> list[str]:
    return [overlap.KINDS[kind] for kind in overlap.Holdout(holdout).pairs(train).kind]


def test_a_changed_number_makes_a_twin_and_a_changed_word_a_copy():
    item = "Tom has 12 apples . He buys 5 . How many apples does he have ?"
    assert kinds([item], [item]) == ["exact"]
    assert kinds([item.lower()], [item]) == ["ngram"]
    assert kinds([item.replace("buys", "finds")], [item]) == ["near"]
    assert kinds([item.replace("12", "13")], [item]) == ["template_twin"]
    assert kinds(["Ben sells 3 pens on 4 days . What does he earn ?"], [item]) == []
    assert kinds([LONG.format(4, 5, 6).replace("sells all", "gives away")], [LONG.format(4, 5, 6)]) == ["near"]
    assert kinds([LONG.format(4, 5, 6)], [LONG.format(7, 8, 9)]) == ["template_twin"]


def test_the_block_size_changes_nothing(monkeypatch):
    train = questions(word_problems.generate("train", 90, 1))
    index = overlap.Holdout(questions(word_problems.generate("test", 60, 1)))
    whole = index.pairs(train)
    monkeypatch.setattr(overlap, "_BLOCK", 7)
    parts = index.pairs(train)
    for name in overlap.Pairs.__dataclass_fields__:
        assert getattr(whole, name).tolist() == getattr(parts, name).tolist()


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_controls_are_another_text_with_the_edits_they_promise(text):
    whole = tokens(text)
    spaced, replaced, cut = (edit(text) for edit in controls.KINDS.values())
    if spaced is not None:
        assert tokens(spaced) == whole and spaced != text
    if replaced is not None:
        changed = [(a, b) for a, b in zip(whole, tokens(replaced), strict=True) if a != b]
        assert 1 <= len(changed) <= max(1, len(whole) // 15) and not any(a[0].isdigit() for a, _ in changed)
    if cut is not None:
        assert len(whole) - len(whole) // 10 <= len(tokens(cut)) < len(whole)


def test_a_short_clause_is_cut_whole():
    text = "Ann, a nurse, has 3 red pens and 4 blue pens on her table. She gives 2 of the pens away. How many are left?"
    assert controls.clause(text) == " ".join(tokens(text.replace("Ann, ", "")))
    assert controls.clause(" ".join(["7"] * 30)) is None and controls.words("7 8 9") is None
    assert controls.spacing("What is 7?") is None


def table_of(path: Path, rows: list[dict], name: str) -> Path:
    kept, _ = sources._without_duplicates([{"difficulty": None, **row} for row in rows], name)
    tables.write(path, tables.PROBLEMS, kept, {})
    return path


def checked(folder: Path, train: Path, holdout: Path, name: str = "contamination") -> tuple[list[dict], dict]:
    job = stage_job(folder, {"benchmark": "held"}, {"train": [train], "holdout": [holdout]}, "contamination")
    job.outputs["contamination"] = [str(folder / f"{name}.parquet")]
    check_contamination.main(job)
    path = folder / f"{name}.parquet"
    return tables.read(path, tables.CONTAMINATION).to_pylist(), tables.provenance(path)


def select_job(folder: Path, twins: bool, inputs: dict[str, list[Path]]) -> Job:
    job = stage_job(folder, {"remove_template_twins": twins}, inputs, "train")
    job.outputs["train"] = [str(folder / "train_selected.parquet")]
    return job


def test_planted_copies_are_removed_and_twins_only_on_request(tmp_path):
    clean = word_problems.generate("train", 40, 5)
    held = word_problems.generate("test", 20, 5)
    question = held[0]["question"]
    planted = [question, question.upper(), "Please answer . " + question]
    digits = [word for word in question.split() if word.isdigit()]
    twin = question.replace(f" {digits[0]} ", " 77 ", 1)
    extra = [{"question": text, "answer": "1"} for text in (*planted, twin)]
    train = table_of(tmp_path / "train.parquet", clean + extra, "train")
    holdout = table_of(tmp_path / "holdout.parquet", held, "held")
    rows, footer = checked(tmp_path, train, holdout)
    removed = {row["other_question"] for row in rows if row["removed"]}
    assert set(planted) <= removed and twin not in removed
    assert {row["kind"] for row in rows if row["other_question"] == question and row["removed"]} >= {"exact"}
    assert {row["kind"] for row in rows if row["other_question"] == twin} == {"template_twin"}
    assert all((row["caught"] is not None) == row["kind"].startswith("control_") for row in rows)
    for kind in controls.KINDS:
        shown = [row for row in rows if row["kind"] == kind]
        assert footer["controls"][kind] == {
            "planted": len(shown),
            "caught": len(shown),
            "not_expressible": 20 - len(shown),
        }
        assert shown and all(row["caught"] and not row["removed"] for row in shown)
    assert footer["controls"]["holdout_items_under_30_tokens"] == 20
    assert footer["pairs"]["exact"] == 1

    audit = [
        {"benchmark": "train", "status": "unparsed", "dropped": row["row"] == 0, "reason": None}
        | {key: row[key] for key in ("problem_id", "row", "answer")}
        for row in tables.read(train, tables.PROBLEMS).to_pylist()
    ]
    tables.write(tmp_path / "audit.parquet", tables.GOLD_AUDIT, audit, {})
    inputs = {
        "candidates": [train],
        "audit": [tmp_path / "audit.parquet"],
        "contamination": [tmp_path / "contamination.parquet"],
    }
    kept = {}
    for twins in (False, True):
        select_train.main(select_job(tmp_path, twins, inputs))
        kept[twins] = tables.read(tmp_path / "train_selected.parquet", tables.PROBLEMS).to_pylist()
    order = [row["question"] for row in tables.read(train, tables.PROBLEMS).to_pylist()]
    expected = [text for text in order[1:] if text not in removed]
    assert questions(kept[False]) == expected and twin in expected
    twins = {row["other_question"] for row in rows if row["kind"] == "template_twin"}
    assert questions(kept[True]) == [text for text in expected if text not in twins]


def test_select_train_with_no_row_left_says_why(tmp_path):
    rows = word_problems.generate("test", 5, 5)
    train = table_of(tmp_path / "train.parquet", rows, "train")
    checked(tmp_path, train, table_of(tmp_path / "holdout.parquet", rows, "held"))
    tables.write(tmp_path / "audit.parquet", tables.GOLD_AUDIT, [], {})
    inputs = {
        "candidates": [train],
        "audit": [tmp_path / "audit.parquet"],
        "contamination": [tmp_path / "contamination.parquet"],
    }
    with pytest.raises(StageError, match="no train row is left of 5: 0 gold, 5 contaminated"):
        select_train.main(select_job(tmp_path, False, inputs))


def test_a_control_that_is_not_caught_fails_the_stage(tmp_path, monkeypatch):
    holdout = table_of(tmp_path / "holdout.parquet", word_problems.generate("test", 20, 5), "held")
    monkeypatch.setattr(overlap, "_COVERAGE", 1.1)
    monkeypatch.setattr(overlap, "_SIMILARITY", 1.1)
    with pytest.raises(StageError, match=r"held: the positive control failed: .* copies not found"):
        checked(tmp_path, holdout, holdout)


def test_lists_stay_short_but_name_every_row_to_remove(tmp_path):
    train = table_of(tmp_path / "train.parquet", word_problems.generate("train", 1500, 7), "train")
    holdout = table_of(tmp_path / "holdout.parquet", word_problems.generate("test", 300, 7), "held")
    rows, footer = checked(tmp_path, train, holdout)
    pairs = overlap.Holdout(questions(tables.read(holdout, tables.PROBLEMS).to_pylist())).pairs(
        questions(tables.read(train, tables.PROBLEMS).to_pylist())
    )
    ids = tables.read(train, tables.PROBLEMS)["problem_id"].to_pylist()
    for kind in overlap.KINDS:
        real_pairs = pairs.take(pairs.kind == overlap.KINDS.index(kind))
        listed = [row for row in rows if row["kind"] == kind]
        assert footer["pairs"][kind] == len(real_pairs.other) >= len(listed)
        assert len({row["holdout_problem_id"] for row in listed}) == len(set(real_pairs.holdout.tolist()))
        if kind != "partial":
            assert {row["other_problem_id"] for row in listed} == {ids[o] for o in real_pairs.other}
    assert footer["pairs"]["template_twin"] > 600 and len(rows) < 300 * 3 * 4 + 1500
    again, _ = checked(tmp_path, train, holdout, "again")
    assert again == rows


def test_duplicates_within_the_holdout_are_listed(tmp_path):
    held = [{"question": LONG.format(4, 5, 6), "answer": "1"}, {"question": LONG.format(4, 5, 6) + " !", "answer": "1"}]
    holdout = table_of(tmp_path / "holdout.parquet", held, "held")
    train = table_of(tmp_path / "train.parquet", word_problems.generate("train", 5, 5), "train")
    found = [row for row in checked(tmp_path, train, holdout)[0] if row["kind"] == "holdout_duplicate"]
    assert len(found) == 1 and not found[0]["removed"]


# --- the default study, and real files


def test_the_default_study_keeps_its_train_rows():
    train, held = (questions(word_problems.generate(*part)) for part in (("train", 4000, 7), ("test",)))
    start = time.process_time()
    pairs = overlap.Holdout(held).pairs(train)
    assert time.process_time() - start < 3.0
    removed = set(pairs.other[pairs.kind < len(overlap.REMOVED_KINDS)].tolist())
    assert 0 < len(removed) < 0.08 * len(train)


@pytest.mark.parametrize(
    ("name", "rows", "duplicates"),
    [
        ("gsm8k_train", 7473, 0),
        ("gsm8k_test", 1319, 0),
        ("mawps_singleop", 562, 31),
        ("mawps_addsub", 395, 0),
        ("svamp", 1000, 0),
    ],
)
def test_real_files_are_read_and_every_gold_grades_itself(name, rows, duplicates):
    real(f"{name}.jsonl")
    found, record = sources.fetch({"name": name, "source": "local"}, str(REAL))
    assert (record["rows"], len(record["duplicates"]), len(found)) == (rows, duplicates, rows - duplicates)
    assert benchmarks.problem_set(name).size == rows
    grade = grading.grader("exact_answer")
    assert all(grade(f"#### {row['answer']}", row["answer"], False).status == "correct" for row in found)


def test_gsm8k_train_holds_no_test_item():
    real("gsm8k_test.jsonl")
    train, held = (questions(fetched({"name": f"gsm8k_{part}", "source": "local"}, REAL)) for part in ("train", "test"))
    start = time.process_time()
    assert Counter(kinds(train, held)) == {"template_twin": 2}
    assert time.process_time() - start < 5.0


def test_mawps_parts_have_nothing_in_common():
    real("mawps_addsub.jsonl")
    first, second = (
        questions(fetched({"name": f"mawps_{part}", "source": "local"}, REAL)) for part in ("singleop", "addsub")
    )
    assert kinds(first, second) == []


def test_controls_are_caught_on_real_problems(tmp_path):
    real("gsm8k_test.jsonl")
    rows = fetched({"name": "gsm8k_test", "source": "local"}, REAL)
    tables.write(tmp_path / "holdout.parquet", tables.PROBLEMS, rows, {})
    train = table_of(tmp_path / "train.parquet", word_problems.generate("train", 5, 5), "train")
    _, footer = checked(tmp_path, train, tmp_path / "holdout.parquet")
    for kind in controls.KINDS:
        assert footer["controls"][kind] == {"planted": 1319, "caught": 1319, "not_expressible": 0}
