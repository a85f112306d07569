"""Can a model folder be trained from? What its files say before anything is loaded, and what the loaded model says.

A fault is a text that goes after the model's name, or None. transformers itself would go on in most of these cases:
with weights drawn at random, with another model than the one named, or with a traceback hours later.
"""

import json
from pathlib import Path
from typing import Any

from workflow_scripts import tables
from workflow_scripts.errors import UserError
from workflow_scripts.job import Job

INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tokenizer_config.json")
WANTED = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]  # of a snapshot on the hub
_SHOWN = 3


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _object(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def files_fault(folder: Path) -> str | None:
    """What is wrong with the files of a model folder; no weight is read, only the headers of the files."""
    if not (folder / "config.json").is_file():
        adapter = folder / "adapter_config.json"
        if not adapter.is_file():
            return "has no config.json"
        base = (_object(adapter) or {}).get("base_model_name_or_path") or "another model"
        return f"is an adapter of {base} alone; merge the two into a whole model, or name that one"
    config = _object(folder / "config.json")
    if config is None:
        return "config.json is damaged"
    if "quantization_config" in config:
        return "has quantised weights, which cannot be trained; take the model it was made from"
    kinds = config.get("architectures") or []
    if kinds and not any(kind.endswith(("ForCausalLM", "LMHeadModel")) for kind in kinds):
        return f"is a {kinds[0]}, no causal language model"
    if not any((folder / name).is_file() for name in TOKENIZER):
        return "has no tokenizer"
    return _weights_fault(folder)


def _weights_fault(folder: Path) -> str | None:
    from safetensors import SafetensorError, safe_open

    files = [WEIGHTS]
    if (folder / INDEX).exists():
        index = _object(folder / INDEX)
        if index is None or not isinstance(index.get("weight_map"), dict):
            return f"{INDEX} is damaged"
        files = sorted(set(index["weight_map"].values()))
        missing = [name for name in files if not (folder / name).is_file()]
        if missing:
            return f"is not complete: {INDEX} names {_some(missing)}, not there"
    elif not (folder / WEIGHTS).is_file():
        others = sorted(
            path.name for path in folder.glob("*") if path.suffix in (".safetensors", ".bin", ".pt", ".pth")
        )
        return f"has no {WEIGHTS}" + (f"; weights as {_some(others)} are not read" if others else "")
    for name in files:
        try:
            with safe_open(folder / name, "numpy"):
                pass
        except (OSError, SafetensorError) as error:
            return f"{name} is damaged or cut off ({error})"
    return None


def cached_snapshot(name: str, revision: str | None) -> Path | None:
    """Where a revision lies in the Hugging Face cache; None if it does not. It need not be whole: see files_fault."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True, allow_patterns=["config.json"]))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def loaded_fault(model: Any, tokenizer: Any, loading: dict[str, Any]) -> str | None:
    """What is wrong between weights, model and tokenizer. loading: transformers' own record of what it found."""
    if missing := sorted(loading["missing_keys"]):
        return f"is not complete: no weights for {_some(missing)}; they would be drawn at random"
    known = max(tokenizer.get_vocab().values(), default=-1) + 1
    rows = model.get_input_embeddings().weight.shape[0]
    if known > rows:
        return f"the tokenizer knows {known} tokens, the model {rows}; it is another model's"
    if tokenizer.eos_token_id is None:
        return "the tokenizer names no end token (eos_token in tokenizer_config.json)"
    return None


def base_folder(job: Job) -> Path:
    """Where the base model lies, its files checked against the manifest."""
    manifest = Path(job.input("base"))
    check_files(tables.read(manifest, tables.MANIFEST).to_pylist(), manifest, "make the base again")
    return manifest.parent / "model"


def check_files(rows: list[dict[str, Any]], manifest: Path, what: str) -> None:
    """Raises UserError unless a manifest's files are there and have its hashes. what: what deleting it would do."""
    for row in rows:
        file = manifest.parent / row["file"]
        if not file.is_file() or tables.file_sha256(file) != row["sha256"]:
            fault = "is missing" if not file.is_file() else "is not the one of the manifest"
            raise UserError(f"{file} {fault}; delete {manifest} to {what}")
