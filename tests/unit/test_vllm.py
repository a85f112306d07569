"""vLLM as engine: what it draws is what the model says, for the base, adapters and full weights; rollouts of training.

Tests that draw run where vLLM is installed (a build for CPUs does); the others run everywhere.
"""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model
from training_run import ROLLOUT, Run
from transformers import GenerationConfig

from workflow_scripts.benchmarks import word_problems
from workflow_scripts.models import warm_start, weights
from workflow_scripts.sampling import EngineError, Options, stream_seed
from workflow_scripts.sampling.prompts import encode
from workflow_scripts.sampling.vllm_engine import VLLMEngine, import_vllm, llm_arguments, sampling_parameters
from workflow_scripts.training.trainer import Trainer
from workflow_scripts.training.vllm_rollouts import KeptBase

OPTIONS = Options(temperature=0.7, top_p=1.0, max_completion=12)
ADAPTER = {"rank": 12, "alpha": 24.0, "targets": "all-linear"}
COLOCATED = {"engine": "vllm", "vllm": {"mode": "colocate", "server": None, "training_memory": 0.3}}
ENVIRONMENTS = Path(__file__).parents[2] / "envs"


def locked(name: str) -> dict[str, str]:
    lines = (ENVIRONMENTS / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_gpu_lock_adds_the_vllm_that_trl_supports_and_changes_nothing() -> None:
    from packaging.specifiers import SpecifierSet

    pins = locked("requirements-gpu.lock")
    assert f"vllm=={pins['vllm']}" in (ENVIRONMENTS / "requirements-gpu.in").read_text(encoding="utf-8")
    assert pins["vllm"] in SpecifierSet(">=0.22,<=0.31.0")  # trl.import_utils.is_vllm_available
    assert not set(pins) & (set(locked("requirements.lock")) | {"triton", "cuda-toolkit", "nvidia-cublas"})


def test_without_vllm_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(EngineError, match=r"^compute.engine: vllm: it is not installed; run `make gpu`, or use .*$"):
        VLLMEngine(Path("base"), "float32", "cpu", 0.9, 64, None)


def test_the_next_larger_rank_is_asked_for() -> None:
    assert llm_arguments("cuda", 64, 12)["max_lora_rank"] == 16
    assert "enable_lora" not in llm_arguments("cuda", 64, None)
    with pytest.raises(EngineError, match=r"^model.adapter.rank: 600: vLLM takes up to 512; use .*$"):
        llm_arguments("cuda", 64, 600)


def with_adapter(model: Any) -> Any:
    """Adapters that change what the model says."""
    torch.manual_seed(1)
    model = get_peft_model(model, weights.lora(ADAPTER))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0, 0.1)
    return model


def test_merged_and_unmerged_a_bfloat16_base_drifts_unless_it_is_kept() -> None:
    tokenizer = warm_start.word_tokenizer(word_problems.vocabulary())
    model = with_adapter(warm_start.small_llama(tokenizer, seed=0).to(torch.bfloat16))
    frozen = {name: p for name, p in model.named_parameters() if not p.requires_grad}
    before = {name: p.clone() for name, p in frozen.items()}
    with KeptBase(model).unchanged():
        model.merge_adapter()
        assert any(not torch.equal(p, before[name]) for name, p in frozen.items())
        model.unmerge_adapter()
    assert all(torch.equal(p, before[name]) for name, p in frozen.items())
    model.merge_adapter()
    model.unmerge_adapter()
    assert any(not torch.equal(p, before[name]) for name, p in frozen.items())


@pytest.mark.parametrize(("key", "value", "only"), [("top_p", 0.9, "1"), ("top_k", 20, "none")])
def test_rollouts_of_some_tokens_alone_are_refused(
    key: str, value: float, only: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ROLLOUT, key, value)
    with pytest.raises(EngineError, match=rf"^rollout.{key}: {value}: with compute.engine: vllm only {only}: .*$"):
        Run(tmp_path, compute=COLOCATED)


# --- with vLLM --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vllm() -> Any:
    pytest.importorskip("vllm")
    try:
        return import_vllm("cpu")
    except EngineError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that vLLM has CPU kernels for, with a generation config that must not count but for its end tokens."""
    folder = tmp_path_factory.mktemp("base")
    tokenizer = warm_start.word_tokenizer(word_problems.vocabulary())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm_start, "HEADS", 2)
        model = warm_start.small_llama(tokenizer, seed=0)
    model.generation_config = GenerationConfig(
        do_sample=True, top_k=1, repetition_penalty=9.0, eos_token_id=[tokenizer.eos_token_id, 7], pad_token_id=0
    )
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


def requests(base: Path, count: int) -> tuple[list[list[int]], list[int]]:
    tokenizer = weights.load_base(base, "float32")[1]
    questions = [row["question"] for row in word_problems.generate("test")[: count // 4] for _ in range(4)]
    return encode(tokenizer, questions, "plain"), [stream_seed("test", number) for number in range(count)]


def assert_drawn_from(engine: VLLMEngine, model: Any, base: Path) -> None:
    """vLLM's log-probabilities of its own samples are the model's."""
    prompts, seeds = requests(base, 16)
    outputs = engine.llm.generate(
        [{"prompt_token_ids": ids} for ids in prompts],
        [sampling_parameters(OPTIONS, engine.ends, seed, logprobs=0) for seed in seeds],
        use_tqdm=False,
        lora_request=engine.adapter,
    )
    drawn = engine.sample(prompts, seeds, OPTIONS)
    for prompt, one, output in zip(prompts, drawn, outputs, strict=True):
        tokens = list(output.outputs[0].token_ids)
        assert tokens == one.token_ids
        with torch.no_grad():
            logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]
        theirs = [place[token].logprob for place, token in zip(output.outputs[0].logprobs, tokens, strict=True)]
        torch.testing.assert_close(torch.tensor(theirs), expected, rtol=0, atol=1e-4)


def test_a_completion_depends_on_its_prompt_and_seed_alone(vllm: Any, base: Path, tmp_path: Path) -> None:
    engine = VLLMEngine(base, "float32", "cpu", 0.9, 64, ADAPTER["rank"])
    assert engine.name.startswith("vllm 0.")
    model = weights.load_base(base, "float32")[0].eval()
    prompts, seeds = requests(base, 40)
    drawn = engine.sample(prompts, seeds, OPTIONS)
    assert engine.sample(prompts[::-1], seeds[::-1], OPTIONS)[::-1] == drawn
    assert engine.sample(prompts[3:5], seeds[3:5], OPTIONS) == drawn[3:5]
    assert engine.sample(prompts, [seed + 1 for seed in seeds], OPTIONS) != drawn
    assert engine.ends == {1, 7}
    for one in drawn:
        assert one.truncated == (one.token_ids[-1] not in engine.ends)
        assert len(one.token_ids) == OPTIONS.max_completion or not one.truncated
        assert not set(one.token_ids[:-1]) & engine.ends
    assert {one.truncated for one in drawn} == {True, False}
    with pytest.raises(EngineError, match=r"^temperature: 0.001: with compute.engine: vllm at least 0.01$"):
        engine.sample(prompts, seeds, Options(0.001, 1.0, 4))

    assert_drawn_from(engine, model, base)
    weights.save_checkpoint(with_adapter(model), tmp_path / "adapter")
    engine.load(tmp_path / "adapter")
    assert engine.sample(prompts, seeds, OPTIONS) != drawn
    assert_drawn_from(engine, model, base)
    engine.load(None)
    assert engine.sample(prompts, seeds, OPTIONS) == drawn


def test_full_weights_replace_those_of_the_base(vllm: Any, base: Path, tmp_path: Path) -> None:
    engine = VLLMEngine(base, "float32", "cpu", 0.9, 64, None)
    model = weights.load_base(base, "float32")[0].eval()
    prompts, seeds = requests(base, 8)
    drawn = engine.sample(prompts, seeds, OPTIONS)
    torch.manual_seed(2)
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    weights.save_checkpoint(model, tmp_path / "full")
    engine.load(tmp_path / "full")
    assert_drawn_from(engine, model, base)
    engine.load(None)
    assert engine.sample(prompts, seeds, OPTIONS) == drawn


class Watched(Trainer):
    """Keeps how far vLLM's probabilities of the rollouts are from the trained model's, and the rollouts."""

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        ratio = output["importance_sampling_ratio"]
        mask = output["completion_mask"].bool()
        self.off = [*getattr(self, "off", []), (ratio.expand_as(mask)[mask] - 1).abs().max().item()]
        self.drawn = [*getattr(self, "drawn", []), output["completion_ids"].tolist()]
        return output


@pytest.mark.parametrize("adapter", [None, ADAPTER])
def test_colocated_rollouts_come_from_the_policy_that_is_trained(
    adapter: dict[str, Any] | None, vllm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_start, "HEADS", 2)
    runs = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run = Run(tmp_path / name, seed=seed, kind=Watched, adapter=adapter, compute=COLOCATED)
        runs.append(run.train())
    for run in runs:
        assert len(run.trainer.off) == 2  # the second after four updates
        assert max(run.trainer.off) < 1e-3
    assert runs[0].weights == runs[1].weights
    assert runs[0].trainer.drawn == runs[1].trainer.drawn != runs[2].trainer.drawn
