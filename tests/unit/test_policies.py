"""Clip policies asked about finished runs: against what training recorded, and against numbers worked out by hand."""

import math
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pytest
import yaml
from test_records_tables import record, write_run
from training_run import PPO, Run

from workflow_scripts import stage_settings, tables
from workflow_scripts.analysis import policies as policies_of
from workflow_scripts.job import Job
from workflow_scripts.stages import ask_policies
from workflow_scripts.study import load

ROOT = Path(__file__).parents[2]
FOUR = {"eps_1": 0.25, "eps_2": 0.15, "eps_3": 0.3, "eps_4": 0.1}
TOKEN: dict[str, dict[str, Any]] = {
    "ppo": {"bounds": "ppo", "eps_low": 0.2, "eps_high": 0.28},
    "gapo": {"bounds": "gapo", "eps_low": 0.05, "eps_high_max": 0.3},
    "lower": {"bounds": "gapo_lower", "eps_low": 0.05, "eps_high_max": 0.3, "eps_low_max": 0.2},
    "abc": {"bounds": "abc", **FOUR},
    "dual": {"bounds": "dual_clip", "eps_low": 0.2, "eps_high": 0.28, "dual_clip_bound": 1.4},
    "dcpo": {"bounds": "dcpo", "eps_low": 0.16, "eps_high": 0.2},
}
SEQUENCE: dict[str, dict[str, Any]] = {
    "ppo": {"bounds": "ppo", "eps_low": 0.02, "eps_high": 0.03},
    "gapo": {"bounds": "gapo", "eps_low": 0.01, "eps_high_max": 0.05},
    "abc": {"bounds": "abc", "eps_1": 0.03, "eps_2": 0.02, "eps_3": 0.04, "eps_4": 0.01},
}
AXES = {key: PPO[key] for key in ("surrogate", "advantage", "aggregation")}


@lru_cache(None)
def trained(ratio: str, name: str, steps: int = 8) -> dict[str, pd.DataFrame]:
    """Records of a real run whose own clip policy is that one, by table."""
    policy = {"token": TOKEN, "sequence": SEQUENCE}[ratio].get(name, {})
    with TemporaryDirectory() as folder:
        objective = {**AXES, "ratio": ratio, **policy}
        if not policy:
            objective |= {"surrogate": "sapo"}
        run = Run(Path(folder), objective, steps=steps, checkpoints=[steps]).train()
        return {name: rows.to_pandas() for name, (_, rows) in run.recorder.tables().items()}


def records_of(run: dict[str, pd.DataFrame], ratio: str, kept: bool = True) -> policies_of.Records:
    """kept: with the old log-probabilities of whole completions."""
    rollouts = run["rollouts"] if kept else None
    return policies_of.Records(run["rollout_updates"], run["tail_tokens"], ratio, rollouts)


EVERY = [*(("token", name) for name in TOKEN), *(("sequence", name) for name in SEQUENCE)]
CLIPPED = ["clipped_upper_tokens", "clipped_lower_tokens"]
BY_QUADRANT = [f"clipped_quadrant_{number}_tokens" for number in (1, 2, 3, 4)]


@pytest.mark.parametrize(("ratio", "name"), EVERY)
def test_the_own_policy_gives_back_what_training_recorded(ratio: str, name: str) -> None:
    """Rollout by rollout, and summed in the table."""
    run = trained(ratio, name)
    policies = {"token": TOKEN, "sequence": SEQUENCE}[ratio]
    records = records_of(run, ratio)
    recorded = run["rollout_updates"].query("update_index >= 1").reset_index(drop=True)
    found = records.ask(policies[name])
    for column in CLIPPED:
        assert found[column].tolist() == recorded[column].tolist()
        assert found[column].sum() > 0
    rows = policies_of.ask(records, policies[name], policies).query("policy == @name")
    assert rows["own"].all() and (rows["decisive_tokens"] == 0).all()
    sides = recorded[CLIPPED].assign(positive=recorded["advantage"] > 0, group_correct=recorded["group_correct"])
    by_count = sides.groupby(["group_correct", "positive"]).sum()
    for count, row in rows.dropna(subset="group_correct").set_index("group_correct").iterrows():
        for positive, (above, below) in ((True, (1, 2)), (False, (4, 3))):
            expected = (
                by_count.loc[(count, positive)] if (count, positive) in by_count.index else dict.fromkeys(CLIPPED, 0)
            )
            found = [row[f"clipped_quadrant_{number}_tokens"] for number in (above, below)]
            assert found == [expected[side] for side in CLIPPED]
    if name != "dcpo":
        wide = recorded[recorded["advantage"] > 0]["upper_bound"].astype(float).mean() - 1
        assert rows[rows["group_correct"].isna()]["mean_upper_width"].item() == pytest.approx(wide, rel=1e-6)


@pytest.mark.parametrize(("ratio", "policies"), [("token", TOKEN), ("sequence", SEQUENCE)])
def test_a_policy_asked_about_another_run_says_what_its_own_run_recorded(ratio: str, policies: dict) -> None:
    """Up to the second update of a training two runs of a seed are the same: at the first nothing can clip."""
    asked = trained(ratio, "ppo")
    asked = {name: rows[rows["step"] <= 2] if "step" in rows else rows for name, rows in asked.items()}
    records, counts = records_of(asked, ratio), set()
    for name, policy in policies.items():
        own = trained(ratio, name)["rollout_updates"].query("step == 2").reset_index(drop=True)
        found = records.ask(policy)
        assert found[CLIPPED].to_numpy().tolist() == own[CLIPPED].to_numpy().tolist()
        counts.add(tuple(found[CLIPPED].sum()))
        differ = found[CLIPPED].sum(axis=1) - records.ask(policies["ppo"])[CLIPPED].sum(axis=1)
        assert (records.decisive(policy, policies["ppo"]) >= differ.abs()).all()
    assert len(counts) > 1


def asked(
    root: Path, policies: dict[str, Any], ratio: str = "token", own: str | None = None, seeds: int = 1
) -> pd.DataFrame:
    """The stage's table of arm `fixed`, whose records lie below root."""
    settings = {
        "runs": {"fixed": list(range(seeds))}, "ratios": {"fixed": ratio}, "policies": policies,
        "own": {"fixed": policies[own]} if own else {}, "allow_missing": False,
    }  # fmt: skip
    output = root / "policies.parquet"
    ask_policies.main(Job(settings, {}, "c0de", root, {}, {"policies": [str(output)]}, ask_policies.LIBRARIES))
    return tables.read(output, tables.POLICIES).to_pandas()


def whole(rows: pd.DataFrame, policy: str) -> dict[str, Any]:
    """The row over all rollouts."""
    return rows[(rows["policy"] == policy) & rows["group_correct"].isna()].iloc[0].to_dict()


# Three of four correct; at update index 1 the rollout's tokens that moved: (advantage, ratios)
MOVED = [(0.25, [1.24, 1.3, 0.7]), (0.25, [0.9, 1.02]), (0.25, []), (-0.75, [0.75, 0.88, 1.29, 1.5])]
QUADRANTS = [f"quadrant_{number}_tokens" for number in (1, 2, 3, 4)]


PPO_CLIPS = ((1, 0), (0, 0), (0, 0), (0, 1))  # of MOVED under TOKEN's ppo: above, below


def hand_made(root: Path, correct: int = 3, old: float = -1.0, recorded: Any = PPO_CLIPS) -> None:
    rows = [
        record(step, 0, i, advantage, float(advantage > 0), correct)
        for step in (1, 2)
        for i, (advantage, _) in enumerate(MOVED)
    ]
    rows += [record(2, 1, i, 0.0, 0.0, 0) for i in range(4)]
    clipped = {(2, 0, i): sides for i, sides in enumerate(recorded)}
    for row in rows:
        above, below = clipped.get((row["step"], row["prompt_position"], row["rollout"]), (0, 0))
        row |= {"clipped_upper_tokens": above, "clipped_lower_tokens": below}
    tail = [
        {"step": step, "prompt_position": prompt, "rollout": i, "position": at, "log_ratio": math.log(ratio),
         "old_log_prob": old}
        for step, prompt in ((1, 0), (2, 0), (2, 1)) for i, (_, moved) in enumerate(MOVED)
        for at, ratio in enumerate(moved)
    ]  # fmt: skip
    write_run(root, "fixed", 0, rows, tail)


def test_what_each_policy_stops_and_its_blind_spots(tmp_path: Path) -> None:
    """ppo's reference is [0.8, 1.28] for both signs. gapo: c = 3 of 4 makes its upper width .05 + .25/3 = .1333, so
    [0.95, 1.1333]. abc: own bounds, [0.85, 1.25] for A > 0, [0.9, 1.3] for A < 0. dual: 1.4 for A < 0 alone."""
    hand_made(tmp_path)
    rows = asked(tmp_path, TOKEN, own="ppo")
    expected = {  # clipped by quadrant, decisive against ppo, beyond the reference bounds by quadrant
        "ppo": ([1, 0, 1, 0], 0, [1, 1, 1, 2]),
        "gapo": ([2, 0, 2, 0], 2, [2, 2, 2, 2]),
        "abc": ([1, 1, 2, 1], 3, [1, 1, 2, 1]),
        "dual": ([1, 0, 1, 1], 1, [1, 1, 1, 1]),
    }
    for name, (clipped, decisive, quadrants) in expected.items():
        row = whole(rows, name)
        assert [row[quadrant] for quadrant in BY_QUADRANT] == clipped, name
        assert row["decisive_tokens"] == decisive, name
        assert [row[quadrant] for quadrant in QUADRANTS] == quadrants, name
        assert row["own"] == (name == "ppo") and pd.isna(row["reason"])
    ppo = whole(rows, "ppo")
    counts = ("rollouts", "tokens", "positive_rollouts", "negative_rollouts", "positive_tokens", "negative_tokens")
    assert [ppo[name] for name in counts] == [8, 80, 3, 1, 30, 10]  # of update index 1, the flat group included
    assert ppo["mean_upper_width"] == pytest.approx(0.28)
    assert whole(rows, "gapo")["mean_upper_width"] == pytest.approx(0.05 + 0.25 / 3)
    flat = rows[(rows["policy"] == "ppo") & (rows["group_correct"] == 0)].iloc[0]
    assert (flat["tokens"], flat["clipped_quadrant_1_tokens"], flat["quadrant_1_tokens"]) == (40, 0, 0)


def test_dcpo_goes_by_the_probability_of_each_token(tmp_path: Path) -> None:
    """At q = e^-1 its bounds are .5 + .5 sqrt(1 - .64 e), imaginary: 0.5, and .5 + .5 sqrt(1 + .8 e) = 1.391;
    at q = 1: 0.8 and 1.171."""
    policies = {"dcpo": TOKEN["dcpo"], "ppo": TOKEN["ppo"]}
    hand_made(tmp_path / "rare")
    rare = whole(asked(tmp_path / "rare", policies), "dcpo")
    hand_made(tmp_path / "sure", old=0.0)
    sure = whole(asked(tmp_path / "sure", policies), "dcpo")
    assert [rare[name] for name in (*BY_QUADRANT, *QUADRANTS)] == [0, 0, 0, 0, 0, 0, 0, 1]
    assert [sure[name] for name in (*BY_QUADRANT, *QUADRANTS)] == [2, 0, 1, 0, 2, 1, 1, 2]
    assert math.isnan(sure["mean_upper_width"]) and pd.isna(sure["reason"])


def test_the_sequence_ratio_counts_whole_rollouts(tmp_path: Path) -> None:
    moved = ((0.25, 1.04), (0.25, 0.97), (0.25, 1.01), (-0.75, 1.05))
    clips = [10, 0, 0, 0]  # of gapo, tokens above
    rows = [
        record(2, 0, i, a, float(a > 0), 3, mean_log_ratio=math.log(r), clipped_upper_tokens=clips[i])
        for i, (a, r) in enumerate(moved)
    ]
    write_run(tmp_path, "fixed", 0, rows, [])
    row = whole(asked(tmp_path, SEQUENCE, "sequence", own="gapo"), "abc")
    # gapo at c = 3: 1.0233; abc: [0.98, 1.03] and [0.99, 1.04]. Both stop 1.04, abc 0.97 and 1.05 too.
    found = [row[name] for name in (*BY_QUADRANT, "decisive_tokens", *QUADRANTS)]
    assert found == [10, 10, 0, 10, 20, 10, 10, 0, 10]


@pytest.mark.parametrize("widths", [{"eps_low": 0.01, "eps_high": 0.28}, {"eps_low": 0.2, "eps_high": 0.01}])
def test_what_the_records_cannot_answer_is_null_and_says_why(widths: dict[str, float], tmp_path: Path) -> None:
    hand_made(tmp_path)
    policies = {"narrow": {"bounds": "ppo", **widths}, "ppo": TOKEN["ppo"]}
    rows = asked(tmp_path, policies, own="ppo")
    row = whole(rows, "narrow")
    assert row["reason"] == "ppo has a bound within 0.015 of 1; tokens nearer than that are not recorded"
    assert row["positive_tokens"] == 30
    assert all(math.isnan(row[name]) for name in (*BY_QUADRANT, *QUADRANTS, "decisive_tokens", "mean_upper_width"))
    beside = whole(asked(tmp_path, policies, own="narrow"), "ppo")
    assert beside["clipped_quadrant_1_tokens"] == 1 and math.isnan(beside["decisive_tokens"])
    assert beside["reason"].startswith("decisive tokens not known: ppo has a bound within 0.015 of 1")


def test_no_policy_can_be_asked_of_a_ratio_of_1(tmp_path: Path) -> None:
    write_run(tmp_path, "fixed", 0, [record(1, 0, i, a, float(a > 0), 3) for i, (a, _) in enumerate(MOVED)], [])
    row = whole(asked(tmp_path, TOKEN, own="ppo"), "abc")
    assert row["reason"].startswith("no update but the first of a rollout batch") and row["rollouts"] == 0
    assert math.isnan(row["clipped_quadrant_1_tokens"])


def test_a_run_that_clips_nothing_can_be_asked_too() -> None:
    """Its ratios are recorded all the same; there is no own state to differ from."""
    rows = policies_of.ask(records_of(trained("token", "sapo"), "token"), None, {"ppo": TOKEN["ppo"]})
    assert rows["clipped_quadrant_1_tokens"].sum() > 0
    assert rows["decisive_tokens"].isna().all() and not rows["own"].any() and rows["reason"].isna().all()


def study(**policies: Any) -> Any:
    config = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    config["analysis"]["policies"] = policies
    config["arms"]["gated"] = {"preset": "sapo"}
    return load(config)


def test_policies_are_named_by_their_first_arm_and_surrogates_without_a_clip_have_none() -> None:
    wide = {"bounds": "gapo_matched", "eps_low": 3e-3, "eps_high_max": 8e-3}
    chosen = stage_settings.ask_policies(study(wide=wide))
    assert list(chosen["policies"]) == ["gspo_asym", "gapo", "gapo_matched", "wide"]  # placebo and slow: as gspo_asym
    assert chosen["policies"]["wide"] == wide
    assert chosen["policies"]["gspo_asym"] == {"bounds": "ppo", "eps_low": 3e-3, "eps_high": 5e-3}
    assert chosen["own"]["slow"] == chosen["policies"]["gspo_asym"]
    assert "gated" not in chosen["own"] and chosen["ratios"]["gated"] == "token"


def test_asking_changes_the_settings_of_no_other_table() -> None:
    plain, asking = study(), study(wide={"bounds": "ppo", "eps_low": 0.1, "eps_high": 0.1})
    assert stage_settings.records(plain, 1) == stage_settings.records(asking, 1) and stage_settings.analysis(
        plain
    ) == stage_settings.analysis(asking)
