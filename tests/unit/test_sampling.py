"""Sampling: a completion depends on its prompt and its seed alone, and follows the model's distribution."""

import os
import resource
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from scipy import stats
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPTJConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from workflow_scripts.benchmarks import word_problems
from workflow_scripts.models import warm_start
from workflow_scripts.sampling import EngineError, Options, stream_seed, transformers_engine
from workflow_scripts.sampling.prompts import PromptError, encode
from workflow_scripts.sampling.transformers_engine import inverse_cdf, nucleus, sample, uniforms

OPTIONS = Options(temperature=1.0, top_p=1.0, max_completion=12)


@pytest.fixture(scope="module")
def small() -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    tokenizer = warm_start.word_tokenizer(word_problems.vocabulary())
    return warm_start.small_llama(tokenizer, seed=0).eval(), tokenizer


def prompts(tokenizer: PreTrainedTokenizerFast, count: int) -> list[list[int]]:
    return encode(tokenizer, [row["question"] for row in word_problems.generate("test")[:count]], "plain")


def test_a_completion_does_not_depend_on_its_batch(small: tuple[LlamaForCausalLM, PreTrainedTokenizerFast]) -> None:
    model, tokenizer = small
    ids = prompts(tokenizer, 10)
    seeds = [stream_seed("test", i) for i in range(10)]
    together = sample(model, tokenizer, ids, seeds, OPTIONS, 10)
    alone = [sample(model, tokenizer, [p], [s], OPTIONS, 1)[0] for p, s in zip(ids, seeds, strict=True)]
    turned = sample(model, tokenizer, ids[::-1], seeds[::-1], OPTIONS, 3)[::-1]
    assert together == alone == turned
    assert sample(model, tokenizer, ids, [s + 1 for s in seeds], OPTIONS, 10) != together


@pytest.mark.parametrize(
    "options", [Options(1.0, 1.0, 1), Options(0.7, 1.0, 1), Options(1.0, 0.5, 1), Options(0.7, 0.5, 1, top_k=9)]
)
def test_first_tokens_follow_the_distribution(
    small: tuple[LlamaForCausalLM, PreTrainedTokenizerFast], options: Options
) -> None:
    model, tokenizer = small
    ids, count = prompts(tokenizer, 1)[0], 4000
    drawn = sample(model, tokenizer, [ids] * count, [stream_seed(i) for i in range(count)], options, count)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1].double() / options.temperature
    probability = logits.softmax(-1).numpy()
    order = np.argsort(-probability)
    probability[order[options.top_k :] if options.top_k else []] = 0  # then the nucleus, as transformers and vLLM do
    probability /= probability.sum()
    before = np.cumsum(probability[order]) - probability[order]
    probability[order[before >= options.top_p]] = 0
    probability /= probability.sum()
    seen = np.bincount([completion.token_ids[0] for completion in drawn], minlength=len(probability))
    assert seen[probability == 0].sum() == 0
    kept = probability > 0
    assert stats.chisquare(seen[kept], count * probability[kept]).pvalue > 1e-4


def test_truncated_means_the_limit_came_first(small: tuple[LlamaForCausalLM, PreTrainedTokenizerFast]) -> None:
    model, tokenizer = small
    drawn = sample(model, tokenizer, prompts(tokenizer, 1) * 300, list(range(300)), Options(1.0, 1.0, 40), 300)
    assert {completion.truncated for completion in drawn} == {True, False}
    for completion in drawn:
        assert completion.truncated == (completion.token_ids[-1] != tokenizer.eos_token_id)
        assert tokenizer.eos_token_id not in completion.token_ids[:-1]


def test_a_longer_stream_starts_with_the_shorter() -> None:
    assert np.array_equal(uniforms([1, 2], 20)[:, :7], uniforms([1, 2], 7))
    assert stream_seed("a", 1) != stream_seed("a1") and stream_seed("a", 1) == stream_seed("a", "1")


def test_numbers_decode_without_inner_spaces(small: tuple[LlamaForCausalLM, PreTrainedTokenizerFast]) -> None:
    text = word_problems.demonstration(word_problems.problems("test", 1, 3)[0])
    assert small[1].decode(small[1](text)["input_ids"]) == text


def test_a_chat_family_needs_a_chat_template(small: tuple[LlamaForCausalLM, PreTrainedTokenizerFast]) -> None:
    with pytest.raises(PromptError, match="prompt_family: chat"):
        encode(small[1], ["How many ?"], "chat")


SIZES = {
    "vocab_size": 56, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 1,
    "pad_token_id": 2,
}  # fmt: skip


def random_model(kind: type[PreTrainedConfig], **more: Any) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(kind(**SIZES | more), dtype=torch.float32).eval()


def with_adapter(model: Any) -> Any:
    model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    return model.eval()


@pytest.mark.parametrize("options", [Options(0.8, 1.0, 160), Options(1.0, 0.8, 20)], ids=["grows", "nucleus"])
@pytest.mark.parametrize("kind", [LlamaConfig, Qwen2Config, Qwen3Config, MistralConfig, "adapter"])
def test_each_token_is_the_one_its_uniform_names_in_a_plain_forward(
    small: tuple[LlamaForCausalLM, PreTrainedTokenizerFast], kind: Any, options: Options
) -> None:
    """Slots, shared prefills and continuous batching against one forward over prompt and completion."""
    model = with_adapter(random_model(LlamaConfig)) if kind == "adapter" else random_model(kind)
    tokenizer = small[1]
    starts = ([5, 6, 7], [5, 6, 8, 9, 9], [5, 6, 7, 11, 12, 13, 14, 15, 16], [5])
    ids = [start for start in starts for _ in range(3)]
    seeds = list(range(len(ids)))
    drawn = sample(model, tokenizer, ids, seeds, options, 5)
    assert len({len(completion.token_ids) for completion in drawn}) > 1
    for prompt, uniform, completion in zip(ids, uniforms(seeds, options.max_completion), drawn, strict=True):
        whole = torch.tensor([prompt + completion.token_ids])
        with torch.no_grad():
            logits = model(whole).logits[0, len(prompt) - 1 : -1]
        probability = torch.softmax(logits / options.temperature, -1)
        if options.top_p < 1:
            probability = nucleus(probability, options.top_p)
        expected = inverse_cdf(probability, torch.from_numpy(uniform[: len(completion.token_ids)]))
        assert expected.tolist() == completion.token_ids


@given(
    st.lists(st.sampled_from([0.0, 1e-8, 0.1, 1.0, 3.0]), min_size=1, max_size=12),
    st.floats(0, 1, exclude_max=True, width=32),
)
def test_the_inverse_cdf_is_that_of_the_cumulative_sum(weights: list[float], uniform: float) -> None:
    row = torch.tensor((weights * 300)[:300])  # more than one block of the sums
    row[17] += 1e-3
    token = inverse_cdf(row[None], torch.tensor([uniform])).item()
    ends = row.double().numpy().cumsum() / row.double().sum().item()
    assert row[token] > 0
    assert ends[token] >= uniform - 1e-6 and (token == 0 or ends[token - 1] <= uniform + 1e-6)


def test_the_nucleus_is_the_same_where_few_tokens_are_looked_at_first() -> None:
    logits = torch.randn(4, 5000, generator=torch.Generator().manual_seed(0)) * torch.tensor([[0.1], [1], [3], [8]])
    probability = logits.softmax(-1)
    for top_p in (0.1, 0.9, 0.999):
        kept = nucleus(probability, top_p)
        for before, after in zip(probability, kept, strict=True):
            order = before.argsort(descending=True)
            count = int((before[order].cumsum(0) < top_p).sum()) + 1
            assert int((after > 0).sum()) == pytest.approx(count, abs=1)
            assert torch.equal(after[order[: count - 1]], before[order[: count - 1]])


def test_out_of_memory_halves_the_batch_and_changes_nothing(
    small: tuple[LlamaForCausalLM, PreTrainedTokenizerFast], capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 256}
    model, tokenizer = random_model(LlamaConfig, **sizes), small[1]  # 128 kB a token, 470 MB in all
    ids, options = [[5, 6, 7], [5, 8]] * 96, Options(1.0, 1.0, 16)
    seeds = list(range(len(ids)))
    free = sample(model, tokenizer, ids, seeds, options, 24)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process(os.getpid()).memory_info().vms + 230 * 2**20, hard))
    try:
        tight = sample(model, tokenizer, ids, seeds, options, 192)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert "out of memory: 96 completions at once" in capsys.readouterr().out
    assert sum(a != b for a, b in zip(free, tight, strict=True)) <= 2  # a uniform may fall onto a rounded boundary


def test_a_batch_size_is_found(small: tuple[LlamaForCausalLM, PreTrainedTokenizerFast]) -> None:
    model, tokenizer = small
    ids, seeds = prompts(tokenizer, 6), list(range(6))
    assert sample(model, tokenizer, ids, seeds, OPTIONS, "auto") == sample(model, tokenizer, ids, seeds, OPTIONS, 2)
    assert sample(model, tokenizer, [], [], OPTIONS, "auto") == []


def test_rollouts_in_mid_training_use_the_past_and_leave_the_mode(
    small: tuple[LlamaForCausalLM, PreTrainedTokenizerFast],
) -> None:
    model, tokenizer = random_model(LlamaConfig), small[1]
    expected = sample(model, tokenizer, [[5, 6, 7]], [1], OPTIONS, 1)
    model.gradient_checkpointing_enable()
    model.train()
    assert sample(model, tokenizer, [[5, 6, 7]], [1], OPTIONS, 1) == expected
    assert model.training and model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_few_at_once_behind_a_shared_prefix(
    small: tuple[LlamaForCausalLM, PreTrainedTokenizerFast], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chat template: all prompts begin alike, one is that beginning alone, one is long."""
    model = random_model(LlamaConfig)
    ids = [[5, 6, 7, 8], [5, 6, 7, 9, 10], [5, 6, 7, 8], [5, 6, 7, *range(10, 40)], [5, 6, 7, 8, 9], [5, 6, 7, 11]]
    together = sample(model, small[1], ids, list(range(6)), OPTIONS, 6)
    monkeypatch.setattr(transformers_engine, "PREFILL_TOKENS", 4)
    assert sample(model, small[1], ids, list(range(6)), OPTIONS, size) == together


def test_a_long_prompt_does_not_widen_the_prefill_of_the_short(
    small: tuple[LlamaForCausalLM, PreTrainedTokenizerFast], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, widest = random_model(LlamaConfig), 0
    plain = model.forward

    def forward(input_ids: torch.Tensor, **more: Any) -> Any:
        nonlocal widest
        widest = max(widest, input_ids.numel())
        return plain(input_ids=input_ids, **more)

    monkeypatch.setattr(transformers_engine, "PREFILL_TOKENS", 64)
    monkeypatch.setattr(model, "forward", forward)
    ids = [[5] * 60] + [[6, 7, n] for n in range(3, 43)]
    sample(model, small[1], ids, list(range(41)), Options(1.0, 1.0, 2), 41)
    assert widest <= 64


def test_a_model_whose_past_is_no_plain_one_is_refused(
    small: tuple[LlamaForCausalLM, PreTrainedTokenizerFast],
) -> None:
    window = random_model(Qwen3Config, use_sliding_window=True, sliding_window=8, max_window_layers=1)
    assert len(sample(window, small[1], [[5, 6]], [0], Options(1.0, 1.0, 6), 1)) == 1
    with pytest.raises(EngineError, match="sliding_attention; use vllm"):
        sample(window, small[1], [[5, 6]], [0], Options(1.0, 1.0, 7), 1)
    with pytest.raises(EngineError, match="mistral has sliding_attention"):
        sample(random_model(MistralConfig, sliding_window=8), small[1], [[5, 6]], [0], Options(1.0, 1.0, 7), 1)
    own = random_model(GPTJConfig, rotary_dim=4, n_embd=32, n_head=4, n_layer=2)
    with pytest.raises(EngineError, match="gptj does its own attention; use vllm"):
        sample(own, small[1], [[5, 6]], [0], Options(1.0, 1.0, 7), 1)
    with pytest.raises(EngineError, match="up to 9 tokens with the prompt; llama has 8"):
        sample(random_model(LlamaConfig, max_position_embeddings=8), small[1], [[5, 6]], [0], Options(1.0, 1.0, 7), 1)
    with pytest.raises(EngineError, match="gemma2 has capped attention"):
        sample(random_model(Gemma2Config), small[1], [[5, 6]], [0], Options(1.0, 1.0, 7), 1)
