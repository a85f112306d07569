"""Keys and values of completions that are being written: one slot per completion, each as long as it is.

A decoding step appends one token per slot, in place. A finished completion gives its slot to the last one, and new ones
fill what is free, so that the batch stays full and nothing is padded to a common past.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, DynamicCache
from transformers.cache_utils import Cache, CacheLayerMixin

from workflow_scripts.sampling import EngineError

BLOCK = 128  # columns by which the room grows
ATTENTION = "one_token_per_slot"
UNKNOWN = ("softcap", "s_aux", "position_bias")  # what some models add to their attention

_calls: list[str] = []  # of the attention below, in the step that is going


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, scaling: float, **more: Any
) -> tuple[Tensor, None]:
    """Attention of one new token per row. query (B,Hq,1,D), key and value (B,Hk,W,D), mask (B,1,1,W) -> (B,1,Hq,D).

    Query heads that share a key head become rows of one product: repeating keys and values for them, as transformers
    does where there is a mask, takes ten times as long.
    """
    _calls.append(ATTENTION)
    if any(more.get(name) is not None for name in UNKNOWN):
        raise EngineError(f"compute.engine: transformers: {module.config.model_type} adds to its attention; use vllm")
    rows, heads, _, width = query.shape
    grouped = query.reshape(rows, key.shape[1], heads // key.shape[1], width)
    out = torch.nn.functional.scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
    return out.reshape(rows, 1, heads, -1), None


AttentionInterface.register(ATTENTION, _attend)


@contextmanager
def one_token_attention(model: Any) -> Iterator[list[str]]:
    """Within, the model's forward takes one token per row, with a mask (B,1,1,W). Gives a list that gets an item for
    each layer that attends so: a model with attention of its own does not ask."""
    config = model.config.get_text_config(decoder=True)
    before = config._attn_implementation
    config._attn_implementation = ATTENTION
    _calls.clear()
    try:
        yield _calls
    finally:
        config._attn_implementation = before


def key_value_dtype(model: Any) -> torch.dtype:
    """In which keys and values are held: autocast's where it is on, since attention would cast them in every step."""
    kind = model.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else model.dtype


class _Layer(CacheLayerMixin):
    """One model layer's keys and values (slots, heads, columns, D). `lengths` is shared by all layers."""

    def __init__(self, slots: "Slots") -> None:
        super().__init__()
        self.slots = slots

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys, self.values = self._room(key_states), self._room(value_states)
        self.is_initialized = True

    def _room(self, like: Tensor) -> Tensor:
        shape = self.slots.count, like.shape[1], self.slots.columns, like.shape[3]
        return like.new_zeros(shape, dtype=self.slots.dtype)

    def grow(self) -> None:
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = self._room(old)
            new[:, :, : old.shape[2]] = old
            setattr(self, name, new)

    def fill(self, first: int, rows: Tensor, key_states: Tensor, value_states: Tensor) -> None:
        """Put rows of a prefill (P,heads,n,D) into the slots from `first` on."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        width = key_states.shape[2]
        self.keys[first : first + len(rows), :, :width] = key_states[rows].to(self.slots.dtype)
        self.values[first : first + len(rows), :, :width] = value_states[rows].to(self.slots.dtype)

    def move(self, source: int, target: int) -> None:
        used = int(self.slots.lengths[source])
        self.keys[target, :, :used] = self.keys[source, :, :used]
        self.values[target, :, :used] = self.values[source, :, :used]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append one token to every slot in use."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        used, places = self.slots.used, self.slots.places
        # under autocast a prefill leaves both in float32, and a step's values are bfloat16
        self.keys[self.slots.index, :, places] = key_states[:, :, 0].to(self.keys.dtype)
        self.values[self.slots.index, :, places] = value_states[:, :, 0].to(self.values.dtype)
        width = self.slots.width
        return self.keys[:used, :, :width], self.values[:used, :, :width]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.slots.width, 0

    def get_seq_length(self) -> int:
        return self.slots.width - 1

    def get_max_length(self) -> int:
        return -1


class Slots:
    """Room for `count` completions at once. Slots 0 to used-1 are in use."""

    def __init__(self, layers: int, count: int, columns: int, device: torch.device, dtype: torch.dtype) -> None:
        self.count, self.used, self.columns, self.device, self.dtype = count, 0, columns, device, dtype
        self.lengths: list[int] = []
        self.cache = Cache(layers=[_Layer(self) for _ in range(layers)])
        self.width = 0
        self.index = self.places = torch.empty(0, dtype=torch.long, device=device)

    def add(self, prefill: DynamicCache | None, rows: list[int], lengths: list[int]) -> None:
        """Take in completions whose pasts are the given rows of a prefill (None: no past at all)."""
        first = self.used
        self.lengths += lengths
        self.used += len(rows)
        self._make_room(max(self.lengths, default=0))
        if prefill is not None:
            taken = torch.tensor(rows, device=self.device)
            for mine, theirs in zip(self.cache.layers, prefill.layers, strict=True):
                mine.fill(first, taken, theirs.keys, theirs.values)

    def _make_room(self, columns: int) -> None:
        if columns < self.columns:
            return
        self.columns = (columns // BLOCK + 1) * BLOCK
        for layer in self.cache.layers:
            if layer.is_initialized:
                layer.grow()

    def begin_step(self) -> tuple[Tensor, Tensor]:
        """Position (B,1) of each slot's new token, and the mask (B,1,1,W) of what it may look at, itself included."""
        self.width = max(self.lengths) + 1
        self._make_room(self.width)
        self.places = torch.tensor(self.lengths, device=self.device)
        self.index = torch.arange(self.used, device=self.device)
        mask = torch.arange(self.width, device=self.device) <= self.places[:, None]
        return self.places[:, None], mask[:, None, None]

    def end_step(self) -> None:
        """Every slot has one token more."""
        self.lengths = [length + 1 for length in self.lengths]

    def remove(self, slot: int) -> int:
        """Free a slot; the last one in use moves there. Returns the slot it came from."""
        last = self.used - 1
        if slot != last:
            for layer in self.cache.layers:
                layer.move(last, slot)
            self.lengths[slot] = self.lengths[last]
        self.lengths.pop()
        self.used = last
        return last

    def free(self) -> None:
        """Give the memory back at once: layers and slots refer to each other."""
        self.cache.layers.clear()
