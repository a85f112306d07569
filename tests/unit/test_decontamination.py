"""Decontamination, and the choice of train rows."""

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problem_files import REAL, fetched, questions, real, stage_job

from workflow_scripts import benchmarks, tables
from workflow_scripts.benchmarks import sources, word_problems
from workflow_scripts.decontamination import controls, overlap
from workflow_scripts.decontamination.normalise import tokens
from workflow_scripts.errors import UserError
from workflow_scripts.job import Job
from workflow_scripts.stages import check_contamination, select_train


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
                        ("template_twin", same_words or (jaccard >= 0.8 and len(plain[1]) >= 8)),
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
    assert kinds(["Simplify 1 + 2 + 3 + 4 + 5"], [r"Simplify \sqrt{6} - 7 - 8 - 9 - 3"]) == []  # too few words to tell
    assert kinds([LONG.format(4, 5, 6).replace("sells all", "gives away")], [LONG.format(4, 5, 6)]) == ["near"]
    assert kinds([LONG.format(4, 5, 6)], [LONG.format(7, 8, 9)]) == ["template_twin"]


CHINESE = "小明有12个苹果，小红有7个苹果，小刚有5个苹果，他们一共花了30元，每人分到8个，还剩多少个苹果？"
OTHER_CHINESE = "一列火车长12节车厢，7点出发，5小时后到站，票价30元，全程停8站，请问平均每站相隔多远？"


def test_problems_of_every_script_are_found_and_unrelated_ones_are_not():
    for item in (
        CHINESE,
        "りんごが12個あります。太郎は5個食べて、花子は3個食べました。残りは何個ですか。",
        "철수는 사과 12개를 가지고 있습니다. 그는 5개를 먹었습니다. 사과는 몇 개 남았습니까?",
        "У Маши было 12 яблок, а у Пети 7 груш. Она съела 5 яблок. Сколько яблок осталось у Маши?",
        "مع أحمد ١٢ تفاحة وأكل منها ٥ تفاحات ثم اشترى ٧ تفاحات أخرى. كم تفاحة معه الآن؟",
        "राम के पास १२ सेब हैं और उसने ५ सेब खा लिए। फिर उसने ७ सेब और खरीदे। अब उसके पास कितने सेब हैं?",
        "สมชายมีแอปเปิ้ล 12 ผล เขากินไป 5 ผล แล้วซื้อมาอีก 7 ผล ตอนนี้เขามีแอปเปิ้ลกี่ผล",
    ):
        assert kinds([item], [item]) == ["exact"]
        place = next(i for i in range(len(item) // 2, len(item)) if item[i].isalpha() and item[i - 1].isalpha())
        if item in (CHINESE,) or "個" in item:  # a space more inside a word of a script without spaces
            assert kinds([f"{item[:place]} {item[place:]}"], [item]) == ["ngram"]
        assert kinds([item.replace("?", " ?").replace("12", "１２").replace("।", " ।") + " "], [item])[0] in (
            "exact",
            "ngram",
            "near",
        )
    assert kinds([OTHER_CHINESE], [CHINESE]) == []
    assert kinds([CHINESE.replace("30元", "31元")], [CHINESE]) == ["template_twin"]


def test_tokens_of_every_script():
    assert tokens("苹果 12个") == ["苹", "果", "12", "个"]
    assert tokens("１２ яблок, ёлка") == ["12", "яблок", "ёлка"]
    assert tokens("cafe\u0301 na\u00efve Straße") == ["café", "naïve", "strasse"]
    assert tokens("१२ सेब") == ["12", "सेब"] and tokens("١٢ تفاحة") == ["12", "تفاحة"]


def test_a_moved_sentence_and_numbers_in_words_are_found():
    item = "Tom has 12 red apples in a basket. He buys 5 green ones at the market. How many apples does Tom have now?"
    moved = "He buys 5 green ones at the market. How many apples does Tom have now? Tom has 12 red apples in a basket."
    worded = item.replace("12", "twelve").replace("5", "five")
    assert set(kinds([moved, worded], [item])) <= set(overlap.REMOVED_KINDS)
    assert len(kinds([moved, worded], [item])) == 2
    assert kinds([item.replace("12", "thirteen")], [item]) == kinds([item.replace("12", "13")], [item])
    assert kinds([item.replace("has 12", "buys 5").replace("buys 5 green", "has 12 green")], [item]) == ["partial"]


def test_short_items_are_equal_but_for_punctuation_and_differ_in_operators():
    assert kinds(["what is 7 + 8"], ["What is 7 + 8?"]) == ["exact"]
    assert kinds(["What is 7 - 8?"], ["What is 7 + 8?"]) == []
    assert kinds(["Find $2^3$."], ["Find $2 \\cdot 3$."]) == []


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
    spaced, replaced, cut = (controls.KINDS[kind](text) for kind in controls.MUST_BE_FOUND)
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
    assert controls.spacing("?!") is None


def table_of(path: Path, rows: list[dict], name: str) -> Path:
    placed = [(number, "", {"difficulty": None, **row}) for number, row in enumerate(rows)]
    kept, _ = sources._collected(placed, name)
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
    with pytest.raises(UserError, match="no train row is left of 5: 0 gold, 5 contaminated"):
        select_train.main(select_job(tmp_path, False, inputs))


def test_a_control_that_is_not_caught_fails_the_stage(tmp_path, monkeypatch):
    holdout = table_of(tmp_path / "holdout.parquet", word_problems.generate("test", 20, 5), "held")
    monkeypatch.setattr(overlap, "_COVERAGE", 1.1)
    monkeypatch.setattr(overlap, "_SIMILARITY", 1.1)
    with pytest.raises(UserError, match=r"held: the positive control failed: .* copies not found"):
        checked(tmp_path, holdout, holdout)


def test_lists_stay_short_but_name_every_row_to_remove(tmp_path, monkeypatch):
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
    monkeypatch.setattr(tables, "parts", partial(tables.parts, rows=400))
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
    pairs = overlap.Holdout(held).pairs(train)
    removed = set(pairs.other[pairs.kind < len(overlap.REMOVED_KINDS)].tolist())
    assert len(removed) == 228


@pytest.mark.parametrize(
    ("train", "holdout", "pairs", "removed"),
    [
        ("gsm8k_train", "gsm8k_test", {"template_twin": 2}, 0),
        ("deepscaler_aime_train", "math500", {"exact": 1, "ngram": 7, "near": 1, "partial": 1}, 9),
        ("deepscaler_math_train", "math500", {"ngram": 14, "near": 3, "template_twin": 96, "partial": 31}, 17),
        ("deepscaler_math_train", "olympiadbench", {"ngram": 2}, 2),
        *(("deepscaler_aime_train", holdout, {}, 0) for holdout in ("aime24", "aime25", "amc23", "minerva_math")),
    ],
)
def test_real_sets_have_this_much_in_common_and_every_control_is_caught(train, holdout, pairs, removed, tmp_path):
    paths = []
    for name in (train, holdout):
        real(str(benchmarks.problem_set(name).file))
        paths.append(tmp_path / f"{name}.parquet")
        tables.write(paths[-1], tables.PROBLEMS, fetched({"name": name, "source": "local"}, REAL), {})
    rows, footer = checked(tmp_path, *paths)
    assert footer["pairs"] == dict.fromkeys(overlap.KINDS, 0) | pairs
    assert len({row["other_problem_id"] for row in rows if row["removed"]}) == removed
    for kind in controls.KINDS:
        found = footer["controls"][kind]
        if kind in controls.MUST_BE_FOUND:
            assert found["planted"] == found["caught"] >= 0.9 * benchmarks.problem_set(holdout).size
        assert found["caught"] == found["planted"]
        assert found["planted"] + found["not_expressible"] == benchmarks.problem_set(holdout).size


def test_mawps_parts_have_nothing_in_common():
    real("mawps_addsub.jsonl")
    first, second = (
        questions(fetched({"name": f"mawps_{part}", "source": "local"}, REAL)) for part in ("singleop", "addsub")
    )
    assert kinds(first, second) == []
