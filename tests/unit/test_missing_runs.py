"""A study analysed while runs are missing says so in the table of runs, the figures, the report and `status`."""

import json
from pathlib import Path

import pytest
from report_study import ROLES, contents
from test_records_tables import job, mixed, write_run
from test_report import FIGURES, draw, effect, page, text, warnings_of

from workflow_scripts import tables
from workflow_scripts.commands.status import cell
from workflow_scripts.launch.progress import read_runs
from workflow_scripts.report import findings
from workflow_scripts.stages import list_runs
from workflow_scripts.training.finished import HANDED_OUT, forget_divergence, note_divergence

NOT_FINITE = "the importance ratio is not finite at step 3: rollout 1 of prompt 0 in batch 0"


@pytest.mark.parametrize(
    ("log", "progress", "status", "reason"),
    [
        (None, None, "missing", "no checkpoints.parquet"),
        ("{'loss': 0.1}\nKilled", '{"step": 4, "steps": 8}', "missing", "stopped at update 4 of 8"),
        ("Killed", "{", "missing", "no checkpoints.parquet"),
        ("Killed", "[]", "missing", "no checkpoints.parquet"),
        (f"\nx\narmslength: {NOT_FINITE}\n", '{"step": 2, "steps": 8}', "missing", NOT_FINITE),
        ("armslength: no space left on the disk", None, "missing", "no space left on the disk"),
    ],
)
def test_why_a_run_is_missing(tmp_path: Path, log: str | None, progress: str | None, status: str, reason: str) -> None:
    for name, content in (("logs/train/fixed-0.log", log), ("state/fixed/seed-0/progress.json", progress)):
        if content is not None:
            (tmp_path / name).parent.mkdir(parents=True)
            (tmp_path / name).write_text(content, encoding="utf-8")
    list_runs.main(job(tmp_path, "runs", {"fixed": [0]}, allow_missing=True))
    (row,) = tables.read(tmp_path / "runs.parquet", tables.RUNS).to_pylist()
    assert (row["status"], row["reason"]) == (status, reason)


def test_a_run_that_diverged_without_outputs_says_so_until_it_is_begun_again(tmp_path: Path) -> None:
    folder = tmp_path / "state/fixed/seed-0"
    folder.mkdir(parents=True)
    for begun_again, status in ((False, "diverged"), (True, "missing")):
        note_divergence(folder, NOT_FINITE)
        if begun_again:
            forget_divergence(folder)
        list_runs.main(job(tmp_path, "runs", {"fixed": [0]}, allow_missing=True))
        (row,) = tables.read(tmp_path / "runs.parquet", tables.RUNS).to_pylist()
        assert (row["status"], row["reason"] == NOT_FINITE) == (status, status == "diverged")


def test_a_run_that_was_trained_and_not_sampled_is_not_done(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, "fixed", seed, mixed(1), [])
    tables.write(tmp_path / "evals/fixed/seed-0/test/samples.parquet", tables.SAMPLES, [], {})
    list_runs.main(job(tmp_path, "runs", {"fixed": [0, 1]}, allow_missing=True))
    rows = tables.read(tmp_path / "runs.parquet", tables.RUNS).to_pylist()
    assert [(row["status"], row["reason"]) for row in rows] == [("done", None), ("not evaluated", "no samples of test")]
    assert rows[1]["steps"] == 2


@pytest.mark.parametrize(
    ("log", "seconds"),
    [("{'loss': 0.1}", 7.5), ("resumes at step 4\n{'loss': 0.1}", None), (f"waits\n{HANDED_OUT}", None), (None, 7.5)],
)
def test_the_time_of_a_job_that_did_a_part_is_not_the_runs(
    tmp_path: Path, log: str | None, seconds: float | None
) -> None:
    write_run(tmp_path, "fixed", 0, mixed(1), [])
    for name, content in (("logs/train/fixed-0.log", log), ("benchmarks/train/fixed-0.tsv", "s\th\n7.5\t0:00:07\n")):
        if content is not None:
            (tmp_path / name).parent.mkdir(parents=True)
            (tmp_path / name).write_text(content, encoding="utf-8")
    list_runs.main(job(tmp_path, "runs", {"fixed": [0]}, allow_missing=True))
    (row,) = tables.read(tmp_path / "runs.parquet", tables.RUNS).to_pylist()
    assert row["train_seconds"] == seconds


def test_a_run_that_diverged_is_a_warning_of_its_own(tmp_path: Path) -> None:
    rows = contents()["runs"]
    rows[3] |= {"status": "diverged", "reason": "the loss is nan at step 30", "steps": 24}
    rows[4] |= {"status": "diverged", "reason": NOT_FINITE, "steps": None}
    said = warnings_of(page(tmp_path, contents() | {"runs": rows}))
    assert f"1 of 15 runs are missing: gapo seed 1 ({NOT_FINITE})." in said
    assert "Diverged, and not among the scores: gapo seed 1." in said
    counted = "Diverged, and counted with the scores of the last checkpoint: gapo seed 0"
    assert f"{counted} (the loss is nan at step 30)." in said


@pytest.mark.parametrize("name", FIGURES)
def test_figures_name_the_arms_that_lack_runs(tmp_path: Path, name: str) -> None:
    rows, declared = contents(), {arm: [0, 1, 2] for arm in ROLES}
    rows["effects"] = [row | {"seeds": 3, "baseline_seeds": 3} for row in rows["effects"]]
    if name == "clip_fraction":  # one of them tells that nothing is said without need
        assert "Runs are missing" not in draw(tmp_path / "all", name, rows, declared=declared)[1]
    rows["effects"][0] |= {"seeds": 2}
    for table in ("scores", "dynamics"):
        rows[table] = [row for row in rows[table] if (row["arm"], row.get("seed")) != ("gapo", 2)]
    rows["noise_floors"] = [row | ({"runs": 2} if row["arm"] == "gapo" else {}) for row in rows["noise_floors"]]
    assert "Runs are missing: gapo 2 of 3." in draw(tmp_path, name, rows, declared=declared)[1]


def test_status_tells_what_is_left_out(tmp_path: Path) -> None:
    def file(name: str, content: str = "") -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)

    file("runs/gapo/seed-0/checkpoints.parquet")
    file("evals/gapo/seed-0/test/samples.parquet")
    file("runs/gapo/seed-1/checkpoints.parquet")
    file("state/gapo/seed-2/progress.json", json.dumps({"step": 4, "time": 1.0}))
    runs = read_runs(tmp_path, {"gapo": [0, 1, 2, 3]}, {"gapo": 8}, ["test"])
    shown = [cell(run, left_out=True) for run in runs]
    assert shown == ["evaluated", "left out (trained)", "left out (step 4 of 8)", "left out (waiting)"]
    assert [cell(run) for run in runs] == ["evaluated", "trained", "step 4 of 8", "waiting"]


@pytest.mark.parametrize(
    ("verdict", "state", "said"),
    [("worse", "pass", False), ("not assessable", None, False), ("inconclusive: underpowered", "fail", True),
     ("better", "fail", True), ("no difference beyond the margin", "fail", True)],
)  # fmt: skip
def test_a_sensitivity_arm_fails_where_it_was_judged(
    tmp_path: Path, verdict: str, state: str | None, said: bool
) -> None:
    rows = [effect("gapo", 0.2, 0.1, 0.3, "better"), effect("slow", -0.01, -0.03, 0.01, verdict)]
    (check,) = findings.control_checks(rows[1:])
    assert check["verdict"] == state
    runs = contents()["runs"]
    runs[0] |= {"status": "missing", "reason": "no checkpoints.parquet"}
    shown = warnings_of(page(tmp_path, contents() | {"effects": rows, "runs": runs}))
    assert ("cannot tell anything" in shown or "judged better than the baseline" in shown) == said
    if said:  # first of all
        first = (
            "slow, an arm made to lose, was judged"
            if verdict == "better"
            else "The study does not see the loss of slow"
        )
        assert text(shown).strip().startswith(first)
