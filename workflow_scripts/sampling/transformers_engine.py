"""Sampling with transformers' ``generate``: the token is drawn by inverse CDF from uniforms that belong to the seed."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedTokenizerBase

from workflow_scripts.sampling import Completion, Options


class _InverseCDF(LogitsProcessor):
    """Leaves one token per row: the one whose interval of the cumulative distribution holds the row's next uniform.

    uniforms: (rows, max_completion). Ties and rounding: a uniform beyond the last cumulative sum takes the last token
    of non-zero probability.
    """

    def __init__(self, uniforms: Tensor, prompt_length: int, options: Options) -> None:
        self.uniforms, self.prompt_length, self.options = uniforms, prompt_length, options

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        probability = torch.softmax(scores.float() / self.options.temperature, dim=-1)
        if self.options.top_p < 1:
            descending, order = probability.sort(dim=-1, descending=True)
            outside = descending.cumsum(-1) - descending >= self.options.top_p
            probability = probability.masked_fill(torch.zeros_like(outside).scatter(-1, order, outside), 0.0)
        cumulative = probability.cumsum(-1)
        position = input_ids.shape[1] - self.prompt_length
        target = self.uniforms[:, position : position + 1] * cumulative[:, -1:]
        token = (cumulative <= target).sum(-1, keepdim=True)
        last_possible = probability.shape[1] - 1 - (probability.flip(-1) > 0).int().argmax(-1, keepdim=True)
        token = torch.minimum(token, last_possible)
        return torch.full_like(scores, -torch.inf).scatter(-1, token, 0.0)


def uniforms(seeds: list[int], length: int) -> np.ndarray:
    """(len(seeds), length) float32 in [0, 1): row i depends on seeds[i] alone, and a longer row starts with the
    shorter."""
    rows = [np.random.Generator(np.random.Philox(key=seed)).random(length, dtype=np.float32) for seed in seeds]
    return np.stack(rows) if rows else np.zeros((0, length), dtype=np.float32)


def end_tokens(model: Any, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Token ids that end a completion: all that the generation config names, and the tokenizer's own, as TRL has it."""
    named = model.generation_config.eos_token_id
    ids = set(named if isinstance(named, list) else [named]) | {tokenizer.eos_token_id}
    return ids - {None}


@torch.no_grad()
def sample(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[list[int]],
    seeds: list[int],
    options: Options,
    batch_size: int,
) -> list[Completion]:
    """One completion per prompt. Prompts of like length share a batch; the result is in the order of the prompts."""
    ends = end_tokens(model, tokenizer)
    config = GenerationConfig(
        max_new_tokens=options.max_completion,
        do_sample=False,
        eos_token_id=sorted(ends),
        pad_token_id=tokenizer.pad_token_id,
        disable_compile=True,
    )
    result: list[Completion | None] = [None] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        width = max(len(prompts[i]) for i in rows)
        ids = torch.tensor([[tokenizer.pad_token_id] * (width - len(prompts[i])) + prompts[i] for i in rows])
        mask = torch.tensor([[0] * (width - len(prompts[i])) + [1] * len(prompts[i]) for i in rows])
        drawn = torch.from_numpy(uniforms([seeds[i] for i in rows], options.max_completion)).to(model.device)
        out = model.generate(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            generation_config=config,
            logits_processor=LogitsProcessorList([_InverseCDF(drawn, width, options)]),
        )
        for i, tokens in zip(rows, out[:, width:].tolist(), strict=True):
            end = next((n for n, token in enumerate(tokens) if token in ends), None)
            ended = end is not None
            result[i] = Completion(tokens[: end + 1] if end is not None else tokens, not ended)
    return [completion for completion in result if completion is not None]
