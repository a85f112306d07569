"""The stage that trains, as Snakemake runs it: several processes, signals, and memory that ends."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, LlamaConfig

from workflow_scripts import tables
from workflow_scripts.benchmarks import word_problems
from workflow_scripts.stages import _devices, train
from workflow_scripts.stages._command import Job, StageError
from workflow_scripts.stages._sampling import check_positions
from workflow_scripts.training import setup, state, warm_start

SETTINGS = {
    "seed": 0, "model": {"dtype": "float32", "prompt_family": "plain"},
    "objective": {
        "ratio": "token", "bounds": "ppo", "eps_low": 0.2, "eps_high": 0.28, "surrogate": "clipped",
        "advantage": {"scale": "none"}, "aggregation": "token-mean-step",
    },
    "rollout": {
        "prompts": 6, "group_size": 4, "minibatches": 2, "epochs": 2, "temperature": 1.0, "top_p": 1.0,
        "max_completion": 8,
    },
    "training": {
        "steps": 8, "checkpoints": [4, 8], "learning_rate": 1e-2, "schedule": "constant", "warmup_steps": 0,
        "max_grad_norm": 1.0, "beta": 0.0, "mask_truncated": False, "reward": "rewards:half_right",
        "success_threshold": 1.0, "trl": {},
    },
    "reward_version": 1,
}  # fmt: skip
COMPUTE = {
    "device": "cpu", "gpus": 0, "processes": None, "micro_batch": 4, "gradient_checkpointing": False,
    "engine": "transformers", "eval_batch": 64, "threads": 1, "trackers": [],
    "vllm": {"mode": "colocate", "server": None, "training_memory": 0.3},
    "keep": {"rollouts": True, "completions": True, "state": "none"},
}  # fmt: skip
REWARDS = """
import os, resource, signal
from pathlib import Path

def half_right(completions, **_):
    return [float(len(text) % 2 == 0) for text in completions]

def ended_in_second_batch(completions, trainer_state, **_):
    told = Path(__file__).with_name("told")
    if trainer_state.global_step == 4 and os.environ.get("RANK", "0") == "0" and not told.exists():
        told.touch()
        os.kill(os.getppid() if "RANK" in os.environ else os.getpid(), signal.SIGTERM)
    return half_right(completions)

def only_the_last_process_fails(completions, **_):
    return half_right(completions) if os.environ["RANK"] == "0" else [1.0]

def killed(completions, **_):
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return half_right(completions)

def with_little_memory(completions, **_):
    used = int(next(l for l in open("/proc/self/status") if l.startswith("VmSize")).split()[1]) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (used + int(os.environ["SPARE"]) * 2**20, resource.RLIM_INFINITY))
    return half_right(completions)
"""
LORA = {"rank": 2, "alpha": 4, "targets": ["q_proj", "v_proj", "o_proj"]}


class Stage:
    """One run's folder, and the command line that trains in it."""

    def __init__(self, folder: Path, adapter: dict[str, Any] | None = None, **compute: Any) -> None:
        self.root = folder / "results"
        self.settings = json.loads(json.dumps(SETTINGS))
        if adapter:
            self.settings["model"]["adapter"] = adapter
        self.compute = {**COMPUTE, **compute}
        tokenizer = warm_start.word_tokenizer(word_problems.vocabulary())
        model = self.root / "base" / "model"
        tokenizer.save_pretrained(model)
        warm_start.small_llama(tokenizer, seed=0).save_pretrained(model)
        manifest = self.root / "base" / "manifest.parquet"
        tables.write(manifest, tables.MANIFEST, state.folder_rows(model, manifest.parent), {})
        problems = [
            {"problem_id": str(row), "benchmark": "word_problems", "row": row, **problem}
            for row, problem in enumerate(word_problems.generate("train", 20, seed=1))
        ]
        tables.write(self.root / "data" / "train.parquet", tables.PROBLEMS, problems, {})
        (folder / "rewards.py").write_text(REWARDS)
        self.run = self.root / "runs" / "arm" / "seed-0"

    def short(self, tokens: int) -> set[str]:
        """Ids of the train problems with prompts of at most so many tokens."""
        tokenizer = AutoTokenizer.from_pretrained(self.root / "base" / "model")
        rows = tables.read(self.root / "data" / "train.parquet", tables.PROBLEMS).to_pylist()
        return {row["problem_id"] for row in rows if len(tokenizer(row["question"])["input_ids"]) <= tokens}

    def train(self, **environment: str) -> subprocess.CompletedProcess[str]:
        names = ("rollout_updates", "tail_tokens", "rollouts", "trainer_log", "checkpoints")
        command = [
            sys.executable, "-m", "workflow_scripts.stages.train", "--settings", json.dumps(self.settings),
            "--compute", json.dumps(self.compute), "--code", "0", "--root", str(self.root),
            "--input", f"base={self.root}/base/manifest.parquet", f"train={self.root}/data/train.parquet",
            "--output", *(f"{name}={self.run}/{name}.parquet" for name in names),
        ]  # fmt: skip
        path = os.pathsep.join([str(self.root.parent), str(Path(__file__).parents[2])])
        return subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )  # fmt: skip

    def trained(self) -> "Stage":
        done = self.train()
        assert done.returncode == 0, done.stdout
        return self

    def rows(self, name: str) -> list[dict[str, Any]]:
        return tables.read(self.run / f"{name}.parquet", getattr(tables, name.upper())).to_pylist()

    @property
    def footer(self) -> dict[str, Any]:
        return tables.provenance(self.run / "checkpoints.parquet")

    def weights(self, adapter: bool, step: int = 8) -> dict[str, torch.Tensor]:
        name = "adapter_model" if adapter else "model"
        return load_file(self.run / "checkpoints" / f"step-{step}" / f"{name}.safetensors")


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.strip().splitlines()[-1]


EXACT = ("batch", "prompt_position", "rollout", "problem_id", "completion", "reward", "group_correct", "advantage")


@pytest.mark.parametrize(
    ("adapter", "aggregation"),
    [(None, "token-mean-step"), pytest.param(LORA, "token-mean", marks=pytest.mark.slow)],
    ids=["full", "lora"],
)
def test_two_processes_train_what_one_trains(adapter: dict[str, Any] | None, aggregation: str, tmp_path: Path) -> None:
    """Equal but for the order of sums: an all-reduce adds two halves of each gradient. 1e-4 is a hundredth of the
    learning rate, the size of Adam's steps."""
    one, two = (Stage(tmp_path / str(count), adapter, processes=count) for count in (1, 2))
    for stage in (one, two):
        stage.settings["objective"] |= {"aggregation": aggregation, "kl": "k3"}
        stage.settings["training"]["beta"] = 0.05
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
        torch.testing.assert_close(value, two.weights(bool(adapter))[name], rtol=0, atol=1e-4)


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
        problems, said = train._prompts(job, setup.rollout_plan(settings), tokenizer)
        short = stage.short(rollout["max_prompt"])
        assert set(problems["problem_id"].to_pylist()) == short
        assert said == {"train_problems": 20, "long_prompts": 20 - len(short)}
    rollout["max_prompt"] = 17
    short = len(stage.short(17))
    fault = (
        f"rollout.max_prompt: 17: only {short} of 20 train problems have prompts that short, and rollout.prompts is 6"
    )
    with pytest.raises(StageError, match=f"^{fault}$"):
        train._prompts(job, setup.rollout_plan(settings), tokenizer)


def test_a_prompt_that_is_too_long_names_the_ways_out() -> None:
    config = LlamaConfig(max_position_embeddings=100)
    check_positions(config, [[1] * 40], "rollout.max_completion", 60)
    with pytest.raises(
        StageError, match=r"max_completion: 70: at most 60: .* 40 tokens, .*; or rollout.max_prompt: 30"
    ):
        check_positions(config, [[1] * 40, [1] * 30], "rollout.max_completion", 70)
    for key, completion in (("evaluation.max_completion", 70), ("rollout.max_completion", 71)):
        with pytest.raises(StageError, match=r"the model takes 100 tokens$"):
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
    monkeypatch.setattr(_devices, "_held", [])
    assert [_devices._least_held("0123", 1, tmp_path) for _ in range(3)] == [["0"], ["1"], ["2"]]
    assert _devices._least_held("0123", 2, tmp_path) == ["0", "3"]  # more jobs than GPUs: they share
    for file in _devices._held:
        file.close()
    assert _devices._least_held("0123", 2, tmp_path) == ["0", "1"]
