"""Shared by the tests of training: one small run of the trainer, in a folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset

from workflow_scripts.benchmarks import word_problems
from workflow_scripts.models import warm_start, weights
from workflow_scripts.training import callbacks, setup
from workflow_scripts.training.records import Recorder
from workflow_scripts.training.state import StateFolder, weights_hash
from workflow_scripts.training.trainer import Trainer

ROLLOUT = {
    "prompts": 4, "group_size": 4, "minibatches": 2, "epochs": 2, "temperature": 1.0, "top_p": 1.0, "max_completion": 8,
}  # fmt: skip
TRAINING = {
    "steps": 8, "checkpoints": [4, 8], "learning_rate": 1e-2, "schedule": "constant", "warmup_steps": 0,
    "max_grad_norm": 1.0, "beta": 0.0, "mask_truncated": False, "reward": "exact_answer", "success_threshold": 1.0,
    "trl": {},
}  # fmt: skip
PPO = {
    "ratio": "token", "bounds": "ppo", "eps_low": 0.2, "eps_high": 0.28, "surrogate": "clipped",
    "advantage": {"scale": "none"}, "aggregation": "token-mean",
}  # fmt: skip
LORA = {"rank": 2, "alpha": 4, "targets": ["q_proj", "v_proj", "o_proj"]}
COMPUTE = {
    "gpus": 0, "processes": None, "device": "cpu", "engine": "transformers", "trackers": [],
    "gradient_checkpointing": False,
}  # fmt: skip


def half_right(completions: list[str], **_: Any) -> list[float]:
    """A reward that an untrained model gets about half the time."""
    return [float(len(text) % 2 == 0) for text in completions]


class Run:
    """One small run in a folder. base: (tokenizer, seed) -> the model it starts from; training: keys of `training`."""

    def __init__(
        self,
        folder: Path,
        objective: dict[str, Any] = PPO,
        seed: int = 0,
        micro_batch: int = 4,
        kind: type[Trainer] = Trainer,
        reward: Callable[..., list[float]] = half_right,
        identity: str = "a",
        branches: tuple[int, ...] = (),
        adapter: dict[str, Any] | None = None,
        dtype: str = "float32",
        compute: dict[str, Any] | None = None,
        words: int = 0,
        base: Callable[..., Any] = warm_start.small_llama,
        **training: Any,
    ) -> None:
        torch.set_num_threads(1)
        settings = {
            "seed": seed, "model": {"dtype": dtype, "prompt_family": "plain", "adapter": adapter},
            "objective": objective, "rollout": ROLLOUT, "training": {**TRAINING, **training},
        }  # fmt: skip
        compute = {**COMPUTE, **(compute or {})}
        plan = setup.rollout_plan(settings)
        steps = settings["training"]["steps"]
        start = folder / "base"  # on disk: TRL loads the reference model of a KL penalty from there
        more = [f"word{number}" for number in range(words)]
        tokenizer = warm_start.word_tokenizer([*word_problems.vocabulary(), *more])
        tokenizer.save_pretrained(start)
        base(tokenizer, seed=0).save_pretrained(start)
        model, tokenizer = weights.load_base(start, weights.training_dtype(settings["model"]))
        problems = word_problems.generate("train", 20, seed=1)
        order = setup.prompt_order(len(problems), plan.prompts, steps // plan.updates_per_batch, seed)
        rows = [{"prompt": problems[i]["question"], "answer": "1", "problem_id": str(i)} for i in order]
        self.recorder = Recorder(plan.group_size, plan.updates_per_batch, plan.minibatches)
        self.folder = folder
        self.state = StateFolder(folder / "state", identity)
        self.keeper = callbacks.Keeper(
            folder,
            settings["training"]["checkpoints"],
            branches,
            self.state,
            self.recorder,
            plan.updates_per_batch,
            True,
        )
        self.trainer = kind(
            model=model,
            args=setup.configure(
                {"output_dir": str(self.state.saving)}, seed, settings, compute, plan, micro_batch, 32
            ),
            reward_funcs=reward,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            peft_config=weights.lora(adapter) if adapter else None,
            callbacks=[self.keeper],
            objective=setup.make_objective(objective, settings["training"]["beta"]),
            plan=plan,
            recorder=self.recorder,
            grade=None,
            sample_batch=64,
        )

    def train(self, resume: Path | None = None) -> "Run":
        self.trainer.train(resume_from_checkpoint=str(resume) if resume else None)
        return self

    @property
    def weights(self) -> str | None:
        return weights_hash(self.trainer.model, trainable=True)

    def records(self) -> dict[str, list[dict[str, Any]]]:
        return {name: rows.to_pylist() for name, (_, rows) in self.recorder.tables().items()}
