"""What the trainer's own work costs, all records on: step time and peak memory over those of TRL's GRPOTrainer on the
same rollouts.

    PYTHONPATH=. python tests/benchmarks/time_training.py --base results/STUDY/base/model [--prompts 32 --rounds 5]

Both replay one set of completions, so that generation, the same for both, is in neither. Each run is a process of its
own; rounds alternate, the median step of each run is taken and the medians over rounds are compared. CPU seconds on one
thread, since a machine may be shared. --reward graded: rewards differ, so that hardly a group is flat; half, rare: half
of the completions are right, or one in eight. The share of flat groups is printed.
"""

import argparse
import contextlib
import json
import os
import pickle
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOTrainer

from workflow_scripts.benchmarks import word_problems
from workflow_scripts.models import weights
from workflow_scripts.training import setup
from workflow_scripts.training.records import Recorder
from workflow_scripts.training.trainer import Trainer

OBJECTIVE = {
    "ratio": "token", "bounds": "ppo", "eps_low": 0.2, "eps_high": 0.2, "surrogate": "clipped",
    "advantage": {"scale": "none"}, "aggregation": "token-mean",
}  # fmt: skip


def graded(completions: list[str], **_: Any) -> list[float]:
    """Hardly two of a group are equal."""
    return [sum(map(ord, text)) % 97 / 97 for text in completions]


def half(completions: list[str], **_: Any) -> list[float]:
    """About half of all completions are right."""
    return [float(len(text) % 2 == 0) for text in completions]


def rare(completions: list[str], **_: Any) -> list[float]:
    """About one in eight is right."""
    return [float(sum(map(ord, text)) % 8 == 0) for text in completions]


class _Steps(TrainerCallback):
    """CPU seconds from the end of one optimizer step to the end of the next."""

    def __init__(self) -> None:
        self.stamps: list[float] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The first step starts."""
        self.stamps.append(time.process_time())

    on_step_end = on_train_begin

    @property
    def seconds(self) -> list[float]:
        """Of each step."""
        return [end - start for start, end in zip(self.stamps, self.stamps[1:], strict=False)]


class _Replaying:
    """Draws a batch of rollouts once and gives it out ever after."""

    replayed: dict[int, Any]

    def _tokenize_prompts(self, prompts: list[str]) -> Any:
        return Trainer._tokenize_prompts(self, prompts)  # type: ignore[arg-type]

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        batch = self.state.global_step // self.plan.updates_per_batch  # type: ignore[attr-defined]
        if batch not in self.replayed:
            self.replayed[batch] = super()._generate_single_turn(*args, **kwargs)  # type: ignore[misc]
        return self.replayed[batch]


class Ours(_Replaying, Trainer):
    """The trainer of this package."""


class Theirs(_Replaying, GRPOTrainer):
    """TRL's trainer."""


def measure(kind: type, a: argparse.Namespace, replayed: dict[int, Any]) -> dict[str, Any]:
    """One training run: CPU seconds of each of its steps, and what it held at most."""
    model, tokenizer = weights.load_base(a.base, "float32")
    settings = {
        "seed": 0, "model": {"dtype": "float32", "prompt_family": "plain"}, "objective": OBJECTIVE,
        "rollout": {
            "prompts": a.prompts, "group_size": 8, "minibatches": 2, "epochs": 2, "temperature": 1.0, "top_p": 1.0,
            "max_completion": a.max_completion,
        },
        "training": {
            "steps": a.steps, "learning_rate": 1e-5, "schedule": "constant", "warmup_steps": 0, "max_grad_norm": 1.0,
            "beta": 0.0, "mask_truncated": False, "success_threshold": 1.0, "trl": {},
        },
    }  # fmt: skip
    compute = {
        "gpus": 0, "processes": None, "device": "cpu", "engine": "transformers", "trackers": [],
        "gradient_checkpointing": False,
    }  # fmt: skip
    plan = setup.rollout_plan(settings)
    problems = word_problems.generate("train", a.prompts * a.steps // plan.updates_per_batch, seed=1)
    rows = [{"prompt": p["question"], "answer": p["answer"], "problem_id": str(i)} for i, p in enumerate(problems)]
    own: dict[str, Any] = {}
    if kind is Ours:
        own = {
            "objective": setup.make_objective(OBJECTIVE, 0.0), "plan": plan, "grade": None, "sample_batch": 128,
            "recorder": Recorder(plan.group_size, plan.updates_per_batch, plan.minibatches),
        }  # fmt: skip
    steps = _Steps()
    with tempfile.TemporaryDirectory() as folder:
        trainer = kind(
            model=model, reward_funcs=globals()[a.reward], callbacks=[steps],
            args=setup.configure({"output_dir": folder}, 0, settings, compute, plan, a.micro_batch, 64),
            train_dataset=Dataset.from_list(rows), processing_class=tokenizer, **own,
        )  # fmt: skip
        trainer.plan, trainer.replayed = plan, replayed
        with contextlib.redirect_stdout(open(os.devnull, "w")):
            trainer.train()
    flat = [entry["frac_reward_zero_std"] for entry in trainer.state.log_history if "frac_reward_zero_std" in entry]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"steps": steps.seconds, "MiB": peak, "flat": statistics.mean(flat)}


def in_a_process(name: str, a: argparse.Namespace, replay: Path) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, *sys.argv[1:], "--only", name, "--replay", str(replay)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Time both and print the ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--max-completion", type=int, default=48)
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--reward", choices=("graded", "half", "rare"), default="graded")
    parser.add_argument("--only", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--replay", type=Path, help=argparse.SUPPRESS)
    a = parser.parse_args()
    torch.set_num_threads(1)
    if a.only:
        replayed = pickle.loads(a.replay.read_bytes()) if a.replay.exists() else {}
        print(json.dumps(measure(KINDS[a.only], a, replayed)))
        if not a.replay.exists():
            a.replay.write_bytes(pickle.dumps(replayed))
        return
    with tempfile.TemporaryDirectory() as folder:
        replay = Path(folder) / "completions"
        in_a_process("ours", a, replay)  # draws them
        found = {name: [] for name in KINDS}  # type: dict[str, list[dict[str, Any]]]
        for _ in range(a.rounds):
            for name in KINDS:
                found[name].append(in_a_process(name, a, replay))
    for what, value in (
        ("median step, CPU s", lambda run: statistics.median(run["steps"])),
        ("mean step, CPU s", lambda run: statistics.mean(run["steps"])),
        ("peak memory, MiB", lambda run: run["MiB"]),
    ):
        ours, theirs = ([value(run) for run in found[name]] for name in KINDS)
        pairs = " ".join(f"{mine / other:.3f}" for mine, other in zip(ours, theirs, strict=True))
        mine, other = statistics.median(ours), statistics.median(theirs)
        print(f"{what}: {mine:.4g} ours, {other:.4g} TRL's, ratio {mine / other:.3f}; of neighbouring runs {pairs}")
    print(f"flat groups: {found['ours'][0]['flat']:.3f}")


KINDS = {"ours": Ours, "TRL": Theirs}

if __name__ == "__main__":
    main()
