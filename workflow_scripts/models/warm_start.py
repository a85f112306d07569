"""The embedded base model: a small Llama-architecture model, taught worked solutions by supervised learning.

The second stage, on demonstrations with mistakes, is what leaves something to learn: from a model trained on clean
examples alone, too little or too long, GRPO gains nothing.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HIDDEN, LAYERS, HEADS, INTERMEDIATE, POSITIONS = 64, 2, 4, 192, 128
INITIAL_SD = 0.06  # the usual 0.02 is for wider models; with it this one learns arithmetic several times slower
IGNORED = -100
CONTINUED = "@@"  # a digit that follows a digit


@dataclass(frozen=True)
class Stage:
    """One stage of supervised learning: AdamW, the learning rate falling along a cosine to `final` of its start."""

    steps: int
    batch: int
    learning_rate: float
    final: float


CLEAN = Stage(steps=1000, batch=32, learning_rate=5e-3, final=0.1)
MISTAKEN = Stage(steps=60, batch=64, learning_rate=1e-3, final=1.0)


def word_tokenizer(vocabulary: Iterable[str]) -> PreTrainedTokenizerFast:
    """One token per word, one per digit; numbers decode without inner spaces."""
    digits = [str(d) for d in range(10)]
    words = sorted(set(vocabulary) - set(digits))
    tokens = ["<pad>", "<eos>", "<unk>", *digits, *(CONTINUED + d for d in digits), *words]
    ids = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="<unk>", continuing_subword_prefix=CONTINUED))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(prefix=CONTINUED, cleanup=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


def small_llama(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """An untrained model of about 110,000 parameters for this tokenizer."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=HIDDEN,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            intermediate_size=INTERMEDIATE,
            max_position_embeddings=POSITIONS,
            tie_word_embeddings=True,
            initializer_range=INITIAL_SD,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def teach(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, pairs: list[tuple[str, str]], stage: Stage, seed: int
) -> float:
    """Supervised learning on (question, solution) pairs; only solution and end token count. Returns the last loss."""
    prompts = tokenizer([question for question, _ in pairs])["input_ids"]
    solutions = tokenizer([solution for _, solution in pairs])["input_ids"]
    sequences = [(p, [*s, tokenizer.eos_token_id]) for p, s in zip(prompts, solutions, strict=True)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=stage.learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, stage.steps, stage.learning_rate * stage.final)
    chosen = random.Random(seed)
    model.train()
    value = float("nan")
    for _ in range(stage.steps):
        batch = [sequences[i] for i in chosen.choices(range(len(sequences)), k=stage.batch)]
        width = max(len(p) + len(s) for p, s in batch)
        ids = torch.full((len(batch), width), tokenizer.pad_token_id)
        labels = torch.full((len(batch), width), IGNORED)
        for row, (prompt, solution) in enumerate(batch):
            ids[row, : len(prompt) + len(solution)] = torch.tensor(prompt + solution)
            labels[row, len(prompt) : len(prompt) + len(solution)] = torch.tensor(solution)
        loss = model(input_ids=ids, attention_mask=(ids != tokenizer.pad_token_id).long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        value = loss.item()
    return value
