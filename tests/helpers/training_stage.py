"""Shared by the tests of the training stage: one run's folder, and the command line that trains in it."""

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from workflow_scripts import tables
from workflow_scripts.benchmarks import word_problems
from workflow_scripts.models import warm_start
from workflow_scripts.training import state

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
import os, resource, shutil, signal
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

def counted(completions, trainer_state, **_):
    here = Path(__file__).parent
    with open(here / "drawn", "a") as file:
        file.write(f"{trainer_state.global_step}\\n")
    batches = len((here / "drawn").read_text().split()) if (here / "die").exists() else 0
    if batches == 2:
        shutil.copytree(next(here.glob("results/state/*/*/*/checkpoint-*")), here / "aside")
    if batches == 3:
        (here / "die").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return half_right(completions)

def killed(completions, **_):
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return half_right(completions)

def with_little_memory(completions, **_):
    used = int(next(l for l in open("/proc/self/status") if l.startswith("VmSize")).split()[1]) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (used + int(os.environ["SPARE"]) * 2**20, resource.RLIM_INFINITY))
    return half_right(completions)
"""
RECORDS = ("rollout_updates", "tail_tokens", "rollouts", "trainer_log", "checkpoints")
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
        self.branch: Path | None = None  # the state to start from
        self.branch_states: list[Path] = []  # states to leave

    def copied(self, folder: Path) -> "Stage":
        """The same at another place, as far as it has come."""
        shutil.copytree(self.root.parent, folder)
        other = copy.copy(self)
        other.settings, other.compute = copy.deepcopy(self.settings), copy.deepcopy(self.compute)
        other.root, other.run = folder / "results", folder / "results" / self.run.relative_to(self.root)
        other.branch_states = [other.root / path.relative_to(self.root) for path in self.branch_states]
        other.branch = self.branch and other.root / self.branch.relative_to(self.root)
        return other

    @property
    def drawn(self) -> list[int]:
        """Steps before which a rollout batch was drawn (`rewards:counted`)."""
        path = self.root.parent / "drawn"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def files(self) -> dict[str, str]:
        """What a run has left under runs and state: hash of each file; of what a kept state says of times and places,
        only that it is there."""
        paths = [p for part in ("runs", "state") for p in (self.root / part).rglob("*") if p.is_file()]
        timed = ("state.json", "trainer_state.json", "training_args.bin")
        return {p.relative_to(self.root).as_posix(): "" if p.name in timed else tables.file_sha256(p) for p in paths}

    def short(self, tokens: int) -> set[str]:
        """Ids of the train problems with prompts of at most so many tokens."""
        tokenizer = AutoTokenizer.from_pretrained(self.root / "base" / "model")
        rows = tables.read(self.root / "data" / "train.parquet", tables.PROBLEMS).to_pylist()
        return {row["problem_id"] for row in rows if len(tokenizer(row["question"])["input_ids"]) <= tokens}

    @property
    def arguments(self) -> list[str]:
        """The stage's command line, as the rule gives it."""
        branch = [str(self.branch)] if self.branch else []
        return [
            "--settings", json.dumps(self.settings), "--compute", json.dumps(self.compute), "--code", "0",
            "--root", str(self.root), "--input", f"base={self.root}/base/manifest.parquet",
            f"train={self.root}/data/train.parquet", *(f"branch={path}" for path in branch),
            "--output", *(f"{name}={self.run}/{name}.parquet" for name in RECORDS),
            *(f"branch_states={path}" for path in self.branch_states),
        ]  # fmt: skip

    def start(self, **environment: str) -> subprocess.Popen[str]:
        """The stage as a process, left running."""
        command = [sys.executable, "-m", "workflow_scripts.stages.train", *self.arguments]
        path = os.pathsep.join([str(self.root.parent), str(Path(__file__).parents[2])])
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )  # fmt: skip

    def train(self, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(**environment)
        try:
            said, _ = process.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, said)

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
