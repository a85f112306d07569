"""Sampling: a completion depends on its prompt and its seed alone, and follows the model's distribution."""

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from workflow_scripts.benchmarks import word_problems
from workflow_scripts.sampling import Options, stream_seed
from workflow_scripts.sampling.prompts import PromptError, encode
from workflow_scripts.sampling.transformers_engine import sample, uniforms
from workflow_scripts.training import warm_start

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


@pytest.mark.parametrize("options", [Options(1.0, 1.0, 1), Options(0.7, 1.0, 1), Options(1.0, 0.5, 1)])
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
