"""Stored rollouts graded again by the grader of the code: what would change, what cannot be known."""

from pathlib import Path
from typing import Any

import pytest

from workflow_scripts import tables
from workflow_scripts.errors import UserError
from workflow_scripts.grading import exact_answer
from workflow_scripts.job import Job
from workflow_scripts.report import findings
from workflow_scripts.stages import reward_again

OWN = "rewards.mine:score"


def rollout(place: int, text: str | None, status: str | None, problem: str = "p7", truncated: bool = False) -> dict:
    """A row of rollouts, whose reference answer is 7 unless said."""
    return {"batch": place // 64, "prompt_position": 0, "rollout": place % 64, "problem_id": problem, "reward": 0.0,
            "status": status, "truncated": truncated, "completion": text}  # fmt: skip


def again(root: Path, runs: dict[str, list[list[dict]]], **rewards: str) -> dict[tuple[str, int], dict[str, Any]]:
    """(arm, seed) -> its row, of runs with these rollouts."""
    seeds = {arm: list(range(len(found))) for arm, found in runs.items()}
    for arm, found in runs.items():
        for seed, rows in enumerate(found):
            tables.write(root / f"runs/{arm}/seed-{seed}/rollouts.parquet", tables.ROLLOUTS, rows, {})
    answers = [{"problem_id": f"p{n}", "answer": str(n)} for n in (7, 8)]
    tables.write(root / "train.parquet", tables.PROBLEMS, answers, {})
    settings = {"runs": seeds, "rewards": dict.fromkeys(runs, "exact_answer") | rewards, "reward_version": 3,
                "allow_missing": False}  # fmt: skip
    outputs = {"rewards": [str(root / "rewards.parquet")]}
    reward_again.main(Job(settings, {}, "c0de", root, {"train": [str(root / "train.parquet")]}, outputs, ()))
    rows = tables.read(root / "rewards.parquet", tables.REWARDS).to_pylist()
    return {(row["arm"], row["seed"]): row for row in rows}


def test_each_rollout_is_graded_against_its_own_problem_and_its_cut(tmp_path: Path) -> None:
    rows = [
        rollout(0, "#### 7", "correct"),
        rollout(1, "#### 7", "wrong"),  # would be 1
        rollout(2, "#### 7", "wrong", problem="p8"),
        rollout(3, "#### 8", "correct", problem="p8"),
        rollout(4, "#### 8", "correct"),  # would be 0
        rollout(5, "#### 7", "correct", truncated=True),  # would be 0: it may have gone on
        rollout(6, "no answer", "wrong"),  # another status, the same reward
        rollout(7, None, "correct"),
    ]
    found = again(tmp_path, {"gapo": [rows]})["gapo", 0]
    counts = {name: found[name] for name in ("rollouts", "regraded", "changed", "to_correct", "to_wrong")}
    assert counts == {"rollouts": 8, "regraded": 7, "changed": 3, "to_correct": 1, "to_wrong": 2}
    assert found["changed_share"] == 3 / 7
    assert (found["reward_version"], found["code_reward_version"], found["reason"]) == (3, 3, None)


def test_texts_read_in_parts_keep_their_rows(tmp_path: Path) -> None:
    """Every part has other statuses than the first: a part joined to the wrong rows would change rewards."""
    numbers = [7 if place % 5000 < 4500 else 3 for place in range(10_000)]
    rows = [rollout(i, f"#### {n}", "correct" if n == 7 else "wrong") for i, n in enumerate(numbers)]
    rows[9_999] |= {"status": "correct"}
    found = again(tmp_path, {"gapo": [rows]})["gapo", 0]
    assert (found["regraded"], found["to_wrong"], found["to_correct"]) == (10_000, 1, 0)


def test_what_cannot_be_graded_again_says_why(tmp_path: Path) -> None:
    some = [rollout(0, "#### 7", "correct")]
    runs = {"kept": [some, [rollout(0, None, "correct")], []], "own": [[rollout(0, "#### 7", None)]]}
    found = again(tmp_path, runs, own=OWN)
    assert found["kept", 1]["reason"] == "completions not kept (compute.keep.rollouts: false)"
    assert found["kept", 2]["reason"] == "no rollouts"
    assert (found["kept", 1]["rollouts"], found["kept", 1]["changed"]) == (1, None)
    assert (found["own", 0]["regraded"], found["own", 0]["code_reward_version"]) == (0, None)
    checks = {row["arm"]: row for row in findings.reward_checks(list(found.values()))}
    assert checks["kept"]["verdict"] == "pass"
    assert checks["kept"]["message"] == (
        "all 1 stored rewards are what the code's grader gives; of 2 of 3 runs not known: completions not kept "
        "(compute.keep.rollouts: false); no rollouts"
    )
    assert checks["own"]["verdict"] is None
    assert (
        checks["own"]["message"] == f"not known: {OWN} is the study's own function: a change of its file trains again"
    )


@pytest.mark.parametrize(
    ("version", "status", "verdict", "said"),
    [
        (3, "correct", "pass", "all 4 stored rewards are what the code's grader gives"),
        (4, "correct", "pass",
         "all 4 stored rewards are what the code's grader gives, which is of reward version 4: what was trained under "
         "3 stays valid"),
        (3, "wrong", "warn",
         "50.0 % of 4 stored rewards would be others under the code's grader, of version 3 too: 2 would be 1, 0 would "
         "be 0"),
        (4, "wrong", "warn",
         "50.0 % of 4 stored rewards would be others under reward version 4 (held to 3): 2 would be 1, 0 would be 0"),
    ],
)  # fmt: skip
def test_a_new_version_is_judged_by_what_it_changes(
    version: int, status: str, verdict: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact_answer, "REWARD_VERSION", version)
    rows = [rollout(0, "#### 7", "correct"), rollout(1, "so #### 7", status)]
    found = again(tmp_path, {"gapo": [rows, rows]})
    (check,) = findings.reward_checks(list(found.values()))
    assert (check["verdict"], check["message"]) == (verdict, said)


def test_a_problem_that_the_train_set_does_not_have_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"rollouts.parquet: problem p9 is not in .*train.parquet"):
        again(tmp_path, {"gapo": [[rollout(0, "#### 7", "correct", problem="p9")]]})
