"""Models that cannot be trained from, each named in one line before any training; and what a full disk is called."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from peft import get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM

from workflow_scripts.benchmarks import word_problems
from workflow_scripts.errors import UserError
from workflow_scripts.job import Job
from workflow_scripts.models import warm_start, weights
from workflow_scripts.stages import prepare_base

LORA = {"rank": 4, "alpha": 8, "targets": "all-linear"}
CHAT = "{% for m in messages %}{{ m.content }} {% endfor %}"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a small whole model."""
    folder = tmp_path / "model"
    tokenizer = warm_start.word_tokenizer(word_problems.vocabulary())
    tokenizer.save_pretrained(folder)
    warm_start.small_llama(tokenizer, seed=0).save_pretrained(folder)
    return folder


FITS = {
    "prompt_family": "plain", "adapter": None, "rollout.max_completion": 32, "evaluation.max_completion": 32,
}  # fmt: skip


def prepared(folder: Path, fits: dict[str, Any] | None = None, **wanted: str) -> Path:
    """Runs prepare_base on it; returns the folder that training would read."""
    root = folder.parent / "results"
    job = Job(
        settings={"model": {"source": "local", "name": str(folder), "dtype": "float32"} | wanted},
        compute={"threads": 1, "fits": FITS | (fits or {})},
        code="",
        root=root,
        inputs={},
        outputs={"manifest": [str(root / "base" / "manifest.parquet")]},
        libraries=(),
    )
    prepare_base.main(job)
    return root / "base" / "model"


def edit(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file; None takes a key out."""
    value = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in value.items() if v is not None}))


def shards(folder: Path) -> None:
    """The same weights in two files with an index."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    index = {}
    for number, part in enumerate((names[:5], names[5:]), start=1):
        file = f"model-{number:05d}-of-00002.safetensors"
        save_file({name: weights[name] for name in part}, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def half_downloaded(folder: Path) -> None:
    shards(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


def damaged_index(folder: Path) -> None:
    shards(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": ')


def cut_off(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def without(*names: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        save_file({k: v for k, v in weights.items() if k not in names}, folder / "model.safetensors")

    return change


def adapter_only(folder: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(folder)
    for path in folder.iterdir():
        path.unlink()
    trained = get_peft_model(base, weights.lora({"rank": 2, "alpha": 4, "targets": "all-linear"}))
    trained.save_pretrained(folder)
    edit(folder / "adapter_config.json", base_model_name_or_path="owner/big-model")


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def other_tokenizer(folder: Path) -> None:
    warm_start.word_tokenizer([*word_problems.vocabulary(), "more", "words"]).save_pretrained(folder)


def masked(folder: Path) -> None:
    sizes = {"vocab_size": 80, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertForMaskedLM(BertConfig(**sizes, intermediate_size=16)).save_pretrained(folder)


def no_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "half downloaded": (half_downloaded, "is not complete: .* names model-00002-of-00002.safetensors, not there"),
    "damaged index": (damaged_index, "model.safetensors.index.json is damaged"),
    "cut off": (cut_off, "model.safetensors is damaged or cut off"),
    "one weight missing": (
        without("model.layers.1.mlp.up_proj.weight"),
        r"no weights for model.layers.1.mlp.up_proj.weight; they would be drawn at random",
    ),
    "many missing": (
        without(*(f"model.layers.1.self_attn.{k}_proj.weight" for k in "qkvo")), r"q_proj.weight|k_proj.* and 1 more;"
    ),
    "adapter alone": (adapter_only, "an adapter of owner/big-model alone"),
    "pickled": (pickled, "has no model.safetensors; weights as pytorch_model.bin are not read"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors$"),
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "damaged config": (lambda f: (f / "config.json").write_text("{"), "config.json is damaged"),
    "unknown kind": (lambda f: edit(f / "config.json", model_type="made_up"), "cannot be loaded: .*made_up"),
    "not causal": (masked, "is a BertForMaskedLM, no causal language model"),
    "quantised": (lambda f: edit(f / "config.json", quantization_config={"quant_method": "gptq"}), "quantised weights"),
    "other shapes": (lambda f: edit(f / "config.json", intermediate_size=96), "cannot be loaded: .*size"),
    "no tokenizer": (no_tokenizer, "has no tokenizer"),
    "other tokenizer": (other_tokenizer, r"the tokenizer knows \d+ tokens, the model \d+"),
    "no end token": (
        lambda f: edit(f / "tokenizer_config.json", eos_token=None, pad_token=None), "the tokenizer names no end token"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "said"), BAD.values(), ids=BAD)
def test_a_model_that_cannot_be_trained_from_is_named(change: Callable[[Path], None], said: str, model: Path) -> None:
    change(model)
    with pytest.raises(UserError, match=said) as caught:
        prepared(model)
    assert str(caught.value).startswith(f"model.name: {model}: ")
    assert "\n" not in str(caught.value)
    assert not (model.parent / "results" / "base" / "model").exists()


def test_tied_weights_and_shards_are_whole_models(model: Path) -> None:
    before = load_file(model / "model.safetensors")
    assert "lm_head.weight" not in before  # tied: it stands in the file once
    shards(model)
    after = load_file(prepared(model) / "model.safetensors")
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_half_precision_becomes_the_dtype_that_is_asked_for(model: Path) -> None:
    AutoModelForCausalLM.from_pretrained(model, dtype=torch.float16).save_pretrained(model)
    assert {w.dtype for w in load_file(prepared(model) / "model.safetensors").values()} == {torch.float32}
    assert json.loads((prepared(model, dtype="bfloat16") / "config.json").read_text())["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (None, "the tokenizer has no chat template"),
        ("{{ raise_exception('no system') }}", "the tokenizer's chat template fails: no system"),
        ("{% for %}", "the tokenizer's chat template fails: "),
    ],
)
def test_a_chat_family_needs_a_chat_template_that_works(model: Path, template: str | None, said: str) -> None:
    for text in (template, CHAT):
        tokenizer = AutoTokenizer.from_pretrained(model)
        tokenizer.chat_template = text
        tokenizer.save_pretrained(model)
        if text != CHAT:
            with pytest.raises(UserError, match=f"model.prompt_family: chat: {said}"):
                prepared(model, {"prompt_family": "chat"})
    assert AutoTokenizer.from_pretrained(prepared(model, {"prompt_family": "chat"})).chat_template == CHAT


def test_what_the_study_asks_for_must_fit_the_model(model: Path) -> None:
    wrong = {"adapter": LORA | {"targets": ["q_prj"]}}
    with pytest.raises(UserError, match=r"model.adapter.targets: \['q_prj'\]: .*not found"):
        prepared(model, wrong)
    assert not (model.parent / "results" / "base" / "manifest.parquet").exists()
    prepared(model, {"adapter": LORA})
    edit(model / "config.json", max_position_embeddings=64)
    with pytest.raises(UserError, match=r"evaluation.max_completion: 64: .* the model takes 64 tokens"):
        prepared(model, {"evaluation.max_completion": 64})


def test_a_missing_padding_token_is_replaced_and_said(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(model / "tokenizer_config.json", pad_token=None)
    assert AutoTokenizer.from_pretrained(prepared(model)).pad_token == "<eos>"
    assert "no padding token: <eos> is used" in capsys.readouterr().out


def test_a_snapshot_is_taken_from_the_cache(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    on_hub = {"source": "hub", "name": "owner/small", "revision": "a" * 40}
    with pytest.raises(UserError, match=r"model.name: owner/small \(revision aaa.*set HF_HOME to a cache") as caught:
        prepared(model, **on_hub)
    assert "\n" not in str(caught.value)
    shutil.copytree(model, tmp_path / "cache" / "models--owner--small" / "snapshots" / ("a" * 40))
    assert load_file(prepared(model, **on_hub) / "model.safetensors").keys()


WRITERS = {
    "text": "open(path, 'w').write('x' * 3_000_000)",
    "parquet": "import pyarrow as pa; tables.write(path, tables.MANIFEST, "
    "[{'file': os.urandom(400).hex(), 'sha256': str(i), 'bytes': i} for i in range(3000)], {})",
    "safetensors": "import torch, safetensors.torch as st; st.save_file({'a': torch.randn(500_000)}, path)",
    "optimizer state": "import torch; torch.save({'a': torch.randn(500_000)}, path)",
}
FULL = """
import os, sys
from workflow_scripts import tables
from workflow_scripts.job import run
def main(job):
    path = job.output("x")
    {write}
sys.argv = ["x", "--settings", "{{}}", "--code", "0", "--root", "{root}", "--output", "x={root}/x.parquet"]
run(main)
"""


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_is_called_one(write: str, tmp_path: Path) -> None:
    mount = ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=1m none {tmp_path} && exec "$@"', "sh"]
    try:
        subprocess.run([*mount, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no mounts here without privileges (unshare -rm)")
    code = FULL.format(write=write, root=tmp_path)
    done = subprocess.run([*mount, sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith("armslength: no space left on the disk")
    assert "Traceback" not in done.stderr


def test_an_adapter_of_another_base_is_told_by_its_shapes(tmp_path: Path) -> None:
    def base(hidden: int, layers: int) -> Any:
        sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": 48}
        return LlamaForCausalLM(LlamaConfig(vocab_size=56, num_attention_heads=2, num_key_value_heads=2, **sizes))

    weights.save_checkpoint(get_peft_model(base(32, 2), weights.lora(LORA)), tmp_path)
    assert weights.adapter_fault(base(32, 2), tmp_path) is None
    trained = weights.load_checkpoint(base(32, 2), tmp_path, "float32")
    assert weights.adapter_fault(trained, tmp_path) is None
    assert weights.adapter_fault(base(32, 1), tmp_path) == "model.layers.1.mlp.down_proj is no layer of this base"
    fault = weights.adapter_fault(base(64, 2), tmp_path)
    assert fault == "model.layers.0.mlp.down_proj has 32 outputs there and 64 here"
