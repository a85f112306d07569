"""What training did, update by update and in the end, against numbers worked out by hand."""

import math
from pathlib import Path

import pytest
from run_records import dynamics, mixed, reachability, record, write_run

from workflow_scripts.analysis.dynamics import read_rollouts
from workflow_scripts.report import warnings
from workflow_scripts.tables import TableError


def test_dynamics_of_a_hand_made_run(tmp_path: Path) -> None:
    moved = {"clipped_upper_tokens": 4, "sum_abs_ratio_deviation": 0.2, "mean_log_ratio": math.log(1.02),
             "sum_entropy": 13.0, "truncated": True}  # fmt: skip
    write_run(tmp_path, "fixed", 0, mixed(1) + mixed(2, **moved), [])
    rows = {(row["step"], row["group_correct"]): row for row in dynamics(tmp_path, {"fixed": [0]})}
    assert list(rows) == [(1, None), (1, 0), (1, 1), (2, None), (2, 0), (2, 1)]

    every = rows[2, None]
    assert (every["update_index"], every["rollouts"], every["positive_rollouts"], every["negative_rollouts"]) == (
        1,
        8,
        1,
        3,
    )
    expected = {
        "clipped_quadrant_1_share": 0.4, "clipped_quadrant_2_share": 0.0, "clipped_quadrant_3_share": 0.0,
        "clipped_quadrant_4_share": 0.0, "positive_tokens": 10, "negative_tokens": 30,
        "mean_abs_ratio_deviation": 0.02 / 8, "mean_entropy": (13 + 7 * 5) / 80,
        "mean_upper_width": 0.005, "mean_completion_tokens": 10.0, "truncated_share": 1 / 8, "mean_reward": 1 / 8,
        "flat_group_share": 0.5,
    }  # fmt: skip
    assert {name: every[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    # sequence ratios 1.02 and seven times 1; advantages .75, three times -.25, four times 0
    cross = 0.02 * 0.75
    assert every["ratio_advantage_correlation"] == pytest.approx(
        cross / math.sqrt(0.02**2 * 7 / 8 * (0.75**2 + 3 * 0.25**2)), rel=1e-4
    )
    assert rows[1, None]["ratio_advantage_correlation"] is None

    assert rows[2, 1]["flat_group_share"] == 0.0
    assert rows[2, 1]["clipped_quadrant_1_share"] == pytest.approx(0.4)
    assert rows[2, 0]["flat_group_share"] == 1.0
    assert rows[2, 0]["positive_rollouts"] == 0
    assert rows[2, 0]["clipped_quadrant_1_share"] is None
    assert rows[2, 0]["mean_upper_width"] is None


def test_a_group_split_over_minibatches_is_not_flat(tmp_path: Path) -> None:
    """Each update alone sees equal rewards of the group; only the batch shows that it is mixed."""
    rows = [record(step, 0, step - 1, 0.5 if step == 1 else -0.5, float(step == 1), 1) for step in (1, 2)]
    write_run(tmp_path, "fixed", 0, rows, [])
    assert [row["flat_group_share"] for row in dynamics(tmp_path, {"fixed": [0]})] == [0.0] * 4


def test_starved_and_saturated_groups_are_of_the_whole_batch(tmp_path: Path) -> None:
    """Batch 0: c = 1 and c = 0; batch 1: c = 4 of 4, its rollouts spread over two updates."""
    spread = [record(3 + i % 2, 0, i, 0.0, 1.0, 4) for i in range(4)]
    write_run(tmp_path, "fixed", 0, mixed(1) + spread, [])
    names = ("starved_group_share", "saturated_group_share", "flat_group_share")
    found = {
        (row["step"], row["group_correct"]): tuple(row[n] for n in names) for row in dynamics(tmp_path, {"fixed": [0]})
    }
    assert found == {
        (1, None): (0.5, 0.0, 0.5), (1, 0): (1.0, 0.0, 1.0), (1, 1): (0.0, 0.0, 0.0),
        (3, None): (0.0, 1.0, 1.0), (3, 4): (0.0, 1.0, 1.0), (4, None): (0.0, 1.0, 1.0), (4, 4): (0.0, 1.0, 1.0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "every", "mixed_group", "flat_group"),
    [
        ({(0, 0, 0): "a", (0, 0, 1): "a"}, 2 / 8, 2 / 4, 0.0),
        ({(0, 0, 0): "a", (0, 1, 0): "a", (1, 0, 0): "a"}, 0.0, 0.0, 0.0),  # another group, another batch
        ({(0, 1, i): "" for i in range(4)}, 4 / 8, 0.0, 1.0),
        ({(0, 0, 0): None, (0, 0, 1): None, (0, 0, 2): "a", (0, 0, 3): "a"}, 2 / 6, 1.0, 0.0),
        ({(0, 1, i): None for i in range(4)}, 0.0, 0.0, None),
    ],
)
def test_identical_rollouts(
    tmp_path: Path, texts: dict, every: float, mixed_group: float, flat_group: float | None
) -> None:
    write_run(tmp_path, "fixed", 0, mixed(1) + mixed(2) + mixed(3), [], texts)
    rows = {(row["step"], row["group_correct"]): row for row in dynamics(tmp_path, {"fixed": [0]})}
    for step in (1, 2):
        found = [rows[step, correct]["identical_rollout_share"] for correct in (None, 1, 0)]
        assert found == [pytest.approx(every), mixed_group, flat_group]
    assert rows[3, None]["identical_rollout_share"] == 0.0


def test_a_group_may_lie_across_two_parts_of_the_file(tmp_path: Path) -> None:
    """Parts of 16 384 rows: the group of rows 16 383 to 16 385 has two equal texts, one in each."""
    rows = [record(1, prompt, i, 0.0, 0.0, 0) for prompt in range(6000) for i in range(3)]
    write_run(tmp_path, "fixed", 0, rows, [], {(0, 5461, 0): "same", (0, 5461, 2): "same"})
    found = read_rollouts(str(tmp_path / "runs/fixed/seed-0/rollouts.parquet"))
    assert found["text"].sum() == 18000
    assert found.loc[found["identical"], ["prompt_position", "rollout"]].to_numpy().tolist() == [[5461, 0], [5461, 2]]


def test_missing_or_damaged_rollouts_are_named(tmp_path: Path) -> None:
    write_run(tmp_path, "fixed", 0, mixed(1), [])
    path = tmp_path / "runs/fixed/seed-0/rollouts.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:-40])
    with pytest.raises(TableError, match=r"seed-0/rollouts.parquet: not a readable parquet file"):
        dynamics(tmp_path, {"fixed": [0]})
    path.unlink()
    with pytest.raises(TableError, match=r"seed-0/rollouts.parquet: the file is missing"):
        dynamics(tmp_path, {"fixed": [0]})
    rows = dynamics(tmp_path, {"fixed": [0]}, allow_missing=True)
    assert {row["identical_rollout_share"] for row in rows} == {None}


def course_of(rewards: list[float], entropy: list[float], start: int = 1, prompts: int = 8, low: float = 0.0) -> list:
    """Two updates for each rollout batch: that share of its groups has reward 1, others `low`; entropy per token."""
    return [
        record(step, prompt, i, 0.0, 1.0 if prompt < round(share * prompts) else low, 0, sum_entropy=10 * level)
        for batch, (share, level) in enumerate(zip(rewards, entropy, strict=True))
        for step in (start + 2 * batch, start + 2 * batch + 1)
        for prompt in range(prompts)
        for i in range(2)
    ]


def course(first: float, best: float, last: float) -> list[float]:
    """Twenty batches, so that a tenth is two; the best two lie in the middle."""
    return [first] * 2 + [0.5] * 7 + [best] * 2 + [0.5] * 7 + [last] * 2


LEVEL = [0.5] * 20
FALLEN = [0.5] * 2 + [0.2] * 16 + [0.04] * 2


@pytest.mark.parametrize(
    ("rewards", "entropy", "low", "said"),
    [
        (course(0.25, 0.75, 0.75), LEVEL, 0.0, None),
        (course(0.25, 0.75, 0.75), FALLEN, 0.0, "entropy 0.04 after 0.5"),
        (course(0.25, 0.75, 0.75), [*FALLEN[:-2], 0.06, 0.06], 0.0, None),
        # all groups have SD .5, so 16 of them a standard error of .125: it must fall below .875 / 2 - .25 = .188
        (course(0.5, 0.875, 0.125), LEVEL, 0.0, "reward 0.12 after 0.88"),
        (course(0.5, 0.875, 0.25), LEVEL, 0.0, None),
        (course(0.125, 0.875, 0.125), LEVEL, 0.0, "reward 0.12 after 0.88"),  # it unlearned what it had learned
        # -1 in place of 0: from -1, where nothing is right, all lies twice as far
        (course(0.5, 0.875, 0.125), LEVEL, -1.0, "reward −0.75 after 0.75"),
        (course(0.5, 0.875, 0.25), LEVEL, -1.0, None),
        (course(0.5, 0.75, 0.0), FALLEN, 0.0, "entropy 0.04 after 0.5 and reward 0 after 0.75"),
    ],
)
def test_a_collapsed_run_is_told_from_a_healthy_one(
    tmp_path: Path, rewards: list[float], entropy: list[float], low: float, said: str | None
) -> None:
    write_run(tmp_path, "fixed", 3, course_of(rewards, entropy, low=low), [])
    row = reachability(tmp_path, {"fixed": [3]})["fixed", "collapse"]
    if said:
        assert (row["verdict"], row["value"], row["message"]) == ("warn", 1.0, f"seed 3 collapsed: {said}")
        (warning,) = warnings.warnings([], [], [row], [])
        assert warning.startswith(f"fixed seed 3 collapsed: {said}. A run that collapsed counts")
    else:
        assert (row["verdict"], row["value"]) == ("pass", 0.0)
        assert warnings.warnings([], [], [row], []) == []


def test_every_collapsed_seed_is_named_and_a_healthy_one_is_not(tmp_path: Path) -> None:
    for seed, entropy in enumerate((FALLEN, LEVEL, FALLEN)):
        write_run(tmp_path, "fixed", seed, course_of(LEVEL, entropy), [])
    row = reachability(tmp_path, {"fixed": [0, 1, 2]})["fixed", "collapse"]
    said = "collapsed: entropy 0.04 after 0.5"
    assert (row["value"], row["message"]) == (2.0, f"seed 0 {said}; seed 2 {said}")
    row = reachability(tmp_path, {"fixed": [1]})["fixed", "collapse"]
    assert row["message"] == "no run collapsed; entropy at the end at least 100.0 % of that at the beginning"


BRANCH = {"gapo": {"arm": "fixed", "step": 20}}


def test_a_branch_collapses_against_what_its_parent_was(tmp_path: Path) -> None:
    """Alone the branch is level. A tenth of its 40 updates are 4, of entropy .5; were the 20 of its parent after the
    branch counted too, a tenth were 6, of entropy .37."""
    write_run(tmp_path, "fixed", 0, course_of([0.5] * 20, [0.5] * 2 + [0.1] * 8 + [9.0] * 10), [])
    write_run(tmp_path, "gapo", 0, course_of([0.5] * 10, [0.04] * 10, start=21), [])
    runs = {"fixed": [0], "gapo": [0]}
    assert reachability(tmp_path, runs)["gapo", "collapse"]["verdict"] == "pass"
    row = reachability(tmp_path, runs, branches=BRANCH)["gapo", "collapse"]
    assert row["message"] == "seed 0 collapsed: entropy 0.04 after 0.5"


def test_what_the_parent_reached_later_is_not_the_branchs(tmp_path: Path) -> None:
    """It falls from .5 to 0, while the parent goes on to 1."""
    write_run(tmp_path, "fixed", 0, course_of([0.5] * 10 + [1.0] * 10, LEVEL, prompts=32), [])
    write_run(tmp_path, "gapo", 0, course_of([0.0] * 10, [0.5] * 10, start=21, prompts=32), [])
    row = reachability(tmp_path, {"fixed": [0], "gapo": [0]}, branches=BRANCH)["gapo", "collapse"]
    assert row["message"] == "seed 0 collapsed: reward 0 after 0.5"


@pytest.mark.parametrize(
    ("mine", "verdict", "said"),
    [
        (["aa", "bb"], "pass", "2 seeds start from fixed's weights at update 20"),
        (["aa", "cc"], "fail", "seed 1 does not start from fixed's weights at update 20"),
        (["aa", None], "pass", "1 seed starts from fixed's weights at update 20; not recorded for 1 more"),
        ([None, None], None, "branches off fixed at update 20; the weights there are not recorded"),
    ],
)
def test_a_branch_starts_from_its_parents_weights(
    tmp_path: Path, mine: list[str | None], verdict: str | None, said: str
) -> None:
    """Not from the baseline's initial ones, which both runs have in common before the branch is loaded."""
    for seed, (own, left) in enumerate(zip(mine, ("aa", "bb"), strict=True)):
        weights = {"20": left, "24": "dd"}
        write_run(tmp_path, "fixed", seed, mixed(1), [], initial_weights="00", checkpoint_weights=weights)
        write_run(tmp_path, "gapo", seed, mixed(1), [], initial_weights="00", branch_weights=own)
    found = reachability(tmp_path, {"fixed": [0, 1], "gapo": [0, 1]}, branches=BRANCH)
    row = found["gapo", "initial_weights"]
    assert (row["verdict"], row["message"]) == (verdict, said)
    assert found["fixed", "initial_weights"]["message"] == "this is the baseline"


def test_weights_of_runs_without_those_footers_are_not_recorded(tmp_path: Path) -> None:
    for arm in ("fixed", "gapo"):
        write_run(tmp_path, arm, 0, mixed(1), [], initial_weights="00")
    row = reachability(tmp_path, {"fixed": [0], "gapo": [0]}, branches=BRANCH)["gapo", "initial_weights"]
    assert row["verdict"] is None
    assert row["message"].endswith("not recorded")


def test_an_arm_is_not_compared_with_the_start_of_a_baseline_that_branches_off(tmp_path: Path) -> None:
    for arm in ("fixed", "gapo"):
        write_run(tmp_path, arm, 0, mixed(1), [], initial_weights="00")
    found = reachability(tmp_path, {"fixed": [0], "gapo": [0]}, branches={"fixed": {"arm": "gapo", "step": 2}})
    assert found["gapo", "initial_weights"]["message"] == "the baseline fixed branches off gapo"
