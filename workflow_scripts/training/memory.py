"""How many rollouts a training process takes at once where the study leaves it open.

An estimate from sizes alone, so that equal machines split alike; where it is too high, halving corrects it.
"""

from typing import Any

import torch

from workflow_scripts.sampling.memory import machine_bytes
from workflow_scripts.training.processes import processes

USABLE = 0.8  # of the memory; the rest is for fragments, library contexts and what sampling leaves
HEAD_TOKENS, HEAD_VOCABULARY = 4096, 32768  # one tile of logits, as TRL computes log probabilities
HEAD_COPIES = 6  # in float32, of what of a tile is in use, where no fused kernel folds it
LARGEST = 128  # beyond it a step gets no faster


def device_bytes(device: str, threads: int, reserved: float) -> int:
    """Memory of one process: of a GPU what `reserved`, a share, leaves; without a GPU this process's share of the
    machine, as if all cores were taken by processes of `threads` threads."""
    if device == "cuda":
        smallest = min(
            torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count())
        )  # all processes must come to the same number
        return int(smallest * (1 - reserved))
    return machine_bytes(threads)


def activations(model: Any, compute_bytes: int, checkpointing: bool) -> int:
    """Bytes that one token of one rollout keeps for the backward pass.

    Counted in a Llama-like layer: what the norms, projections, rotary embedding, attention and the gated MLP save.
    """
    config = model.config.get_text_config()
    hidden = config.hidden_size
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    queries = config.num_attention_heads * (getattr(config, "head_dim", None) or hidden // config.num_attention_heads)
    shared = (getattr(config, "num_key_value_heads", None) or config.num_attention_heads) / config.num_attention_heads
    layer = compute_bytes * (4 * hidden + 3 * queries * (1 + shared) + 4 * inner) + 4 * 6 * hidden
    layers = config.num_hidden_layers
    return int(layers * 4 * hidden + layer if checkpointing else layers * layer)


def rollouts_at_once(
    model: Any,
    tokens: int,
    available: int,
    compute_bytes: int,
    checkpointing: bool,
    adapter: bool,
    copies: int,
    reference: bool,
) -> int:
    """Rollouts of at most `tokens` tokens, prompt and completion, for one forward and backward pass; at least 1.

    available: bytes of this process; compute_bytes: of one number in the forward pass; adapter: whether all of the
    model's weights are frozen; copies: of each gradient (two where processes exchange them); reference: whether a
    frozen copy of the model lies beside it.
    """
    weights = sum(parameter.nbytes for parameter in model.parameters())
    casts = sum(p.numel() * compute_bytes for p in model.parameters() if p.element_size() > compute_bytes)
    trained = 0 if adapter else weights
    fixed = weights * (2 if reference else 1) + casts + trained * (2 + copies)  # AdamW's two moments, gradients
    used = min(HEAD_VOCABULARY, model.config.get_text_config().vocab_size)
    tile = HEAD_TOKENS * (HEAD_VOCABULARY * compute_bytes + used * 4 * HEAD_COPIES)
    free = USABLE * available - fixed - tile
    return max(1, min(LARGEST, int(free / (tokens * activations(model, compute_bytes, checkpointing)))))


def micro_batch(model: Any, settings: dict[str, Any], compute: dict[str, Any], tokens: int) -> int:
    """Rollouts at once of a run with these settings, at most `tokens` tokens each, prompt and completion."""
    colocated = compute["engine"] == "vllm" and compute["vllm"]["mode"] == "colocate"
    reserved = compute["vllm"]["training_memory"] if colocated else 0.0
    adapter = settings["model"].get("adapter")
    return rollouts_at_once(
        model,
        tokens=tokens,
        available=device_bytes(compute["device"], compute["threads"], reserved),
        compute_bytes=2 if settings["model"]["dtype"] == "bfloat16" else 4,
        checkpointing=compute["gradient_checkpointing"],
        adapter=bool(adapter),
        copies=2 if processes(compute) > 1 else 1,
        reference=bool(settings["training"]["beta"]) and not adapter,
    )
