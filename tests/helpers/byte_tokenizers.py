"""Shared by the tests of prompts and stop strings: small tokenizers of the kinds that language models have."""

import string
from collections.abc import Callable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from workflow_scripts.benchmarks import word_problems
from workflow_scripts.models import warm_start

SPECIAL = ["<s>", "</s>", "[SEP]", "[CLS]"]
TEXTS = ["#### 18\n\nQuestion: Ann has 12 pens.\nAnswer: 3 + 4 = 7", "Question Question Answer Answer \n\n \n\n 問題 é"]


def finished(tokenizer: Tokenizer, single: str) -> PreTrainedTokenizerFast:
    """With a post-processor that makes this of a text."""
    names = [(name, tokenizer.token_to_id(name)) for name in SPECIAL]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=names)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<s>", sep_token="[SEP]",
        cls_token="[CLS]", clean_up_tokenization_spaces=False,
    )  # fmt: skip


def byte_level(single: str = "$A", merges: int = 60) -> PreTrainedTokenizerFast:
    """Byte-level BPE, as of GPT-2, Qwen and Llama-3: a token may be a part of a character. Without merges each byte is
    a token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    size = len(SPECIAL) + len(alphabet) + merges
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 5, trainer)
    return finished(tokenizer, single)


def sentence_piece(single: str = "$A") -> PreTrainedTokenizerFast:
    """Unigram with ▁ for spaces, as of T5 and Llama-2: the first token of what is decoded loses its space."""
    pieces = ["▁", "▁Question", "▁Answer", "▁####", "▁1", "▁Ann", "▁pens", "\n", *string.printable[:94]]
    vocabulary = [(name, 0.0) for name in SPECIAL] + [("<unk>", -20.0)]
    vocabulary += [(piece, -1.0 - len(piece) / 99) for piece in pieces]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=len(SPECIAL)))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(SPECIAL)
    return finished(tokenizer, single)


def words() -> PreTrainedTokenizerFast:
    """That of the embedded model: what a token adds to the text depends on the token before it."""
    return warm_start.word_tokenizer(word_problems.vocabulary())


KINDS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "bytes": lambda: byte_level(merges=0),
    "byte-level": byte_level,
    "sentence-piece": sentence_piece,
    "words": words,
}
