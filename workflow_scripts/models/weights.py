"""Base weights, tokenizer and adapters from disk."""

import json
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)


def load_base(folder: Path, dtype: str) -> tuple[Any, PreTrainedTokenizerBase]:
    """The base model and its tokenizer.

    Of its generation config only the special tokens stay: `generate` would take every other field a study does not set
    (a repetition penalty, say) from there, and rollouts would not come from the policy whose ratio is taken.
    """
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    _drop_nothing(config)
    if hasattr(config.get_text_config(), "output_router_logits"):  # TRL asks for them where it takes the routers' loss
        config.get_text_config().output_router_logits = False
    model = AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=getattr(torch, dtype), local_files_only=True
    )
    tokens = ("bos_token_id", "eos_token_id", "pad_token_id")
    model.generation_config = GenerationConfig(**{name: getattr(model.generation_config, name) for name in tokens})
    return model, AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _drop_nothing(config: PreTrainedConfig) -> None:
    """All dropout off, or the ratio would not be 1 at the first update of a batch. TRL's `disable_dropout` finds only
    that of modules; many models (OPT, BERT-like ones) apply it as a function, at the rate in their configuration. So do
    mixtures of experts with the noise of their routers."""
    for name, value in vars(config).items():
        if isinstance(value, PreTrainedConfig):
            _drop_nothing(value)
        elif isinstance(value, float) and ("drop" in name or name.endswith("jitter_noise")):
            setattr(config, name, 0.0)


def training_dtype(model: dict[str, Any]) -> str:
    """The dtype in which a study's weights are loaded to be trained: float32 where all of them train.

    In bfloat16, three significant digits, an update of the usual size would be rounded away; it is then the dtype of
    the computation (autocast), as under an adapter, whose own weights are float32 and whose base stays as it is.
    """
    return model["dtype"] if model.get("adapter") else "float32"


def lora(adapter: dict[str, Any]) -> LoraConfig:
    """A LoRA configuration from the study's `model.adapter`."""
    return LoraConfig(
        r=adapter["rank"],
        lora_alpha=adapter["alpha"],
        target_modules=adapter["targets"],
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )


def save_checkpoint(model: Any, folder: Path) -> None:
    """Only what changed, the adapter or else all weights, as safetensors; the files name no path of the machine."""
    if not isinstance(model, PeftModel):
        model.save_pretrained(folder)
        return
    model.save_pretrained(folder, save_embedding_layers=False)  # they are never trained; asking would ask the hub
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    path.write_text(plain_adapter_config(path), encoding="utf-8")


def plain_adapter_config(path: Path) -> str:
    """What peft wrote there, without a path of the machine, and the same for every run."""
    config = json.loads(path.read_text(encoding="utf-8")) | {"base_model_name_or_path": "base"}
    if isinstance(config["target_modules"], list):  # peft writes a set, in an order that changes from run to run
        config["target_modules"].sort()
    return json.dumps(config, indent=2, sort_keys=True) + "\n"


def is_adapter(folder: Path) -> bool:
    """Whether a checkpoint is an adapter, and not all weights."""
    return (folder / "adapter_config.json").exists()


def adapter_fault(base: Any, folder: Path) -> str | None:
    """Where an adapter does not fit the base: peft would leave out what finds no place, with a warning."""
    layers = {name.removeprefix("base_model.model.").replace(".base_layer", ""): m for name, m in base.named_modules()}
    with safe_open(folder / "adapter_model.safetensors", "pt") as file:
        for key in sorted(file.keys()):
            module, _, part = key.removeprefix("base_model.model.").rpartition(".lora_")
            weight = getattr(layers.get(module), "weight", None)
            if weight is None:
                return f"{module} is no layer of this base"
            if part not in ("A.weight", "B.weight"):
                continue
            shape, axis = file.get_slice(key).get_shape(), 1 if part == "A.weight" else 0
            if shape[axis] != weight.shape[axis]:
                return f"{module} has {shape[axis]} {('outputs', 'inputs')[axis]} there and {weight.shape[axis]} here"
    return None


def load_checkpoint(base: Any, folder: Path, dtype: str) -> Any:
    """A trained checkpoint: the adapter put on the base (which is changed), or full weights in its place."""
    if is_adapter(folder):
        if isinstance(base, PeftModel):
            base.load_adapter(folder, adapter_name=folder.name)
            base.set_adapter(folder.name)
            return base
        return PeftModel.from_pretrained(base, folder, adapter_name=folder.name)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), local_files_only=True)
