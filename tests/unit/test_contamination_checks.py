"""What the report says of the positive control of the search for copies."""

import pytest
from problem_files import stage_job

from workflow_scripts import tables
from workflow_scripts.decontamination import overlap
from workflow_scripts.report import findings, warnings
from workflow_scripts.stages import check_contamination


def planted(kind: str, count: int, lost: int = 0) -> list[dict]:
    return [
        {"benchmark": "mine", "kind": kind, "holdout_problem_id": str(i), "other_problem_id": str(i),
         "caught": i >= lost, "removed": False} for i in range(count)
    ]  # fmt: skip


def check(rows: list[dict], problems: int) -> tuple[str, str]:
    (row,) = findings.contamination_checks(rows, {"mine": problems})
    warned = any("mine" in line for line in warnings.warnings([], [], [], [row]))
    assert warned is (row["verdict"] != "pass")
    return row["verdict"], row["message"]


def test_problems_that_cannot_be_compared_are_named():
    assert check(planted("control_spacing", 100), 100)[0] == "pass"
    verdict, message = check(planted("control_spacing", 98), 100)
    assert verdict == "warn" and "2 problems without words and numbers" in message


@pytest.mark.parametrize("kind", ["control_sentence", "control_numbers"])
def test_missed_copies_that_may_be_missed_are_counted_and_warn_above_5_percent(kind):
    spaced = planted("control_spacing", 100)
    for lost, verdict in ((0, "pass"), (5, "pass"), (6, "warn"), (100, "warn")):
        said = check([*spaced, *planted(kind, 100, lost)], 100)
        assert said[0] == verdict
        assert (f"{200 - lost} of 200 planted copies found" in said[1]) and (f"{lost} of 100" in said[1]) is (lost > 0)


@pytest.mark.parametrize("kind", ["control_spacing", "control_words", "control_clause"])
def test_one_missed_copy_of_the_others_fails(kind):
    assert check(planted(kind, 100, 1), 100)[0] == "fail"


SPACED = [
    "철수는 사과 12개를 가지고 있습니다. 그는 5개를 먹었습니다. 사과는 몇 개 남았습니까?",
    "สมชายมีแอปเปิ้ล 12 ผล เขากินไป 5 ผล แล้วซื้อมาอีก 7 ผล ตอนนี้เขามีแอปเปิ้ลกี่ผล",
    "小明有12个苹果，小红有7个苹果，小刚有5个苹果，他们一共花了30元，每人分到8个，还剩多少个苹果？",
]


@pytest.mark.parametrize("item", SPACED)
def test_a_space_more_or_less_changes_nothing_where_spaces_vary(item):
    index = overlap.Holdout([item])
    inside = [i for i in range(1, len(item)) if item[i - 1 : i + 1].isalpha()]
    assert len(inside) > 10
    others = [f"{item[:i]} {item[i:]}" for i in inside] + [item.replace(" ", "")]
    found = index.pairs(others)
    removed = set(found.other[found.kind < len(overlap.REMOVED_KINDS)].tolist())
    assert removed == set(range(len(others)))


def test_a_benchmark_in_which_nothing_can_be_searched_warns():
    rows = findings.contamination_checks(planted("control_spacing", 3), {"mine": 3, "blank": 2}, ["blank"])
    said = {row["message"].partition(":")[0]: row["verdict"] for row in rows}
    assert said == {"blank": "warn", "mine": "pass"}
    assert any("blank: no problem has words" in line for line in warnings.warnings([], [], [], rows))


def test_the_search_of_such_a_benchmark_leaves_no_row(tmp_path):
    texts = {"blank": ["?!", "→ ←"], "mine": ["Tom has 3 apples and buys 4 more, how many has he now?"]}
    for name, questions in texts.items():
        rows = [
            {
                "problem_id": f"{name}{n}",
                "benchmark": name,
                "row": n,
                "question": text,
                "answer": "1",
                "difficulty": None,
            }
            for n, text in enumerate(questions)
        ]
        tables.write(tmp_path / f"{name}.parquet", tables.PROBLEMS, rows, {})
    files = {"holdout": [tmp_path / "blank.parquet"], "train": [tmp_path / "mine.parquet"]}
    check_contamination.main(stage_job(tmp_path, {"benchmark": "blank"}, files, "contamination"))
    assert tables.read(tmp_path / "contamination.parquet", tables.CONTAMINATION).num_rows == 0
