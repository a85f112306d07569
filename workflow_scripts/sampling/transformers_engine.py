"""Sampling with a transformers model: the token is drawn by inverse CDF from uniforms that belong to the seed.

The samples of a problem share one prefill, what all prompts begin with is computed once, and finished completions make
room for new ones (continuous batching): a step costs what is still being written.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, PreTrainedTokenizerBase

from workflow_scripts.models import weights
from workflow_scripts.sampling import Completion, EngineError, Options
from workflow_scripts.sampling.key_values import BLOCK, Slots, key_value_dtype, one_token_attention
from workflow_scripts.sampling.memory import free_bytes
from workflow_scripts.sampling.stop_strings import StopWatch

LARGEST_BATCH = 512
MEMORY_SHARE = 0.4  # of what is free on the device, for keys, values and logits; a prefill may hold as much again
PREFILL_TOKENS = 8192  # of prompts at once: their activations, not their keys and values, are what is large
LIKELY = 1024  # tokens looked at first for the nucleus: sorting the whole vocabulary takes eight times as long


def nucleus(probability: Tensor, top_p: float) -> Tensor:
    """(B,V) with all but the nucleus set to 0: the most likely tokens, up to the one with which top_p is reached."""
    count = min(LIKELY, probability.shape[-1])
    likely, order = probability.topk(count, dim=-1)
    if bool((likely.sum(-1) < top_p * probability.sum(-1)).any()):
        likely, order = probability.sort(dim=-1, descending=True)
    inside = likely.cumsum(-1) - likely < top_p * probability.sum(-1, keepdim=True)
    return torch.zeros_like(probability).scatter(-1, order, likely * inside)


def most_likely(probability: Tensor, top_k: int) -> Tensor:
    """(B,V) with all but the top_k most likely tokens set to 0; those as likely as the last of them stay."""
    last = probability.topk(min(top_k, probability.shape[-1]), dim=-1).values[:, -1:]
    return torch.where(probability < last, 0, probability)


def inverse_cdf(probability: Tensor, uniform: Tensor) -> Tensor:
    """probability (B,V), not necessarily summing to 1; uniform (B,) in [0, 1) -> (B,) the token whose interval of the
    cumulative distribution holds the uniform.

    Rounding: a uniform beyond the last cumulative sum takes the last token of non-zero probability.
    """
    rows, size = probability.shape
    blocks = torch.nn.functional.pad(probability, (0, -size % 256)).view(rows, -1, 256)
    ends = blocks.sum(-1).double().cumsum(-1)
    target = uniform.double()[:, None] * ends[:, -1:]
    block = (ends <= target).sum(-1, keepdim=True).clamp(max=blocks.shape[1] - 1)
    before = ends.gather(1, block) - blocks.sum(-1).double().gather(1, block)
    inner = blocks.gather(1, block[..., None].expand(-1, -1, 256))[:, 0].double().cumsum(-1) + before
    # the two sums round apart: what lies between them belongs to the block's last token
    target = torch.minimum(target, torch.nextafter(inner[:, -1:], torch.zeros_like(target)))
    token = block[:, 0] * 256 + (inner <= target).sum(-1).clamp(max=255)
    possible = probability.gather(1, token.clamp(max=size - 1)[:, None])[:, 0] > 0
    if bool((possible & (token < size)).all()):
        return token
    last = size - 1 - (probability.flip(-1) > 0).int().argmax(-1)
    return torch.where(possible & (token < size), token, last)


def uniforms(seeds: list[int], length: int) -> np.ndarray:
    """(len(seeds), length) float32 in [0, 1): row i depends on seeds[i] alone, and a longer row starts with the
    shorter."""
    rows = [np.random.Generator(np.random.Philox(key=seed)).random(length, dtype=np.float32) for seed in seeds]
    return np.stack(rows) if rows else np.zeros((0, length), dtype=np.float32)


def end_tokens(config: GenerationConfig, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Token ids that end a completion: all that the generation config names, and the tokenizer's own, as TRL has it."""
    named = config.eos_token_id
    ids = set(named if isinstance(named, list) else [named]) | {tokenizer.eos_token_id}
    return ids - {None}


def common_prefix(prompts: list[list[int]]) -> int:
    """How many first tokens all prompts share."""
    pairs = zip(min(prompts), max(prompts), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def find_batch_size(model: Any, columns: int) -> int:
    """Completions at once that the device's memory allows: keys and values of `columns` tokens each, and the logits."""
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    columns += -columns % BLOCK
    size = key_value_dtype(model).itemsize
    each = 2 * config.num_hidden_layers * heads * width * columns * size + 24 * config.vocab_size
    return max(1, min(LARGEST_BATCH, int(MEMORY_SHARE * free_bytes(model.device)) // each))


def _check(model: Any, longest: int) -> None:
    """Raises EngineError for a model whose past is more than keys and values of all earlier tokens, or too short."""
    config = model.config.get_text_config(decoder=True)
    limit = getattr(config, "max_position_embeddings", None)
    if limit is not None and longest > limit:
        raise EngineError(f"max_completion: up to {longest} tokens with the prompt; {config.model_type} has {limit}")
    window = getattr(config, "sliding_window", None)
    everywhere = ["sliding_attention" if window else "full_attention"]
    kinds = set(getattr(config, "layer_types", None) or everywhere) - {"full_attention"}
    if window and longest <= window:
        kinds -= {"sliding_attention"}
    capped = getattr(config, "attn_logit_softcapping", None) is not None
    if kinds or capped:
        what = "capped attention" if capped else ", ".join(sorted(kinds))
        raise EngineError(f"compute.engine: transformers: {config.model_type} has {what}; use vllm")


class _Batch:
    """Completions being written, and those waiting, of one call of `sample`."""

    def __init__(
        self,
        model: Any,
        prompts: list[list[int]],
        uniform: np.ndarray,
        ends: set[int],
        watch: StopWatch | None,
        options: Options,
        size: int,
    ) -> None:
        self.model, self.prompts, self.ends, self.watch, self.options = model, prompts, ends, watch, options
        self.uniform = torch.from_numpy(uniform).to(model.device)
        layers = model.config.get_text_config(decoder=True).num_hidden_layers
        columns = min(max(map(len, prompts)) + options.max_completion, max(map(len, prompts)) + BLOCK)
        self.slots = Slots(layers, size, columns, model.device, key_value_dtype(model))
        self.rows: list[int] = []  # row of the call in each slot
        self.tokens: dict[int, list[int]] = {}
        self.prefix = common_prefix([prompt[:-1] for prompt in prompts])
        self.prefix_cache = self._forward([prompts[0][: self.prefix]], None) if self.prefix else None

    def _forward(self, pieces: list[list[int]], past: DynamicCache | None) -> DynamicCache:
        """Keys and values of the pieces (right-padded) after a past that all share."""
        before = past.get_seq_length() if past is not None else 0
        cache = DynamicCache()
        if past is not None:
            for number, layer in enumerate(past.layers):
                keys, values = (x.expand(len(pieces), -1, -1, -1) for x in (layer.keys, layer.values))
                cache.update(keys, values, number)
        width = max(map(len, pieces))
        ids = torch.tensor([piece + [0] * (width - len(piece)) for piece in pieces], device=self.model.device)
        mask = torch.tensor(
            [[1] * (before + len(p)) + [0] * (width - len(p)) for p in pieces], device=self.model.device
        )
        positions = torch.arange(before, before + width, device=self.model.device)[None].expand(len(pieces), -1)
        self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True,
            logits_to_keep=1,
        )  # fmt: skip
        return cache

    def admit(self, rows: list[int]) -> None:
        """Start these completions, rows of like prompts side by side, not too many tokens of prompts at once."""
        start = pieces = 0
        for number, row in enumerate(rows):
            if number and self.prompts[row] == self.prompts[rows[number - 1]]:
                continue
            pieces += 1
            width = len(self.prompts[rows[start]]) - self.prefix  # the longest comes first
            if pieces > 1 and width * pieces > PREFILL_TOKENS:
                self._prefill(rows[start:number])
                start, pieces = number, 1
        self._prefill(rows[start:])

    def _prefill(self, rows: list[int]) -> None:
        """All but the last token of a prompt is its past; equal prompts share it."""
        known: dict[tuple[int, ...], int] = {}
        places = [known.setdefault(tuple(self.prompts[row][:-1]), len(known)) for row in rows]
        pieces = [list(prompt[self.prefix :]) for prompt in known]
        past = self.prefix_cache
        if any(pieces):
            past = self._forward(pieces, past)
        elif past is not None:
            places = [0] * len(rows)
        self.slots.add(past, places, [len(self.prompts[row]) - 1 for row in rows])
        self.rows += rows
        self.tokens |= {row: [] for row in rows}

    def step(self) -> list[tuple[int, Completion]]:
        """One token more for every completion; those that are done leave."""
        device = self.model.device
        latest = [(self.tokens[row] or self.prompts[row])[-1] for row in self.rows]
        positions, mask = self.slots.begin_step()
        with one_token_attention(self.model) as calls:
            out = self.model(
                input_ids=torch.tensor(latest, device=device)[:, None], attention_mask=mask, position_ids=positions,
                past_key_values=self.slots.cache, use_cache=True,
            )  # fmt: skip
        if len(calls) != len(self.slots.cache.layers):
            kind = self.model.config.model_type
            raise EngineError(f"compute.engine: transformers: {kind} does its own attention; use vllm")
        self.slots.end_step()
        probability = torch.softmax(out.logits[:, -1].float() / self.options.temperature, dim=-1)
        if self.options.top_k is not None:
            probability = most_likely(probability, self.options.top_k)
        if self.options.top_p < 1:
            probability = nucleus(probability, self.options.top_p)
        numbers = torch.tensor([len(self.tokens[row]) for row in self.rows], device=device)
        uniform = self.uniform[torch.tensor(self.rows, device=device), numbers]
        return self._append(inverse_cdf(probability, uniform).tolist())

    def _append(self, tokens: list[int]) -> list[tuple[int, Completion]]:
        """Give each slot's completion its new token; those that are done leave."""
        for row, token in zip(self.rows, tokens, strict=True):
            self.tokens[row].append(token)
        ended = [token in self.ends for token in tokens]
        if self.watch is not None:
            stopped = self.watch.reached([self.tokens[row] for row in self.rows])
            ended = [end or stop for end, stop in zip(ended, stopped, strict=True)]
        done = []
        for slot, end in reversed(list(enumerate(ended))):
            row = self.rows[slot]
            if end or len(self.tokens[row]) == self.options.max_completion:
                done.append((row, Completion(self.tokens.pop(row), not end)))
                self.rows[slot] = self.rows[self.slots.remove(slot)]
                self.rows.pop()
        return done


def _write(
    model: Any,
    prompts: list[list[int]],
    uniform: np.ndarray,
    ends: set[int],
    watch: StopWatch | None,
    options: Options,
    size: int,
    rows: list[int],
) -> Iterator[tuple[int, Completion]]:
    """Completions of these rows in the order in which they are done; `size` at once, the last row first."""
    batch, waiting = _Batch(model, prompts, uniform, ends, watch, options, size), list(rows)
    try:
        while waiting or batch.rows:
            free = size - len(batch.rows)
            if waiting and (not batch.rows or free >= max(1, size // 4)):
                batch.admit([waiting.pop() for _ in range(min(free, len(waiting)))])
            yield from batch.step()
    finally:
        batch.slots.free()


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """In training mode a model with gradient checkpointing drops its past."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@torch.no_grad()
def sample(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[list[int]],
    seeds: list[int],
    options: Options,
    batch_size: int | str,
) -> list[Completion]:
    """One completion per prompt, in the order of the prompts. batch_size: completions at once, or "auto"; where memory
    does not suffice it is halved, and what is done stays."""
    if not prompts:
        return []
    ends = end_tokens(model.generation_config, tokenizer)
    watch = StopWatch(tokenizer, options.stop) if options.stop else None
    longest = max(map(len, prompts)) + options.max_completion
    _check(model, longest)
    size = min(len(prompts), find_batch_size(model, longest) if batch_size == "auto" else int(batch_size))
    uniform = uniforms(seeds, options.max_completion)
    result: dict[int, Completion] = {}
    order = sorted(range(len(prompts)), key=lambda row: (len(prompts[row]), prompts[row]))
    with _evaluating(model):
        while len(result) < len(prompts):
            try:
                rows = [row for row in order if row not in result]
                result.update(_write(model, prompts, uniform, ends, watch, options, size, rows))
            except RuntimeError as error:
                if not should_reduce_batch_size(error):
                    raise
                if size == 1:
                    raise EngineError(
                        f"out of memory with a single completion of {longest} tokens, prompt included; model.dtype: "
                        "bfloat16 takes half, and max_completion says how long one may be"
                    ) from None
                size //= 2
                print(f"out of memory: {size} completions at once from here on", flush=True)
            clear_device_cache()
    return [result[row] for row in range(len(prompts))]


@contextmanager
def _fitting() -> Iterator[None]:
    """A model that does not fit is the user's to know."""
    try:
        yield
    except RuntimeError as error:
        if not should_reduce_batch_size(error):
            raise
        raise EngineError(
            "out of memory: the model itself does not fit; model.dtype: bfloat16 takes half of float32"
        ) from None


class TransformersEngine:
    """Sampling with the model in this process; adapters are put on one base."""

    def __init__(self, base: Path, dtype: str, device: str, batch_size: int | str) -> None:
        self.name = f"transformers {version('transformers')}"
        self.dtype, self.device, self.batch_size = dtype, device, batch_size
        with _fitting():
            model, self.tokenizer = weights.load_base(base, dtype)
            self.base: Any = model.to(device).eval()
        self.model = self.base

    def load(self, checkpoint: Path | None) -> None:
        """The adapter, or the weights, of a checkpoint; None is the base, to be asked for before any adapter."""
        if checkpoint is None:
            self.model = self.base
            return
        fault = weights.adapter_fault(self.base, checkpoint) if weights.is_adapter(checkpoint) else None
        if fault:
            manifest = checkpoint.parents[1] / "checkpoints.parquet"
            raise EngineError(
                f"{checkpoint}: an adapter of another base: {fault}; delete {manifest} to train this run again"
            )
        adapted = weights.is_adapter(checkpoint)
        if not adapted:
            self.base = self.model = None  # one model at a time
        with _fitting():
            self.model = weights.load_checkpoint(self.base, checkpoint, self.dtype).to(self.device).eval()
        self.base = self.model if adapted else None

    def sample(self, prompts: list[list[int]], seeds: list[int], options: Options) -> list[Completion]:
        """See `sampling.Engine`."""
        return sample(self.model, self.tokenizer, prompts, seeds, options, self.batch_size)
