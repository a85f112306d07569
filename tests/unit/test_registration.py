"""What a study was held to before its first result, what was changed later, and what the report says of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_report import page, text, warnings_of

from workflow_scripts import tables
from workflow_scripts.launch import registration
from workflow_scripts.report import deviations
from workflow_scripts.study import Study, load

STUDY = yaml.safe_load("""
study: tiny
question: Does it help?
model: {source: embedded}
data: {train: {benchmark: word_problems, split: train, rows: 40, seed: 7}, decontaminate_against: [word_problems_test]}
rollout: {prompts: 4, group_size: 4, max_completion: 32}
training: {steps: 8, checkpoints: [4, 8], learning_rate: 3.0e-4}
arms:
  fixed: {preset: gspo_asym, eps_low: 3.0e-3, eps_high: 5.0e-3}
  gapo: {preset: gapo_seq, eps_low: 3.0e-3, eps_high_max: 5.0e-3}
  slow: {same_as: fixed, role: sensitivity, training: {learning_rate: 1.0e-4}}
baseline: fixed
seeds: 3
evaluation: {benchmarks: [word_problems_test], problems: 6, samples: 4, pass_at: [1, 4], max_completion: 32}
analysis: {looks: [3, 5]}
""")
CODE: dict[str, Any] = {"train": {"fixed": "aa", "gapo": "bb", "slow": "aa"}, "count": "cc"}


def study(**changes: Any) -> Study:
    """The study with keys below these laid over; arms with None are taken out."""

    def over(below: Any, above: Any) -> Any:
        if not isinstance(above, dict) or not isinstance(below, dict):
            return above
        return {k: over(below.get(k), above[k]) if k in above else v for k, v in {**above, **below}.items()}

    tree = over(STUDY, changes)
    return load({**tree, "arms": {name: arm for name, arm in tree["arms"].items() if arm is not None}})


class Runs:
    """Starts of one study, a day apart, and what lies in its folder."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.path, self.day = root, root / "plan.parquet", 0
        self.digest = ""
        monkeypatch.setattr(registration, "datetime", self)
        monkeypatch.setattr(registration, "_commit", lambda: "abc123+")

    def now(self, zone: Any) -> Any:
        """Time of the start: noon of the day."""
        from datetime import datetime

        return datetime(2026, 12, self.day, 12, tzinfo=zone)

    def start(self, code: dict[str, Any] = CODE, reward: int = 1, **changes: Any) -> None:
        """A real run begins; whatever happens, earlier rows stay, and the digest foretells what is recorded."""
        self.day += 1
        values = registration.registration(study(**changes), reward, self.root, code)
        before = self.rows()
        self.digest = registration.digest(values, self.path)
        registration.record(values, self.path)
        assert self.rows()[: len(before)] == before
        assert registration.digest(values, self.path) == self.digest

    def train(self) -> None:
        """A run is begun."""
        (self.root / "state/gapo/seed-0").mkdir(parents=True, exist_ok=True)
        (self.root / "state/gapo/seed-0/progress.json").write_text("{}")

    def rows(self) -> list[dict[str, Any]]:
        """The plan."""
        return tables.read(self.path, tables.PLAN).to_pylist() if self.path.exists() else []

    def plan(self) -> deviations.Plan:
        """What the report makes of it."""
        plan = deviations.judge(deviations.read(self.path))
        assert plan is not None
        return plan


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Nothing started yet."""
    return Runs(tmp_path, monkeypatch)


def test_nothing_is_said_where_nothing_changed(runs: Runs) -> None:
    runs.start()
    rows, digest = runs.rows(), runs.digest
    assert {row["key"] for row in rows} >= {
        "question",
        "endpoint",
        "margin",
        "looks",
        "seeds",
        "arms",
        "code",
        "holdouts",
    }
    assert {row["key"] for row in rows if "null" in row["value"]} == {
        "selection"
    }  # a key that is added later is no change
    runs.start()
    assert runs.rows() == rows
    runs.train()
    runs.start(compute={"micro_batch": 8, "threads": 2}, data_dir="/elsewhere", only_arms=["gapo"], allow_missing=True)
    assert [row["key"] for row in runs.rows()[len(rows) :]] == [tables.TRAINING_BEGUN]
    assert runs.digest == digest  # the page is not drawn again for it
    plan = runs.plan()
    assert (plan.recorded, plan.before_training) == ("2026-12-01", True)
    assert not (plan.warnings or plan.changes or plan.planned or plan.later)


WAS = "when training began (plan of 2026-12-01); "
DECISIVE = [
    ({"analysis": {"margin": 0.03}}, f"margin was 0.05 {WAS}0.03 since 2026-12-02"),
    ({"analysis": {"alpha": 0.1}}, f"alpha was 0.05 {WAS}0.1 since 2026-12-02"),
    ({"analysis": {"looks": [3]}}, f"looks was 3, 5 {WAS}3 since 2026-12-02"),
    ({"analysis": {"endpoint": {"pass_at": 4, "checkpoint": 4}}},
     f"endpoint.checkpoint was last {WAS}4 since 2026-12-02", f"endpoint.pass_at was 1 {WAS}4 since 2026-12-02"),
    ({"question": "Does it hurt?"}, f"question was “Does it help?” {WAS}“Does it hurt?” since 2026-12-02"),
    ({"seeds": 4}, f"seeds.{{fixed, gapo, slow}} was 0, 1, 2 {WAS}0, 1, 2, 3 since 2026-12-02"),
    ({"seeds": [0, 1, 7, 8, 9]}, f"seeds.{{fixed, gapo, slow}} was 0, 1, 2 {WAS}0, 1, 7, 8, 9 since 2026-12-02"),
    ({"arms": {"gapo": {"seeds": [0, 1]}}}, f"seeds.gapo was 0, 1, 2 {WAS}0, 1 since 2026-12-02"),
    ({"arms": {"gapo": {"eps_high_max": 4.0e-3}}}, f"arms.gapo.eps_high_max was 0.005 {WAS}0.004 since 2026-12-02"),
    ({"training": {"learning_rate": 1.0e-3}},
     f"arms.{{fixed, gapo}}.training.learning_rate was 0.0003 {WAS}0.001 since 2026-12-02"),
    ({"arms": {"late": {"same_as": "gapo", "eps_high_max": 6.0e-3}}},
     f"arms.late was not part of the study {WAS}part of the study since 2026-12-02"),
    ({"arms": {"slow": None}}, f"arms.slow was part of the study {WAS}not part of the study since 2026-12-02"),
    ({"arms": {"slow": {"role": "comparison"}}}, f"roles.slow was sensitivity {WAS}comparison since 2026-12-02"),
    ({"baseline": "gapo"}, f"baseline was fixed {WAS}gapo since 2026-12-02"),
    ({"evaluation": {"problems": 5}}, f"evaluation.problems was 6 {WAS}5 since 2026-12-02"),
    ({"evaluation": {"pass_at": [1]}}, f"pass_at was 1, 4 {WAS}1 since 2026-12-02"),
    ({"data": {"decontaminate_against": []}},
     f"decontaminate_against was word_problems_test {WAS}none since 2026-12-02"),
    ({"data": {"train": {"seed": 8}}}, f"train_set.seed was 7 {WAS}8 since 2026-12-02"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"), [(c, s) for c, *s in DECISIVE], ids=[s[1].split(" was")[0] for s in DECISIVE]
)
def test_what_decides_verdicts_is_a_warning_with_dates(runs: Runs, changes: dict, said: list[str]) -> None:
    runs.start()
    before = runs.digest
    runs.train()
    runs.start(**changes)
    assert runs.digest != before  # the page is drawn again
    plan = runs.plan()
    assert plan.warnings == [f"Deviation from the plan: {line}." for line in said]
    assert plan.changes == said


def test_what_decides_nothing_is_not_a_warning(runs: Runs) -> None:
    runs.start()
    runs.train()
    runs.start({**CODE, "train": {**CODE["train"], "gapo": "b2"}}, 2, evaluation={"base_repeats": 5})
    assert runs.plan().warnings == []
    assert runs.plan().changes == [
        f"base_repeats was 3 {WAS}5 since 2026-12-02",
        f"reward_version was 1 {WAS}2 since 2026-12-02",
        f"code.train.gapo was bb {WAS}b2 since 2026-12-02",
    ]


def test_looks_that_were_planned_are_no_deviation_but_one_between_them_is(runs: Runs) -> None:
    runs.start()
    runs.train()
    runs.start(seeds=5)
    assert (runs.plan().warnings, runs.plan().changes) == ([], [])
    assert runs.plan().planned == [
        f"seeds.{{fixed, gapo, slow}} was 0, 1, 2 {WAS}0, 1, 2, 3, 4 since 2026-12-02",
    ]


def test_a_look_at_some_arms_alone_is_a_deviation(runs: Runs) -> None:
    runs.start()
    runs.train()
    runs.start(seeds=3, arms={"gapo": {"seeds": 5}})
    assert runs.plan().planned == []
    assert runs.plan().warnings == [
        f"Deviation from the plan: seeds.gapo was 0, 1, 2 {WAS}0, 1, 2, 3, 4 since 2026-12-02."
    ]


def test_looking_at_four_seeds_on_the_way_to_five_is_said(runs: Runs) -> None:
    runs.start()
    runs.train()
    runs.start(seeds=4)
    runs.start(seeds=5)
    said = f"0, 1, 2 {WAS}0, 1, 2, 3 from 2026-12-02 to 2026-12-03; 0, 1, 2, 3, 4 since 2026-12-03"
    assert runs.plan().warnings == [f"Deviation from the plan: seeds.{{fixed, gapo, slow}} was {said}."]


def test_the_plan_in_force_is_that_when_training_began(runs: Runs) -> None:
    runs.start(analysis={"margin": 0.08})
    runs.start()  # before anything was trained: no deviation
    assert runs.plan().changes == []
    runs.train()
    runs.start(analysis={"margin": 0.03})
    runs.start()  # taken back: on record, but not a warning
    assert runs.plan().warnings == []
    line = "margin was 0.05 when training began (plan of 2026-12-02); 0.03 from 2026-12-03 to 2026-12-04; 0.05 since "
    assert runs.plan().changes == [line + "2026-12-04"]


@pytest.mark.parametrize(
    "sign",
    ["state/gapo/seed-0/progress.json", "runs/gapo/seed-0/checkpoints.parquet", "tables/effects.parquet",
     "evals/gapo/seed-0/word_problems_test/samples.parquet"],
)  # fmt: skip
def test_a_plan_recorded_after_training_says_so(runs: Runs, sign: str) -> None:
    runs.start()
    in_time = runs.digest
    runs.path.unlink()
    (runs.root / sign).parent.mkdir(parents=True)
    (runs.root / sign).touch()
    runs.start()
    assert runs.digest != in_time
    runs.start(analysis={"margin": 0.03})
    late, change = runs.plan().warnings
    assert runs.plan().later == []
    assert late.startswith("The plan was recorded on 2026-12-02, after training had begun: nothing shows that")
    assert change == (
        "Deviation from the plan: margin was 0.05 when the plan was recorded (2026-12-02); 0.03 since 2026-12-03."
    )


def test_a_plan_of_an_older_version_is_read(runs: Runs) -> None:
    """It says less, knows of no beginning, and has nulls for what is not set: only a change is a change."""
    old = {**registration.registration(study(), 1, runs.root, CODE)}
    for key in ("roles", "code", "holdouts"):
        del old[key]
    for arm in old["arms"].values():
        arm |= {"branch_from": None, "optimizer": None}
    rows = [
        {"recorded": "2026-11-01T10:00:00.000+00:00", "commit": "", "key": k, "value": json.dumps(v)}
        for k, v in old.items()
    ]
    later = {"recorded": "2026-11-02T10:00:00.000+00:00", "commit": "", "key": "alpha", "value": "0.1"}
    tables.write(runs.path, tables.PLAN, [*rows, later], {})
    runs.train()
    runs.start(analysis={"margin": 0.03, "alpha": 0.1})
    assert [row["key"] for row in runs.rows()[len(rows) + 1 :]] == [
        "training_begun", "margin", "roles", "holdouts", "code",
    ]  # fmt: skip
    plan = runs.plan()
    assert plan.before_training is None
    assert [line.split(" was")[0] for line in plan.changes] == ["margin", "alpha"]  # of the second nobody knows when
    assert plan.later == ["since 2026-12-01: roles, holdouts, code"]


def test_two_changes_on_one_day_have_their_times() -> None:
    rows = [
        {"recorded": f"2026-12-01T{hour}:00:00.000+00:00", "commit": None, "key": key, "value": value}
        for hour, key, value in (("09", "training_begun", "0"), ("09", "margin", "0.05"), ("10", "training_begun", "3"),
                                 ("10", "margin", "0.03"))
    ]  # fmt: skip
    plan = deviations.judge(rows)
    assert plan is not None
    assert plan.changes == [
        "margin was 0.05 when training began (plan of 2026-12-01 09:00 UTC); 0.03 since 2026-12-01 10:00 UTC"
    ]


@pytest.mark.parametrize("damage", [b"", b"PAR1", "half", "value", "column"])
def test_a_damaged_plan_is_named_and_stays(runs: Runs, damage: bytes | str) -> None:
    runs.start()
    row = runs.rows()[0]
    if damage == "value":
        tables.write(runs.path, tables.PLAN, [row | {"value": "{"}], {})
    elif damage == "column":
        tables.write(runs.path, tables.MANIFEST, [], {})
    else:
        whole = runs.path.read_bytes()
        runs.path.write_bytes(damage if isinstance(damage, bytes) else whole[: len(whole) // 2])
    found = runs.path.read_bytes()
    values = registration.registration(study(analysis={"margin": 0.03}), 1, runs.root, CODE)
    for call in (registration.record, registration.digest):
        with pytest.raises(
            tables.TableError, match=r"plan.parquet: the plan cannot be read .*; put back a copy"
        ) as caught:
            call(values, runs.path)
        assert "delete it" not in str(caught.value)
        assert "\n" not in str(caught.value)
    assert runs.path.read_bytes() == found
    for read in (registration.latest, deviations.read):  # the Snakefile, the report
        with pytest.raises(tables.TableError, match=r"plan.parquet: the plan cannot be read"):
            read(runs.path)


def test_reward_version_stays_pinned_until_another_is_recorded(runs: Runs) -> None:
    assert registration.pinned_reward_version(runs.path, 3) == 3
    runs.start(reward=3)
    assert registration.pinned_reward_version(runs.path, 4) == 3
    runs.start(reward=4)
    assert registration.pinned_reward_version(runs.path, 5) == 4


def test_the_report_says_it_before_any_number_and_inert(runs: Runs) -> None:
    runs.start()
    html = page(runs.root)
    assert warnings_of(html) == ""
    assert 'id="plan"' not in html
    assert "put on record on 2026-12-01, before training began, and nothing of it has changed (commit abc123+)" in text(
        html
    )
    runs.train()
    runs.start(question="<script>alert(1)</script>", seeds=5, evaluation={"base_repeats": 5})
    html = page(runs.root)
    assert "Deviation from the plan: question was “Does it help?” when training began" in warnings_of(html)
    assert html.index('id="warnings"') < html.index('id="answer"') < html.index('id="plan"')
    assert "base_repeats was 3" in text(html)
    assert "base_repeats" not in warnings_of(html)
    assert "Seeds added up to a planned look: seeds.{fixed, gapo, slow} was" in text(html)
    assert "<script>alert" not in html
