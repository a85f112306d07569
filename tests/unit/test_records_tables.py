"""Tables made from training's records, against numbers worked out by hand."""

import math
from pathlib import Path

import pytest
from run_records import GAPO, GAPO_TOKEN, SEQUENCE, TOKEN, dynamics, job, mixed, reachability, record, write_run

from workflow_scripts import tables
from workflow_scripts.stages import list_runs
from workflow_scripts.tables import TableError


def test_missing_runs_are_left_out_only_when_allowed(tmp_path: Path) -> None:
    write_run(tmp_path, "fixed", 0, mixed(1), [])
    assert {row["seed"] for row in dynamics(tmp_path, {"fixed": [0, 1]}, allow_missing=True)} == {0}
    with pytest.raises(TableError, match=r"seed-1/rollouts.parquet: the file is missing"):
        dynamics(tmp_path, {"fixed": [0, 1]})


def test_a_truncated_record_is_named(tmp_path: Path) -> None:
    write_run(tmp_path, "fixed", 0, mixed(1), [])
    path = tmp_path / "runs" / "fixed" / "seed-0" / "rollout_updates.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(TableError, match=r"seed-0/rollout_updates.parquet: not a readable parquet file"):
        dynamics(tmp_path, {"fixed": [0]})
    with pytest.raises(TableError, match=r"seed-0/rollout_updates.parquet: not a readable parquet file"):
        reachability(tmp_path, {"fixed": [0]})


def test_decisive_tokens_with_the_sequence_ratio(tmp_path: Path) -> None:
    """c = 3 of 4: GAPO's upper width is 3e-3 + 2e-3 / 3 = 3.67e-3, the fixed one 5e-3.

    A ratio of 1.004 lies between them: its 10 of the 40 tokens at update index 1 are decisive. 1.0045 on a negative
    rollout, 1.006 (clipped by both), 1.003 (by neither) and update index 0 are not.
    """
    for arm, ceiling in (("fixed", 1.005), ("gapo", 1.00367)):
        rows = [
            record(step, 0, i, 0.25 if i < 3 else -0.75, float(i < 3), 3, mean_log_ratio=math.log(ratio),
                   clipped_upper_tokens=10 * (i < 3 and ratio > ceiling))
            for step in (1, 2)
            for i, ratio in enumerate((1.004, 1.006, 1.003, 1.0045))
        ]  # fmt: skip
        write_run(tmp_path, arm, 0, rows, [])
    found = reachability(tmp_path, {"fixed": [0], "gapo": [0]})
    row = found["gapo", "decisive_tokens"]
    assert (row["verdict"], row["value"]) == ("pass", 0.25)
    assert "25.0 %" in row["message"]
    assert found["fixed", "decisive_tokens"]["verdict"] is None


def test_decisive_tokens_with_the_token_ratio(tmp_path: Path) -> None:
    """c = 3 of 4: GAPO's upper width is .2 + .08 / 3 = .2267, the fixed one .28; 1.25 lies between."""
    ratios = {(0, 2): 1.25, (0, 3): 1.2, (1, 0): 1.3, (3, 1): 1.25, (1, 9): 1.24}  # (rollout, position)
    tail = [
        {"step": step, "prompt_position": 0, "rollout": rollout, "position": position, "log_ratio": math.log(ratio),
         "old_log_prob": -1.0}
        for step in (1, 2) for (rollout, position), ratio in sorted(ratios.items())
    ]  # fmt: skip
    for arm, ceiling in (("fixed", 1.28), ("gapo", 1.2267)):
        above = [sum(at == i < 3 and ratio > ceiling for (at, _), ratio in ratios.items()) for i in range(4)]
        rows = [
            record(step, 0, i, 0.25 if i < 3 else -0.75, float(i < 3), 3, clipped_upper_tokens=above[i])
            for step in (1, 2)
            for i in range(4)
        ]
        write_run(tmp_path, arm, 0, rows, tail)
    objectives = {"fixed": TOKEN, "gapo": GAPO_TOKEN}
    found = reachability(tmp_path, {"fixed": [0], "gapo": [0]}, objectives=objectives)
    assert found["gapo", "decisive_tokens"]["value"] == pytest.approx(2 / 40)

    narrow = {"fixed": TOKEN | {"eps_high": 0.01}, "gapo": GAPO_TOKEN}
    row = reachability(tmp_path, {"fixed": [0], "gapo": [0]}, objectives=narrow)["gapo", "decisive_tokens"]
    assert row["verdict"] is None
    assert row["value"] is None
    assert row["message"].startswith("cannot be determined: ppo has a bound within 0.015 of 1")

    # a run whose records do not give back its own clip says nothing of another one's
    rows[5] |= {"clipped_upper_tokens": rows[5]["clipped_upper_tokens"] + 1}
    write_run(tmp_path, "gapo", 0, rows, tail)
    row = reachability(tmp_path, {"fixed": [0], "gapo": [0]}, objectives=objectives)["gapo", "decisive_tokens"]
    said = (
        "cannot be determined: the records do not reproduce the run's own clip policy, gapo: training clipped 4 tokens"
    )
    assert (row["verdict"], row["value"]) == (None, None) and row["message"].startswith(said)


def test_dcpo_is_judged_by_the_probability_of_each_token(tmp_path: Path) -> None:
    """At q = e^-3 its upper bound is .5 + .5 sqrt(1 + .8 e^3) = 2.57, at q = 1 it is 1.17; ppo's is 1.28."""
    rows = [record(step, 0, i, 0.25 if i < 3 else -0.75, float(i < 3), 3) for step in (1, 2) for i in range(4)]
    tail = [
        {"step": 2, "prompt_position": 0, "rollout": 0, "position": i, "log_ratio": math.log(1.22), "old_log_prob": q}
        for i, q in enumerate((0.0, -3.0))
    ]
    write_run(tmp_path, "fixed", 0, rows, tail)
    rows[4] |= {"clipped_upper_tokens": 1}
    write_run(tmp_path, "dcpo", 0, rows, tail)
    dcpo = {"ratio": "token", "surrogate": "clipped", "bounds": "dcpo", "eps_low": 0.16, "eps_high": 0.2}
    found = reachability(
        tmp_path,
        {"fixed": [0], "dcpo": [0]},
        objectives={"fixed": TOKEN, "dcpo": dcpo},
        differs_only_in_bounds=["dcpo"],
    )
    assert found["dcpo", "decisive_tokens"]["value"] == pytest.approx(1 / 40)


@pytest.mark.parametrize(
    ("objective", "only_bounds", "said"),
    [
        (SEQUENCE, [], "same objective as fixed"),
        (GAPO, [], "differs from fixed in more than its bounds"),
        (GAPO | {"surrogate": "cispo"}, ["gapo"], "differs from fixed in more than its bounds"),
    ],
)
def test_decisive_tokens_are_null_where_undefined(
    tmp_path: Path, objective: dict, only_bounds: list[str], said: str
) -> None:
    for arm in ("fixed", "gapo"):
        write_run(tmp_path, arm, 0, mixed(1) + mixed(2), [])
    objectives = {"fixed": SEQUENCE, "gapo": objective}
    found = reachability(
        tmp_path, {"fixed": [0], "gapo": [0]}, objectives=objectives, differs_only_in_bounds=only_bounds
    )
    row = found["gapo", "decisive_tokens"]
    assert (row["verdict"], row["value"], row["message"]) == (None, None, said)


def test_no_decisive_token_says_that_nothing_could_have_shown(tmp_path: Path) -> None:
    for arm in ("fixed", "gapo"):
        write_run(tmp_path, arm, 0, mixed(1) + mixed(2), [])
    row = reachability(tmp_path, {"fixed": [0], "gapo": [0]})["gapo", "decisive_tokens"]
    assert (row["verdict"], row["value"]) == ("fail", 0.0)
    assert row["message"].endswith("the comparison could not have shown anything")


def update(step: int, share: float, tokens: int, **more: int) -> list[dict]:
    """A correct and a wrong rollout; this share of the correct one's tokens is clipped above."""
    return [
        record(
            step, 0, i, a, r, 1, completion_tokens=tokens, clipped_upper_tokens=round(share * tokens) * (i == 0), **more
        )
        for i, (a, r) in enumerate(((0.5, 1.0), (-0.5, 0.0)))
    ]


@pytest.mark.parametrize("tokens", [100, 100_000])  # no verdict depends on the length of completions
@pytest.mark.parametrize(
    ("first", "later", "noise", "live"),
    [
        (0, 0.4, "pass", "pass"),
        (0, 0, "warn", "fail"),
        (0.02, 0.2, "pass", "pass"),
        (0.04, 0.2, "warn", "pass"),
        (0.1, 0.2, "fail", "fail"),
        (0.4, 0.4, "fail", "fail"),
        (0.4, 0, "fail", "fail"),
    ],
)
def test_gates_judge_by_tokens(tmp_path: Path, first: float, later: float, noise: str, live: str, tokens: int) -> None:
    write_run(tmp_path, "fixed", 0, update(1, first, tokens) + update(2, later, tokens), [])
    found = reachability(tmp_path, {"fixed": [0]})
    assert (found["fixed", "noise_control"]["verdict"], found["fixed", "clip_live"]["verdict"]) == (noise, live)
    for check in ("noise_control", "clip_live"):
        assert found["fixed", check]["value"] == pytest.approx(later / 2)


@pytest.mark.parametrize(
    ("clipped", "live", "decisive"),
    [(0, "fail", "fail"), (1, "warn", "warn"), (39, "warn", "warn"), (40, "pass", "pass")],
)
def test_less_than_one_token_in_ten_thousand_is_no_pass(tmp_path: Path, clipped: int, live: str, decisive: str) -> None:
    """Of 400,000 tokens at update index 1 some have a ratio of 1.25: clipped by gapo's ceiling of 1.2267 (c = 3 of 4)
    and not by 1.28."""
    rows = [
        record(step, 0, i, 0.25 if i < 3 else -0.75, float(i < 3), 3, completion_tokens=100_000,
               clipped_upper_tokens=clipped * (step == 2 and i == 0))
        for step in (1, 2)
        for i in range(4)
    ]  # fmt: skip
    tail = [
        {
            "step": 2,
            "prompt_position": 0,
            "rollout": 0,
            "position": at,
            "log_ratio": math.log(1.25),
            "old_log_prob": -1.0,
        }
        for at in range(clipped)
    ]
    for arm in ("fixed", "gapo"):
        write_run(tmp_path, arm, 0, rows, tail)
    objectives = {"fixed": TOKEN, "gapo": GAPO_TOKEN}
    found = reachability(tmp_path, {"fixed": [0], "gapo": [0]}, objectives=objectives)
    assert found["gapo", "clip_live"]["verdict"] == live
    assert found["gapo", "decisive_tokens"]["verdict"] == decisive
    assert found["gapo", "decisive_tokens"]["value"] == pytest.approx(clipped / 400_000)


def test_each_clip_is_counted_on_the_side_where_it_happened(tmp_path: Path) -> None:
    """Two-sided bounds clip a correct rollout below and a wrong one above."""
    sides = (((0.5, 1.0), (1, 2)), ((-0.5, 0.0), (3, 4)))
    rows = [
        record(step, 0, i, a, r, 1, clipped_upper_tokens=above * (step - 1), clipped_lower_tokens=below * (step - 1))
        for step in (1, 2)
        for i, ((a, r), (above, below)) in enumerate(sides)
    ]
    write_run(tmp_path, "fixed", 0, rows, [])
    row = reachability(tmp_path, {"fixed": [0]})["fixed", "clip_live"]
    assert row["value"] == pytest.approx(10 / 20)
    assert row["message"] == (
        "the bounds clipped 50.0 % of the tokens with an advantage at update index 1 and later: 10.0 % of those with "
        "A > 0 above the upper bound, 20.0 % of those with A > 0 below the lower bound, 40.0 % of those with A < 0 "
        "below the lower bound, 30.0 % of those with A < 0 above the upper bound"
    )
    last = next(row for row in dynamics(tmp_path, {"fixed": [0]}) if row["step"] == 2)
    assert [last[f"clipped_quadrant_{n}_share"] for n in (1, 2, 3, 4)] == pytest.approx([0.1, 0.2, 0.4, 0.3])


def test_one_update_per_batch_can_never_clip(tmp_path: Path) -> None:
    write_run(tmp_path, "fixed", 0, mixed(1) + mixed(3), [])
    row = reachability(tmp_path, {"fixed": [0]}, updates_per_batch={"fixed": 1})["fixed", "noise_control"]
    assert (row["verdict"], row["value"]) == ("fail", None)
    assert "no bound can fire" in row["message"]


def slope_rows(slope: float) -> list[dict]:
    """|s - 1| = slope · A over positive rollouts at update index 1."""
    return [record(2, i, 0, a, 1.0, 1, mean_log_ratio=math.log1p(slope * a)) for i, a in enumerate((0.25, 0.5, 0.75))]


def test_premise_is_a_t_interval_over_the_slopes_of_the_runs(tmp_path: Path) -> None:
    for seed, slope in enumerate((0.01, 0.02, 0.03)):
        write_run(tmp_path, "fixed", seed, slope_rows(slope), [])
    row = reachability(tmp_path, {"fixed": [0, 1, 2]})["fixed", "premise"]
    half = 4.302653 * 0.01 / math.sqrt(3)
    expected = {"value": 0.02, "ci_low": 0.02 - half, "ci_high": 0.02 + half}
    assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert row["verdict"] == "warn"
    assert row["message"].startswith("not present here")

    for seed, slope in enumerate((0.019, 0.02, 0.021)):
        write_run(tmp_path, "fixed", seed, slope_rows(slope), [])
    row = reachability(tmp_path, {"fixed": [0, 1, 2]})["fixed", "premise"]
    assert row["verdict"] == "pass"
    assert row["message"].startswith("present")

    row = reachability(tmp_path, {"fixed": [0]})["fixed", "premise"]
    assert (row["verdict"], row["ci_low"]) == (None, None)
    assert row["value"] == pytest.approx(0.019, rel=1e-4)


@pytest.mark.parametrize(("flat", "verdict"), [(2, "pass"), (3, "warn"), (4, "fail")])
def test_flat_groups_warn_above_half(tmp_path: Path, flat: int, verdict: str) -> None:
    rows = [
        record(1, prompt, i, 0.0 if prompt < flat else i - 0.5, 0.0 if prompt < flat else float(i), 1)
        for prompt in range(4)
        for i in range(2)
    ]
    write_run(tmp_path, "fixed", 0, rows, [])
    row = reachability(tmp_path, {"fixed": [0]})["fixed", "flat_groups"]
    assert (row["verdict"], row["value"]) == (verdict, flat / 4)


@pytest.mark.parametrize(("cut", "verdict"), [(1, "pass"), (2, "warn")])
def test_truncation_warns_above_a_tenth(tmp_path: Path, cut: int, verdict: str) -> None:
    write_run(tmp_path, "fixed", 0, [record(1, p, 0, 0.5, 1.0, 1, truncated=p < cut) for p in range(10)], [])
    assert reachability(tmp_path, {"fixed": [0]})["fixed", "truncation"]["verdict"] == verdict


@pytest.mark.parametrize(("drift", "verdict"), [(None, None), (False, "pass"), (True, "fail")])
def test_frozen_weights(tmp_path: Path, drift: bool | None, verdict: str | None) -> None:
    write_run(tmp_path, "fixed", 0, mixed(1), [], frozen_weights_drift=drift)
    row = reachability(tmp_path, {"fixed": [0]})["fixed", "frozen_weights"]
    assert row["verdict"] == verdict
    assert ("seed 0" in row["message"]) is (drift is True)


@pytest.mark.parametrize(("weights", "verdict"), [("aa", "pass"), ("bb", "warn")])
def test_initial_weights_are_compared_by_seed(tmp_path: Path, weights: str, verdict: str) -> None:
    write_run(tmp_path, "fixed", 0, mixed(1), [], initial_weights="aa")
    write_run(tmp_path, "gapo", 0, mixed(1), [], initial_weights=weights)
    found = reachability(tmp_path, {"fixed": [0], "gapo": [0]})
    assert found["gapo", "initial_weights"]["verdict"] == verdict
    assert found["fixed", "initial_weights"]["verdict"] is None


def test_an_arm_without_runs_is_said_and_no_crash(tmp_path: Path) -> None:
    write_run(tmp_path, "gapo", 0, mixed(1) + mixed(2), [])
    found = reachability(tmp_path, {"fixed": [0], "gapo": [0]}, allow_missing=True)
    assert {row["message"] for (arm, _), row in found.items() if arm == "fixed"} == {"no run of this arm has finished"}
    alone = reachability(tmp_path, {"gapo": [0]}, objectives={"gapo": GAPO})
    assert alone["gapo", "decisive_tokens"]["message"] == "the baseline fixed is not part of this analysis"


def test_list_runs_reads_footers_and_times(tmp_path: Path) -> None:
    engine = {"engine": "vllm 9", "mode": "colocate", "importance_sampling": {"clip_max": 2.0}}
    made_by = [{"rollout_engine": {"engine": "transformers 5"}, "hardware": "1 x H100"},
               {"rollout_engine": engine, "hardware": "1 x H100"}]  # fmt: skip
    write_run(tmp_path, "fixed", 0, mixed(1), [], initial_weights="aa", final_weights="bb", reward_version=3,
              made_by=made_by, micro_batch=4, train_problems=90, long_prompts=2)  # fmt: skip
    samples = tmp_path / "evals/fixed/seed-0/test/samples.parquet"
    tables.write(samples, tables.SAMPLES, [], {"engine": "transformers 5"})
    for name, seconds in (("train/fixed-0", "31.5"), ("sample_checkpoints/fixed-0-test", "4.5")):
        path = tmp_path / "benchmarks" / f"{name}.tsv"
        path.parent.mkdir(parents=True)
        path.write_text(f"s\th:m:s\tmax_rss\n{seconds}\t0:00:31\t300.1\n", encoding="utf-8")
    list_runs.main(job(tmp_path, "runs", {"fixed": [0, 1]}, allow_missing=True))
    done, missing = tables.read(tmp_path / "runs.parquet", tables.RUNS).to_pylist()
    expected = {
        "status": "done", "reason": None, "steps": 2, "code_digest": "c0de", "inputs_digest": "1n",
        "initial_weights": "aa", "final_weights": "bb", "frozen_weights_drift": None, "reward_version": 3,
        "train_seconds": 31.5, "sample_seconds": 4.5, "role": "comparison", "micro_batch": 4,
        "train_problems": 90, "long_prompts": 2,
        "hardware": "1 x H100",
        "rollout_engine": "transformers 5, then vllm 9, importance_sampling clip_max 2.0, mode colocate",
        "sampling_engine": "transformers 5",
    }  # fmt: skip
    assert {name: done[name] for name in expected} == expected
    assert len(done["settings_digest"]) == 16
    assert (missing["seed"], missing["status"], missing["train_seconds"]) == (1, "missing", None)
    assert missing["reason"] == "no checkpoints.parquet"
