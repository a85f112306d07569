"""From the settings of a run to TRL's configuration, the arm's objective and the order of its prompts."""

from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from trl import GRPOConfig

from workflow_scripts.objectives.lookup import keywords, named
from workflow_scripts.sampling import Options, stream_seed
from workflow_scripts.training.objective import Objective, RolloutPlan
from workflow_scripts.training.processes import processes


def rollout_plan(settings: dict[str, Any]) -> RolloutPlan:
    """How rollout batches are made, from a run's settings."""
    rollout = settings["rollout"]
    return RolloutPlan(
        prompts=rollout["prompts"],
        group_size=rollout["group_size"],
        minibatches=rollout["minibatches"],
        epochs=rollout["epochs"],
        options=Options.of(rollout),
        prompt_family=settings["model"]["prompt_family"],
        date=settings["model"].get("date"),
        success_threshold=settings["training"]["success_threshold"],
    )


def prompt_order(rows: int, prompts: int, batches: int, seed: int) -> list[int]:
    """Row of the train set for every prompt of every rollout batch: a new permutation per pass, the same for all arms.

    Rows left over at the end of a pass, too few for a batch, wait for the next pass.
    """
    per_pass = rows // prompts
    order: list[int] = []
    for batch in range(batches):
        one_pass, place = divmod(batch, per_pass)
        if place == 0:
            random = np.random.Generator(np.random.Philox(key=stream_seed("order", seed, one_pass)))
            permutation = random.permutation(rows).tolist()
        order += permutation[place * prompts : (place + 1) * prompts]
    return order


def make_objective(axes: dict[str, Any], beta: float) -> Objective:
    """The arm's functions, looked up by name, with its numbers bound."""
    surrogate = named("surrogate", axes["surrogate"])
    policy = named("bounds", axes["bounds"]) if "bounds" in axes else None
    return Objective(
        ratio=axes["ratio"],
        bounds=partial(policy, **keywords(policy, axes)) if policy else None,
        surrogate=partial(surrogate, **keywords(surrogate, axes)),
        scale=named("advantage", axes["advantage"]["scale"]),
        focal_gamma=axes["advantage"].get("focal_gamma"),
        aggregation=axes["aggregation"],
        beta=beta,
        kl=axes.get("kl"),
    )


def configure(
    names: dict[str, str],
    seed: int,
    settings: dict[str, Any],
    compute: dict[str, Any],
    plan: RolloutPlan,
    micro_batch: int,
    longest_prompt: int,
) -> GRPOConfig:
    """TRL's configuration of a run from the study's settings (`training`) and the machine's (`compute`).

    names: output_dir, and run_name and project for trackers; micro_batch: rollouts at once, at most; longest_prompt: in
    tokens.
    """
    training = settings["training"]
    arguments = {
        **names, "seed": seed, "data_seed": seed, "max_steps": training["steps"],
        "learning_rate": training["learning_rate"], "lr_scheduler_type": training["schedule"],
        "warmup_steps": training["warmup_steps"], "max_grad_norm": training["max_grad_norm"],
        "beta": training["beta"], "temperature": plan.options.temperature, "top_p": plan.options.top_p,
        "top_k": plan.options.top_k or 0,
        "max_completion_length": plan.options.max_completion, "mask_truncated_completions": training["mask_truncated"],
        "scale_rewards": "none", "loss_type": "dapo", "shuffle_dataset": False, "disable_dropout": True,
        "importance_sampling_level": settings["objective"]["ratio"], "remove_unused_columns": False,
        "logging_steps": 1, "save_strategy": "no", "report_to": compute["trackers"] or "none",
        "disable_tqdm": True, "dataloader_pin_memory": False,
        "use_cpu": compute["device"] == "cpu",
        "gradient_checkpointing": compute["gradient_checkpointing"],
        "bf16": settings["model"]["dtype"] == "bfloat16", "use_vllm": compute["engine"] == "vllm",
        "vllm_importance_sampling_correction": True, "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": 2.0,
    }  # fmt: skip
    if compute["engine"] == "vllm":
        arguments |= {
            "vllm_mode": compute["vllm"]["mode"], "vllm_server_base_url": compute["vllm"]["server"],
            "vllm_gpu_memory_utilization": compute["vllm"]["training_memory"],
            "vllm_max_model_length": longest_prompt + plan.options.max_completion,
            "generation_kwargs": {"stop": list(plan.options.stop)} if plan.options.stop else None,
        }  # fmt: skip
    arguments |= plan.trl_arguments(micro_batch, processes(compute))
    return GRPOConfig(**{**arguments, **training["trl"]})


def rollout_engine(args: GRPOConfig) -> dict[str, Any]:
    """What draws the rollouts, for the record: its version, and what corrects the difference to the trained policy."""
    if not args.use_vllm:
        return {"engine": f"transformers {version('transformers')}"}
    correction = {
        name: getattr(args, f"vllm_importance_sampling_{name}")
        for name in ("correction", "mode", "clip_min", "clip_max")
    }
    import vllm

    return {"engine": f"vllm {vllm.__version__}", "mode": args.vllm_mode, "importance_sampling": correction}
