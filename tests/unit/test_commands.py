"""What plan, status and progress read and write."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from workflow_scripts.commands import plan, status
from workflow_scripts.launch import progress
from workflow_scripts.launch.study_file import DEFAULT_STUDY, configuration
from workflow_scripts.study import Study, StudyFaults, load


def study(**changes: object) -> Study:
    """The default study with some keys changed."""
    return load({**yaml.safe_load(DEFAULT_STUDY.read_text(encoding="utf-8")), **changes})


def test_costs_are_counted(tmp_path: Path) -> None:
    default = study()
    arm = default.resolved("gapo")
    cost = plan.cost(default, "gapo", 5)
    batches = 5 * arm.training.steps // arm.updates_per_batch
    assert cost.updates == 5 * arm.training.steps
    assert cost.rollouts == batches * arm.rollout.prompts * arm.rollout.group_size
    assert cost.completions == 5 * len(arm.checkpoints) * 400 * 8


def test_who_stops_reading_ends_a_command_quietly() -> None:
    command = [sys.executable, "-m", "workflow_scripts", "--help"]
    process = subprocess.Popen(command, cwd=DEFAULT_STUDY.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == (b"", 141)
    process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at its end", "at once"])
def test_a_full_disk_behind_the_output_is_one_line(unbuffered: str) -> None:
    command = [sys.executable, "-m", "workflow_scripts", "--help"]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, cwd=DEFAULT_STUDY.parent, env=environment, stdout=full, stderr=subprocess.PIPE)
    said = b"armslength: the output: cannot be written: No space left on device\n"
    assert (done.stderr, done.returncode) == (said, 1)


@pytest.mark.parametrize(("text", "said"), [(None, "No such file"), ("a: [1", "no YAML")])
def test_a_configfile_that_cannot_be_read_is_named(text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(StudyFaults, match=said) as caught:
        configuration(str(path), [])
    assert str(path) in caught.value.lines[0]
    assert len(caught.value.lines) == 1


def test_settings_of_the_command_line_are_laid_over_the_file() -> None:
    config = configuration(str(DEFAULT_STUDY), ["arms={gapo: {eps_high_max: 4.0e-3}}", "only_arms=[gapo]"])
    changed = load(config)
    assert changed.resolved("gapo").objective["eps_high_max"] == 4.0e-3
    assert changed.resolved("gapo").objective["eps_low"] == study().resolved("gapo").objective["eps_low"]
    assert list(changed.runs()) == ["gapo"]


class Results:
    """Files of a study with one arm, two seeds and 8 steps, sampled on one benchmark."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def touch(self, path: str, text: str = "") -> None:
        """Make a file."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def says(self, seed: int, step: int, moment: float, **more: object) -> None:
        """What the trainer writes."""
        said = {"step": step, "steps": 8, "reward": 0.5, "clipped": 0.0312, "time": moment, **more}
        self.touch(f"state/gapo/seed-{seed}/progress.json", json.dumps(said))

    def runs(self) -> list[progress.RunProgress]:
        """State of both runs."""
        return progress.read_runs(self.root, {"gapo": [0, 1]}, {"gapo": 8}, ["test"])


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Nothing done yet."""
    return Results(tmp_path)


def test_a_run_goes_from_waiting_to_evaluated(results: Results) -> None:
    now = time.time()
    seen = [results.runs()[0].state]
    results.touch("state/gapo/seed-0/progress.json", "{")  # caught in the middle of being written
    seen.append(results.runs()[0].state)
    results.says(0, 4, now)
    seen.append(results.runs()[0].state)
    results.touch("runs/gapo/seed-0/checkpoints.parquet")
    seen.append(results.runs()[0].state)
    results.touch("evals/gapo/seed-0/test/samples.parquet")
    seen.append(results.runs()[0].state)
    assert seen == ["waiting", "waiting", "step 4 of 8", "trained", "evaluated"]


def test_runs_that_train_are_shown_with_what_they_say(results: Results) -> None:
    now = time.time()
    results.says(0, 4, now - 3600)
    results.says(1, 6, now, entropy=0.4321, clipped=None, began={"step": 2, "time": now - 240})
    head, silent, going = status.training(results.runs(), now)
    assert head == ["training now", "seed", "step", "reward", "clipped", "entropy", "ends"]
    assert silent == ["gapo", "0", "4 of 8", "0.50", "3.1 %", "-", f"silent since {status.clock(now - 3600, now)}"]
    # 4 steps in 240 s, 2 to go
    assert going == ["gapo", "1", "6 of 8", "0.50", "-", "0.43", status.clock(now + 120, now)]
    assert status.clock(now - 90_000, now) != time.strftime("%H:%M", time.localtime(now - 90_000))


@pytest.mark.parametrize(
    "began", [None, 3, {}, {"step": 6, "time": 1.0}, {"step": "x", "time": 1.0}, {"step": 9, "time": 1}]
)
def test_no_end_is_said_without_a_pace(results: Results, began: object) -> None:
    results.says(0, 6, time.time(), began=began)
    assert results.runs()[0].end is None


def test_the_end_that_a_running_study_expects_is_read_beside_it(
    results: Results, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `follow` left it; not any more when that is old, nor where it is damaged."""
    now = time.time()
    monkeypatch.setattr(status, "root_of", lambda study: results.root)

    def last() -> str:
        assert status.main([]) == 0
        return capsys.readouterr().out.splitlines()[-1]

    assert last() == "The study is not running here, or has said nothing yet."
    progress.say_end(results.root, now, 600.0)
    assert last() == f"The study is running; runs end about {status.clock(now + 600, now)}, in 10 min."
    progress.say_end(results.root, now, None)
    assert last() == "The study is running; no pace yet."
    progress.say_end(results.root, now - 61, 600.0)
    assert progress.expected(results.root, now) == (False, None)
    results.touch("state/expected_end.json", "[1]")
    assert progress.expected(results.root, now) == (False, None)


def test_expected_end_follows_the_pace(results: Results) -> None:
    begun = results.runs()
    assert progress.remaining_seconds(results.root, begun, begun, 10.0) is None
    results.says(0, 4, time.time())
    # 4 of 16 steps in 10 s: 30 s to go
    assert progress.remaining_seconds(results.root, results.runs(), begun, 10.0) == pytest.approx(30.0)
    results.touch("runs/gapo/seed-0/checkpoints.parquet")
    results.touch("benchmarks/train/gapo-0.tsv", "s\th:m:s\n20.0\t0:00:20\n")
    results.touch("benchmarks/sample_checkpoints/gapo-0-test.tsv", "s\th:m:s\n5.0\t0:00:05\n")
    # sampling a run takes as long as 2 steps: 8 of 20 steps in 20 s
    assert progress.remaining_seconds(results.root, results.runs(), begun, 20.0) == pytest.approx(30.0)


def test_the_line_names_what_is_going(results: Results) -> None:
    begun = results.runs()
    results.says(1, 4, time.time())
    text = progress.line(results.root, results.runs(), begun, 60.0, time.time())
    assert text.startswith(
        "0 of 2 runs trained, 0 evaluated; going: gapo seed 1 step 4 of 8 (reward 0.50, 3.1 % clipped); runs end about"
    )
    assert text.endswith("in 3 min")


def test_following_prints_when_something_changed(results: Results) -> None:
    stream = io.StringIO()
    progress.follow(results.root, {"gapo": [0, 1]}, {"gapo": 8}, ["test"], seconds=0.05, stream=stream)
    time.sleep(0.4)
    results.touch("runs/gapo/seed-0/checkpoints.parquet")
    deadline = time.time() + 10
    while "1 of 2" not in stream.getvalue() and time.time() < deadline:
        time.sleep(0.05)
    lines = stream.getvalue().splitlines()
    assert sum("0 of 2 runs trained" in line for line in lines) == 1
    assert "1 of 2 runs trained" in lines[1]
    assert progress.expected(results.root, time.time())[0]


def test_failures_are_those_of_this_run(tmp_path: Path) -> None:
    logs = {"new": "x\narmslength: no hub\n", "bug": "Traceback (most recent call last)\nKeyError: 1\n", "fine": "ok\n"}
    for name, text in logs.items():
        path = tmp_path / "logs/train" / f"{name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    old = tmp_path / "logs/old.log"
    old.write_text("armslength: long ago\n")
    os.utime(old, (1e9, 1e9))
    lines = progress.failures(tmp_path)
    assert [line.partition(": ")[2] for line in lines] == ["KeyError: 1", "no hub"]


@pytest.mark.parametrize(("visible", "number"), [("", 0), ("-1", 0), ("0", 1), ("0,3", 2)])
def test_gpus_that_may_be_used(visible: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert progress.gpus_here() == number


def test_gpus_are_device_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(progress, "DEVICES", tmp_path)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert progress.gpus_here() == 2
