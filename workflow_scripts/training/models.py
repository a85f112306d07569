"""Base weights, tokenizer and adapters from disk."""

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase


def load_base(folder: Path, dtype: str) -> tuple[Any, PreTrainedTokenizerBase]:
    """The base model and its tokenizer; the model forgets where it lay, so that what is saved from it names no path."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), local_files_only=True)
    model.config._name_or_path = "base"
    model.name_or_path = "base"
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


def load_checkpoint(base: Any, folder: Path, dtype: str) -> Any:
    """A trained checkpoint: the adapter put on the base (which is changed), or full weights in its place."""
    if (folder / "adapter_config.json").exists():
        if isinstance(base, PeftModel):
            base.load_adapter(folder, adapter_name=folder.name)
            base.set_adapter(folder.name)
            return base
        return PeftModel.from_pretrained(base, folder, adapter_name=folder.name)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), local_files_only=True)
