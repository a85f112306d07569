"""Base weights, tokenizer and adapters from disk."""

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase


def load_base(folder: Path, dtype: str) -> tuple[Any, PreTrainedTokenizerBase]:
    """The base model and its tokenizer."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), local_files_only=True)
    return model, AutoTokenizer.from_pretrained(folder, local_files_only=True)


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
    for config in getattr(model, "peft_config", {}).values():
        config.base_model_name_or_path = "base"
    model.save_pretrained(folder, safe_serialization=True)
    (folder / "README.md").unlink(missing_ok=True)


def load_checkpoint(base: Any, folder: Path, dtype: str) -> Any:
    """A trained checkpoint: the adapter put on the base (which is changed), or full weights in its place."""
    if (folder / "adapter_config.json").exists():
        if isinstance(base, PeftModel):
            base.load_adapter(folder, adapter_name=folder.name)
            base.set_adapter(folder.name)
            return base
        return PeftModel.from_pretrained(base, folder, adapter_name=folder.name)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), local_files_only=True)
