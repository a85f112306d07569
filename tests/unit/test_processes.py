"""The stage that trains, as Snakemake runs it: several processes, signals, and memory that ends."""

from pathlib import Path
from typing import Any

import pytest
import torch
from training_stage import LORA, Stage, last_line
from transformers import AutoTokenizer, LlamaConfig

from workflow_scripts import devices
from workflow_scripts.errors import UserError
from workflow_scripts.job import Job
from workflow_scripts.sampling.prompts import check_positions
from workflow_scripts.training import setup
from workflow_scripts.training.run import problems_in_order

EXACT = ("batch", "prompt_position", "rollout", "problem_id", "completion", "reward", "group_correct", "advantage")


@pytest.mark.parametrize(
    ("adapter", "aggregation"),
    [(None, "token-mean-step"), pytest.param(LORA, "token-mean", marks=pytest.mark.slow)],
    ids=["full", "lora"],
)
def test_two_processes_train_what_one_trains(adapter: dict[str, Any] | None, aggregation: str, tmp_path: Path) -> None:
    """Equal but for the order of sums: an all-reduce adds two halves of each gradient.

    The runs use SGD, which moves a weight by its gradient: what rounds apart stays rounding on every processor. Adam
    divides a gradient by its own size, so that where it is nearly 0 rounding becomes a step of the size of the learning
    rate. A step moves a weight by .1 times its gradient, of norm 1 at most; 1e-5 is a hundred times what float32
    rounds.
    """
    one, two = (Stage(tmp_path / str(count), adapter, processes=count) for count in (1, 2))
    for stage in (one, two):
        stage.settings["objective"] |= {"aggregation": aggregation, "kl": "k3"}
        stage.settings["training"] |= {"beta": 0.05, "learning_rate": 0.1, "trl": {"optim": "sgd"}}
        stage.settings["rollout"]["max_prompt"] = 26
        stage.trained()
    assert (one.footer["train_problems"], one.footer["long_prompts"]) == (20, 20 - len(one.short(26)))
    assert {row["problem_id"] for row in one.rows("rollouts")} <= one.short(26)
    assert (one.footer["processes"], two.footer["processes"]) == (1, 2)
    drawn = [[[row[key] for key in EXACT] for row in run.rows("rollouts")] for run in (one, two)]
    assert drawn[0] == drawn[1]
    assert one.footer["initial_weights"] == two.footer["initial_weights"]
    assert len({row["completion_tokens"] for row in one.rows("rollouts")}) > 1  # shares of tokens are unequal
    for mine, theirs in zip(one.rows("rollout_updates"), two.rows("rollout_updates"), strict=True):
        for key, value in mine.items():
            assert value == (
                pytest.approx(theirs[key], rel=1e-3, abs=1e-4) if isinstance(value, float) else theirs[key]
            )
    logs = [{(r["step"], r["metric"]): r["value"] for r in run.rows("trainer_log")} for run in (one, two)]
    assert logs[1] == pytest.approx(logs[0], rel=1e-3, abs=1e-4)  # loss and gradient norm, which Adam does not show
    for name, value in one.weights(bool(adapter)).items():
        torch.testing.assert_close(value, two.weights(bool(adapter))[name], rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_after_sigterm_a_run_ends_at_a_batch_and_goes_on_as_if_undisturbed(processes: int, tmp_path: Path) -> None:
    whole, cut = (Stage(tmp_path / name, processes=processes) for name in ("whole", "cut"))
    for stage in (whole, cut):
        stage.settings["training"] |= {"steps": 12, "checkpoints": [4, 12], "reward": "rewards:ended_in_second_batch"}
    (tmp_path / "whole" / "told").touch()
    whole.trained()
    ended = cut.train()
    assert ended.returncode == 1
    assert last_line(ended) == "armslength: terminated at step 8 of 12; its state is kept"
    assert "Traceback" not in ended.stdout
    rest = cut.train()
    assert rest.returncode == 0 and "resumes at step 8" in rest.stdout, rest.stdout
    assert whole.rows("rollouts") == cut.rows("rollouts")
    assert whole.rows("rollout_updates") == cut.rows("rollout_updates")
    assert whole.footer["final_weights"] == cut.footer["final_weights"]


def test_every_run_leaves_out_the_same_long_prompts(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(stage.root / "base" / "model")
    settings, rollout = stage.settings, stage.settings["rollout"]
    job = Job(settings, {}, "", stage.root, {"train": [str(stage.root / "data" / "train.parquet")]}, {}, ())
    settings["training"]["steps"] = 400
    for settings["seed"], rollout["prompts"], rollout["max_prompt"] in [(0, 6, 26), (1, 2, 26), (1, 6, 40)]:
        problems, said = problems_in_order(job, setup.rollout_plan(settings), tokenizer)
        short = stage.short(rollout["max_prompt"])
        assert set(problems["problem_id"].to_pylist()) == short
        assert said == {"train_problems": 20, "long_prompts": 20 - len(short)}
    rollout["max_prompt"] = 17
    short = len(stage.short(17))
    fault = (
        f"rollout.max_prompt: 17: only {short} of 20 train problems have prompts that short, and rollout.prompts is 6"
    )
    with pytest.raises(UserError, match=f"^{fault}$"):
        problems_in_order(job, setup.rollout_plan(settings), tokenizer)


def test_a_prompt_that_is_too_long_names_the_ways_out() -> None:
    config = LlamaConfig(max_position_embeddings=100)
    check_positions(config, [[1] * 40], "rollout.max_completion", 60)
    with pytest.raises(UserError, match=r"max_completion: 70: at most 60: .* 40 tokens, .*; or rollout.max_prompt: 30"):
        check_positions(config, [[1] * 40, [1] * 30], "rollout.max_completion", 70)
    for key, completion in (("evaluation.max_completion", 70), ("rollout.max_completion", 71)):
        with pytest.raises(UserError, match=r"the model takes 100 tokens$"):
            check_positions(config, [[1] * 40, [1] * 30], key, completion)


@pytest.mark.slow
def test_what_one_process_says_is_the_last_line(tmp_path: Path) -> None:
    stage = Stage(tmp_path, processes=2)
    stage.settings["training"]["reward"] = "rewards:only_the_last_process_fails"
    failed = stage.train()
    assert failed.returncode == 1
    said = "armslength: training.reward: only_the_last_process_fails: returned 1 rewards for 12 completions"
    assert last_line(failed).startswith(said)
    stage.settings["training"]["reward"] = "rewards:killed"
    assert last_line(stage.train()).startswith("armslength: process 1 of 2 was ended by SIGKILL")
    stage.settings["training"]["reward"] = "rewards:that_is_not_there"
    failed = stage.train()
    assert failed.returncode == 1 and "Traceback" not in failed.stdout
    assert last_line(failed).startswith("armslength: training.reward: rewards:that_is_not_there:")


@pytest.mark.slow
def test_where_memory_ends_fewer_rollouts_at_once_do(tmp_path: Path) -> None:
    """The limit is set while the first batch is graded, so that a real allocation of the training step fails."""
    scarce, fixed = (Stage(tmp_path / name, micro_batch="auto") for name in ("scarce", "fixed"))
    for stage in (scarce, fixed):
        stage.settings["rollout"] |= {"prompts": 16, "group_size": 8, "max_completion": 80}
        stage.settings["training"] |= {"steps": 4, "checkpoints": [4], "reward": "rewards:with_little_memory"}
    done = scarce.train(SPARE="300")
    assert done.returncode == 0 and "out of memory in training with 64 rollouts at once" in done.stdout, done.stdout
    assert scarce.footer["micro_batch"] < 64
    fixed.compute["micro_batch"] = 64
    failed = fixed.train(SPARE="300")
    assert failed.returncode == 1 and "Traceback" not in failed.stdout
    assert last_line(failed).startswith("armslength: out of memory in training with 64 rollouts at once; what helps:")
    fixed.compute["micro_batch"] = scarce.footer["micro_batch"]
    done = fixed.train(SPARE="100000")
    assert done.returncode == 0, done.stdout
    assert scarce.rows("rollout_updates") == fixed.rows("rollout_updates")
    assert scarce.footer["final_weights"] == fixed.footer["final_weights"]


def test_jobs_side_by_side_take_different_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_held", [])
    assert [devices._least_held("0123", 1, tmp_path) for _ in range(3)] == [["0"], ["1"], ["2"]]
    assert devices._least_held("0123", 2, tmp_path) == ["0", "3"]  # more jobs than GPUs: they share
    for file in devices._held:
        file.close()
    assert devices._least_held("0123", 2, tmp_path) == ["0", "1"]
