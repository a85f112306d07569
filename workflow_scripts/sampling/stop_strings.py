"""Stop strings: where a completion ends that a model would otherwise continue, the same for every engine.

A completion ends with the token whose text completes a stop string: it is the shortest prefix of what the model writes
whose decoded text (without special tokens) contains one. Its text is what comes before the stop string.
"""

from transformers import PreTrainedTokenizerBase

MARGIN = 8  # tokens before the longest stop string: the first of a decoded piece may lose a space or half a character


def cut(text: str, stop: tuple[str, ...] | None) -> tuple[str, bool]:
    """The text before the first stop string, and whether there is one."""
    places = [place for string in stop or () if (place := text.find(string)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


def decoded(tokenizer: PreTrainedTokenizerBase, completions: list[list[int]]) -> list[str]:
    """Text of each completion, without special tokens."""
    texts: list[str] = tokenizer.batch_decode(completions, skip_special_tokens=True)
    return texts


def end_at_stop(tokenizer: PreTrainedTokenizerBase, token_ids: list[int], stop: tuple[str, ...]) -> list[int]:
    """The shortest prefix whose text contains a stop string, searched from the end; all tokens if there is none."""
    while cut(decoded(tokenizer, [token_ids[:-1]])[0], stop)[1]:
        token_ids = token_ids[:-1]
    return token_ids


class StopWatch:
    """Finds, among completions that grow token by token, those that have just completed a stop string.

    Decoding whole completions in every step would take time that grows with their square: only so many last tokens are
    decoded as a stop string can have, and the whole only where they contain one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: tuple[str, ...]) -> None:
        self.tokenizer, self.stop = tokenizer, stop
        self.tokens = max(len(string.encode()) for string in stop) + MARGIN  # a token has a byte at least, if any
        self._has_text: dict[int, bool] = {}
        # eight times as fast as batch_decode, which differs only in this clean-up
        self._fast = tokenizer.is_fast and not tokenizer.clean_up_tokenization_spaces

    def reached(self, completions: list[list[int]]) -> list[bool]:
        """Whether each completion contains a stop string; none did before its last token."""
        tails = [self._tail(token_ids) for token_ids in completions]
        if self._fast:
            texts = self.tokenizer.backend_tokenizer.decode_batch(tails, skip_special_tokens=True)
        else:
            texts = decoded(self.tokenizer, tails)
        return [
            cut(text, self.stop)[1] and cut(decoded(self.tokenizer, [whole])[0], self.stop)[1]
            for text, whole in zip(texts, completions, strict=True)
        ]

    def _tail(self, token_ids: list[int]) -> list[int]:
        """The last tokens, so many that `tokens` of them have a text: special tokens have none."""
        start, missing = len(token_ids), self.tokens
        while start and missing:
            start -= 1
            missing -= self._writes(token_ids[start])
        return token_ids[start:]

    def _writes(self, token: int) -> bool:
        if token not in self._has_text:
            self._has_text[token] = bool(decoded(self.tokenizer, [[token]])[0])
        return self._has_text[token]
