"""What the trainer's own work costs: the time of its steps over that of TRL's GRPOTrainer on the same rollouts.

    PYTHONPATH=. python tests/benchmarks/time_training.py --base results/STUDY/base/model [--prompts 32 --rounds 5]

Both replay one set of completions, so that generation, the same for both, is in neither. Rounds alternate and the
medians are compared; CPU seconds on one thread, since a machine may be shared.
"""

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOTrainer

from workflow_scripts.benchmarks import word_problems
from workflow_scripts.training import models, setup
from workflow_scripts.training.records import Recorder
from workflow_scripts.training.trainer import Trainer

OBJECTIVE = {
    "ratio": "token", "bounds": "ppo", "eps_low": 0.2, "eps_high": 0.2, "surrogate": "clipped",
    "advantage": {"scale": "none"}, "aggregation": "token-mean",
}  # fmt: skip


def reward(completions: list[str], **_: Any) -> list[float]:
    """About half of all completions are right."""
    return [float(len(text) % 2 == 0) for text in completions]


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


def seconds(kind: type, a: argparse.Namespace, replayed: dict[int, Any]) -> float:
    """CPU time of one training run."""
    model, tokenizer = models.load_base(a.base, "float32")
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
    with tempfile.TemporaryDirectory() as folder:
        trainer = kind(
            model=model, reward_funcs=reward,
            args=setup.configure({"output_dir": folder}, 0, settings, compute, plan, a.micro_batch, 64),
            train_dataset=Dataset.from_list(rows), processing_class=tokenizer, **own,
        )  # fmt: skip
        trainer.plan, trainer.replayed = plan, replayed
        start = time.process_time()
        with contextlib.redirect_stdout(open(os.devnull, "w")):
            trainer.train()
        return time.process_time() - start


def main() -> None:
    """Time both and print the ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--max-completion", type=int, default=48)
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    a = parser.parse_args()
    torch.set_num_threads(1)
    replayed: dict[int, Any] = {}
    seconds(Ours, a, replayed)  # draws the rollouts
    times: dict[str, list[float]] = {"ours": [], "TRL's": []}
    for number in range(2 * a.rounds):
        name, kind = (("ours", Ours), ("TRL's", Theirs))[number % 2]
        times[name].append(seconds(kind, a, replayed))
    ours, theirs = (statistics.median(times[name]) for name in times)
    pairs = [mine / other for mine, other in zip(times["ours"], times["TRL's"], strict=True)]
    print(f"a step: {ours / a.steps:.4f} s ours, {theirs / a.steps:.4f} s TRL's; ratio of medians {ours / theirs:.3f},")
    print(f"of neighbouring runs {' '.join(f'{pair:.3f}' for pair in pairs)}")


if __name__ == "__main__":
    main()
