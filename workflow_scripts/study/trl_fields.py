"""Which fields of TRL's GRPOConfig a study may set through `training.trl`, and the type each of them takes.

From `--config` every value below a section arrives as text, and YAML 1.1 reads 1e-2 as text. A value is therefore read
by the type of its field, so that a number and its text are one setting with one cache key.
"""

import ast
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from workflow_scripts.study.faults import line, nearest

_PIPELINE = "not here: the pipeline sets it"
_SAMPLER = "not here: rollouts are drawn by the pipeline's own sampler, from rollout.temperature, top_p and top_k"
_LOSS = "not here: the loss is made of the arm's choices (arms.NAME.ratio, bounds, surrogate, advantage, aggregation)"
_EXTENDS = {
    "trl": ("trainer/grpo_config.py", "trainer/base_config.py"),
    "transformers": ("training_args.py",),
}

# GRPOConfig fields that a study may not set here: the key to use, or the reason.
_SAID_ELSEWHERE = {
    "max_steps": "training.steps",
    "num_train_epochs": "training.steps",
    "learning_rate": "training.learning_rate",
    "lr_scheduler_type": "training.schedule",
    "warmup_steps": "training.warmup_steps",
    "warmup_ratio": "training.warmup_steps",
    "max_grad_norm": "training.max_grad_norm",
    "beta": "training.beta",
    "mask_truncated_completions": "training.mask_truncated",
    "reward_weights": "training.reward",
    "num_generations": "rollout.group_size",
    "generation_batch_size": "rollout.prompts",
    "steps_per_generation": "rollout.minibatches",
    "num_iterations": "rollout.epochs",
    "temperature": "rollout.temperature",
    "top_p": "rollout.top_p",
    "top_k": "rollout.top_k",
    "max_prompt_length": "rollout.max_prompt",
    "max_completion_length": "rollout.max_completion",
    "epsilon": "arms.NAME.eps_low",
    "epsilon_high": "arms.NAME.eps_high",
    "delta": "arms.NAME.dual_clip_bound",
    "importance_sampling_level": "arms.NAME.ratio",
    "loss_type": "arms.NAME.aggregation",
    "scale_rewards": "arms.NAME.advantage.scale",
    "sapo_temperature_pos": "arms.NAME.sapo_tau",
    "sapo_temperature_neg": "arms.NAME.sapo_tau",
    "seed": "seeds",
    "data_seed": "seeds",
    "per_device_train_batch_size": "compute.micro_batch",
    "gradient_accumulation_steps": "compute.micro_batch",
    "gradient_checkpointing": "compute.gradient_checkpointing",
    "report_to": "compute.trackers",
    "use_cpu": "compute.device",
    "use_vllm": "compute.engine",
    "vllm_mode": "compute.vllm.mode",
    "vllm_server_base_url": "compute.vllm.server",
    "vllm_server_host": "compute.vllm.server",
    "vllm_server_port": "compute.vllm.server",
    "vllm_gpu_memory_utilization": "compute.vllm.training_memory",
    "bf16": "model.dtype",
    "fp16": "model.dtype",
    "model_init_kwargs": "model",
}
_REFUSED = (
    {name: f"not here: use {key}" for name, key in _SAID_ELSEWHERE.items()}
    | dict.fromkeys(
        (
            "output_dir", "save_strategy", "save_steps", "save_total_limit", "logging_steps", "logging_strategy",
            "eval_strategy", "shuffle_dataset", "disable_dropout", "remove_unused_columns", "resume_from_checkpoint",
            "push_to_hub", "ignore_data_skip", "save_only_model", "auto_find_batch_size", "dataloader_drop_last",
            "load_best_model_at_end", "num_generations_eval", "full_determinism", "vllm_max_model_length",
            "parallelism_config",
        ),
        _PIPELINE,
    )
    | dict.fromkeys(
        (
            "min_p", "repetition_penalty", "generation_kwargs", "chat_template_kwargs", "cache_implementation",
            "use_transformers_paged", "use_transformers_continuous_batching",
        ),
        _SAMPLER,
    )
    | dict.fromkeys(
        (
            "top_entropy_quantile", "entropy_coef", "use_adaptive_entropy",
            "off_policy_mask_threshold", "sync_ref_model", "neftune_noise_alpha", "use_bias_correction_kl",
            "use_liger_kernel", "multi_objective_aggregation", "entropy_coef_min", "entropy_coef_max",
            "entropy_coef_delta", "entropy_target", "ref_model_mixup_alpha", "ref_model_sync_steps", "vespo_k_pos",
            "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg",
        ),
        _LOSS,
    )
)  # fmt: skip


# GRPOConfig fields that change logs, progress, evaluation, uploads or waiting times, and never a weight.
_WITHOUT_EFFECT = frozenset(
    (
        "logging_first_step", "log_on_each_node", "logging_nan_inf_filter", "include_num_input_tokens_seen",
        "log_level", "log_level_replica", "disable_tqdm", "run_name", "project", "trackio_space_id",
        "trackio_bucket_id", "trackio_static_space_id", "log_completions", "log_multimodal",
        "num_completions_to_print", "log_unique_prompts", "log_completions_hub_repo", "skip_memory_metrics",
        "eval_steps", "eval_delay", "per_device_eval_batch_size", "prediction_loss_only", "eval_do_concat_batches",
        "eval_use_gather_object", "eval_accumulation_steps", "include_for_metrics", "batch_eval_metrics",
        "bf16_full_eval", "fp16_full_eval", "metric_for_best_model", "greater_is_better", "do_train", "do_eval",
        "do_predict", "save_on_each_node", "hub_token", "hub_private_repo", "hub_model_id", "hub_strategy",
        "hub_always_push", "hub_revision", "dataloader_num_workers", "dataloader_pin_memory",
        "dataloader_persistent_workers", "dataloader_prefetch_factor", "torch_empty_cache_steps", "ddp_timeout",
        "vllm_server_timeout", "vllm_group_port",
    )
)  # fmt: skip
_NO_DEFAULT = object()  # none, or one that is no literal


class _Field(NamedTuple):
    kinds: frozenset[str]  # of the keys of _KINDS
    names: tuple[str, ...] = ()  # where it is an enumeration: what a text may be
    default: Any = _NO_DEFAULT


_KINDS = {
    "float": "a number", "int": "a whole number", "bool": "true or false", "list": "a list",
    "dict": "a mapping of keys to values", "str": "text (what YAML reads as a number or as true or false needs quotes)",
    "None": "null",
}  # fmt: skip


@lru_cache(None)
def _trainer_fields() -> Mapping[str, _Field]:
    """Fields of TRL's GRPOConfig and what it extends, read from the installed sources: importing
    TRL takes seconds."""
    classes: list[ast.ClassDef] = []
    for package, files in _EXTENDS.items():
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for file in (Path(folder) / name for name in files):
                tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
                classes += [node for node in tree.body if isinstance(node, ast.ClassDef)]
    enumerations = {node.name: names for node in classes if (names := _enumerated(node))}
    fields: dict[str, _Field] = {}
    for node in classes:
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                field = _field(statement.annotation, enumerations)._replace(default=_default(statement.value))
                fields.setdefault(statement.target.id, field)  # the class that extends another comes first
    return fields


def _default(value: ast.expr | None) -> Any:
    """The default of a dataclass field."""
    given = {word.arg: word.value for word in value.keywords} if isinstance(value, ast.Call) else {}
    try:
        return ast.literal_eval(given.get("default", value) or value)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return _NO_DEFAULT


def _enumerated(node: ast.ClassDef) -> tuple[str, ...]:
    """The texts of an enumeration, (); of any other class."""
    if not any(isinstance(base, ast.Name) and base.id.endswith("Enum") for base in node.bases):
        return ()
    values = [statement.value for statement in node.body if isinstance(statement, ast.Assign)]
    return tuple(v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str))


def _field(annotation: ast.expr, enumerations: Mapping[str, tuple[str, ...]]) -> _Field:
    """What an annotation such as `OptimizerNames | str` or `dict[str, Any] | None` takes."""
    if isinstance(annotation, ast.BinOp):
        left, right = _field(annotation.left, enumerations), _field(annotation.right, enumerations)
        return _Field(left.kinds | right.kinds, left.names or right.names)
    if isinstance(annotation, ast.Subscript):
        return _field(annotation.value, enumerations)
    name = annotation.id if isinstance(annotation, ast.Name) else ast.unparse(annotation)
    # Literal[False] stands for a flag; an enumeration, or any other class, is written as text
    kind = "bool" if name == "Literal" else name if name in _KINDS else "str"
    return _Field(frozenset({kind}), enumerations.get(name, ()))


def _from_yaml(text: str) -> Any:
    """What a text is as a plain value of YAML; 1e-2, which YAML 1.1 takes for text, is a number all the same."""
    try:
        value = yaml.safe_load(text)
        return float(value) if isinstance(value, str) and value[:1] in "+-.0123456789" else value
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def _allowed(kinds: frozenset[str]) -> str:
    return " or ".join(words for kind, words in _KINDS.items() if kind in kinds)


def _nested(value: Any) -> Any:
    """A value whose type is not known, as YAML would have given it."""
    read = _from_yaml(value) if isinstance(value, str) else value
    if isinstance(read, Mapping):
        return {key: _nested(part) for key, part in read.items()}
    if isinstance(read, (list, tuple)):
        return [_nested(part) for part in read]
    if isinstance(read, float) and not math.isfinite(read):
        return value
    return read if read is None or isinstance(read, (bool, int, float)) else value


def _as(kinds: frozenset[str], value: Any) -> Any:
    """A value as a field of these kinds takes it. Raises ValueError where the field does not take it."""
    if isinstance(value, str):
        return _text_as(kinds, value)
    if value is None and "None" in kinds:
        return None
    if isinstance(value, bool) and "bool" in kinds:
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with suppress(OverflowError):  # more digits than a float holds
            if "float" in kinds and math.isfinite(float(value)):
                return float(value)
            if "int" in kinds and math.isfinite(value) and value == int(value):
                return int(value)
        if "bool" in kinds and value in (0, 1):
            return bool(value)
    if isinstance(value, (list, tuple)) and "list" in kinds:
        return list(value)
    if isinstance(value, Mapping) and "dict" in kinds:
        return _nested(value)
    raise ValueError(_allowed(kinds))


def _text_as(kinds: frozenset[str], text: str) -> Any:
    """A text as a field of these kinds takes it. Raises ValueError where the field does not take it."""
    if kinds <= {"str", "None"}:
        return None if "None" in kinds and text in ("null", "~") else text
    value = _from_yaml(text)
    if not isinstance(value, str):
        with suppress(ValueError):
            return _as(kinds, value)
    if "str" in kinds:
        return text
    if "list" in kinds:  # a single text where a list belongs
        return [text]
    raise ValueError(_allowed(kinds))


def as_trl_types(given: dict[str, Any]) -> dict[str, Any]:
    """`training.trl` with each value as its field takes it. A value that cannot be converted stays as it is, for
    `trl_faults` to name it."""
    read = dict(given)
    for name, value in given.items():
        if name in _trainer_fields() and name not in _REFUSED:
            with suppress(ValueError):
                read[name] = _as(_trainer_fields()[name].kinds, value)
    return read


def reaching_the_weights(given: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """The fields that can change what is trained: without those of logs and the like, those of vLLM where it draws no
    rollouts, and those that only repeat TRL's default."""

    def matters(name: str, value: Any) -> bool:
        if name in _WITHOUT_EFFECT:
            return False
        if name.startswith("vllm_"):  # the pipeline sets some of them itself: TRL's default is not what they would be
            return engine == "vllm"
        field = _trainer_fields().get(name)
        return field is None or bool(field.default != value)

    return {name: value for name, value in given.items() if matters(name, value)}


def trl_faults(path: str, given: Mapping[str, Any]) -> Iterator[str]:
    """Lines for fields that TRL does not have, for those that the study sets by other keys, and for values of another
    type than the field's."""
    fields = _trainer_fields()
    for name, value in given.items():
        if name in _REFUSED:
            yield line(f"{path}.{name}", value, _REFUSED[name])
        elif fields and name not in fields:
            yield line(f"{path}.{name}", value, "no field of TRL's GRPOConfig" + nearest(name, fields))
        elif fields:
            yield from _value_faults(f"{path}.{name}", value, fields[name])


def _value_faults(path: str, value: Any, field: _Field) -> Iterator[str]:
    try:
        read = _as(field.kinds, value)
    except ValueError as error:
        yield line(path, value, str(error))
    else:
        if field.names and isinstance(read, str) and read not in field.names:
            yield line(path, value, f"one of {', '.join(field.names)}{nearest(read, field.names)}")
