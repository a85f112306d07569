"""Pairs of a holdout problem and another problem that resemble each other, and how much.

Kinds of a pair, the first that holds:

exact          equal raw text, or an item of under 5 tokens that is equal but for case, spacing and punctuation
ngram          the other holds at least 0.8 of the holdout item's distinct 8-grams (5-grams if it has under 15 tokens)
near           the same numbers, and word-level similarity of at least 0.9, in order or with sentences moved
template_twin  of 8 words or more: the same words once numbers are dropped, or Jaccard of the 5-shingles with numbers
               masked of at least 0.8
partial        coverage of at least 0.5, or the same numbers and similarity of at least 0.75

Similarity is 2 LCS / (a + b) over words. For `near` the numbers are content: problems that differ in a number have
different answers, and most generated or templated problems differ from some other in a single number. Such a pair is
a template twin, not a copy; a rule without this would remove nearly every row of a templated train set. N-grams hold
their numbers already: one changed number costs a short item most of its few 8-grams. Number words count as numbers, but
"one" and its like may be in one text and not in the other.

Where sentences are moved, runs of four tokens or more must make up 0.9 of both texts and hold every number of the item.
Without the second condition, two problems whose numbers change places would be copies of each other.

In an item of under 15 tokens, or of under 8 words, the operators are content as well: `ngram` and `near` need the
operators of the item in the other text, in their order.

Fewer than 8 words say too little once numbers and LaTeX commands are gone: "Simplify" with one formula would be a twin
of "Simplify" with any other.

The holdout is an inverted index of hashed n-grams; the other side comes in blocks, so memory does not grow with it.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from scipy import sparse

from workflow_scripts.decontamination.normalise import tokens, with_words
from workflow_scripts.decontamination.similarity import is_moved_copy, word_similarity
from workflow_scripts.decontamination.symbols import is_symbol, with_operators, with_symbols

KINDS = ("exact", "ngram", "near", "template_twin", "partial")
REMOVED_KINDS = ("exact", "ngram", "near")
_WIDTH, _SHORT_WIDTH, _SHORT_BELOW, _MASKED_WIDTH = 8, 5, 15, 5
_COVERAGE, _COVERAGE_LISTED, _SIMILARITY, _SIMILARITY_LISTED, _JACCARD, _TWIN_WORDS = 0.8, 0.5, 0.9, 0.75, 0.8, 8
_BLOCK = 2000
FEWEST_TOKENS = 5  # below, there is no n-gram
_MIX = np.uint64(0x9E3779B97F4A7C15)  # an odd 64-bit constant: hash of an n-gram = polynomial in it, modulo 2^64


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


_word_hash = lru_cache(1 << 18)(_hash)  # the vocabulary; whole texts would fill memory


def _sequence_hash(words: Sequence[str]) -> int:
    return _hash("\n".join(words))


def _numbers(tokens_: Sequence[str]) -> list[str]:
    return [token for token in tokens_ if token < ":"]  # is_number without a call: this is the innermost loop


def _numbers_hash(tokens_: Sequence[str]) -> int:
    return _sequence_hash(sorted(_numbers(tokens_)))


def _words(tokens_: Sequence[str]) -> list[str]:
    return [token for token in tokens_ if token > ":"]


class _Texts:
    """A block of texts, tokenised and hashed."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        both = [with_words(text) for text in texts]
        self.tokens = [words for words, _ in both]
        self.lengths = np.array([len(words) for words in self.tokens], dtype=np.int64)
        self.numbers = np.array([_numbers_hash(words) for words in self.tokens], dtype=np.uint64)
        self.figures = self.numbers.copy()  # the numbers written in digits
        for place, (converted, written) in enumerate(both):
            if converted is not written:
                self.figures[place] = _numbers_hash(written)
        flat = [word for words in self.tokens for word in words]
        self.hashes = np.fromiter(map(_word_hash, flat), np.uint64, len(flat))
        self.masked_hashes = np.where(np.fromiter(map(":".__gt__, flat), bool, len(flat)), np.uint64(0), self.hashes)

    def wording(self) -> Iterator[int | None]:
        """A hash of the words without the numbers; None below eight words."""
        for words in self.tokens:
            plain = _words(words)
            yield _sequence_hash(plain) if len(plain) >= _TWIN_WORDS else None

    def short_forms(self) -> Iterator[tuple[str, ...] | None]:
        """Tokens and symbols of the texts that are too short for n-grams; None for the others."""
        for text, length in zip(self.texts, self.lengths.tolist(), strict=True):
            yield (tuple(with_symbols(text)) or None) if length < FEWEST_TOKENS else None

    def shingles(self, width: int, masked: bool) -> tuple[np.ndarray, np.ndarray]:
        """(text, hash) of every distinct n-gram of every text, sorted."""
        values = self.masked_hashes if masked else self.hashes
        owner = np.repeat(np.arange(len(self.texts)), self.lengths)
        windows = len(values) - width + 1
        if windows <= 0:
            return np.empty(0, np.int64), np.empty(0, np.uint64)
        grams = np.zeros(windows, dtype=np.uint64)
        for offset in range(width):
            grams = grams * _MIX + values[offset : offset + windows]
        inside = owner[:windows] == owner[width - 1 :]
        owner, grams = owner[:windows][inside], grams[inside]
        order = np.lexsort((grams, owner))
        owner, grams = owner[order], grams[order]
        first = np.ones(len(grams), dtype=bool)
        first[1:] = (owner[1:] != owner[:-1]) | (grams[1:] != grams[:-1])
        return owner[first], grams[first]


class _Shingles:
    """Inverted index: which holdout items hold an n-gram."""

    def __init__(self, holdout: _Texts, width: int, masked: bool, rows: np.ndarray) -> None:
        self.width, self.masked = width, masked
        owner, grams = holdout.shingles(width, masked)
        chosen = rows[owner]
        owner, grams = owner[chosen], grams[chosen]
        self.known, column = np.unique(grams, return_inverse=True)
        self.sizes = np.bincount(owner, minlength=len(rows))
        shape = (len(self.known), len(rows))
        self.index = sparse.csr_matrix((np.ones(len(owner), np.int32), (column, owner)), shape=shape)

    def shared(self, block: _Texts) -> tuple[sparse.csr_matrix, np.ndarray]:
        """Number of distinct n-grams in common (block x holdout), and how many each text of the block has."""
        owner, grams = block.shingles(self.width, self.masked)
        sizes = np.bincount(owner, minlength=len(block.texts))
        place = np.searchsorted(self.known, grams)
        hit = np.flatnonzero(place < len(self.known))
        hit = hit[self.known[place[hit]] == grams[hit]]
        shape = (len(block.texts), len(self.known))
        held = sparse.csr_matrix((np.ones(len(hit), np.int32), (owner[hit], place[hit])), shape=shape)
        return held @ self.index, sizes


@dataclass(frozen=True)
class Pairs:
    """Pairs of (other, holdout): positions, kind (position in KINDS), coverage and masked Jaccard of each."""

    other: np.ndarray
    holdout: np.ndarray
    kind: np.ndarray
    coverage: np.ndarray
    jaccard: np.ndarray

    def take(self, chosen: np.ndarray) -> "Pairs":
        """Those pairs: positions or a mask."""
        return Pairs(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    @classmethod
    def joined(cls, parts: Sequence["Pairs"]) -> "Pairs":
        """All pairs of at least one part, in their order."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))


class Holdout:
    """The holdout side, indexed."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = _Texts(texts)
        short = self._texts.lengths < _SHORT_BELOW
        self._grams = (
            _Shingles(self._texts, _WIDTH, False, ~short),
            _Shingles(self._texts, _SHORT_WIDTH, False, short),
        )
        self._masked = _Shingles(self._texts, _MASKED_WIDTH, True, np.ones(len(texts), dtype=bool))
        self._words = np.array([len(_words(each)) for each in self._texts.tokens], dtype=np.int64)
        self._exact = _places(texts)
        self._short = _places(self._texts.short_forms())
        self._wording = _places(self._texts.wording())
        self._with_operators = short | (self._words < _TWIN_WORDS)
        self._parts = lru_cache(None)(lambda position: with_operators(texts[position]))

    @property
    def lengths(self) -> list[int]:
        """Tokens of each holdout item."""
        return self._texts.lengths.tolist()

    def similarity(self, holdout: int, text: str) -> float:
        """Word-level similarity of a holdout item and a text."""
        return word_similarity(self._texts.tokens[holdout], tokens(text))

    def pairs(self, texts: Sequence[str]) -> Pairs:
        """All pairs of any kind between the texts and the holdout, by text, then holdout item."""
        blocks = [self._block(_Texts([]))]
        for start in range(0, len(texts), _BLOCK):
            found = self._block(_Texts(texts[start : start + _BLOCK]))
            blocks.append(replace(found, other=found.other + start))
        return Pairs.joined(blocks)

    def _block(self, block: _Texts) -> Pairs:
        shared = [grams.shared(block)[0] for grams in self._grams]
        covered = sum(
            counts.multiply(1 / np.maximum(g.sizes, 1)) for counts, g in zip(shared, self._grams, strict=True)
        )
        coverage = sparse.csr_matrix(covered)
        masked, sizes = self._masked.shared(block)
        common = masked.tocoo()
        jaccard = common.data / (sizes[common.row] + self._masked.sizes[common.col] - common.data)
        near, moved, alike = self._same_numbers(block, common)
        several = coverage.tocoo()
        twin = (jaccard >= _JACCARD) & (self._words[common.col] >= _TWIN_WORDS)
        found = {
            "exact": np.hstack([_joined(block.texts, self._exact), _joined(block.short_forms(), self._short)]),
            "ngram": self._same_operators(block, _where(several, several.data >= _COVERAGE)),
            "near": np.hstack([self._same_operators(block, near), moved]),
            "template_twin": np.hstack([_where(common, twin), _joined(block.wording(), self._wording)]),
            "partial": np.hstack([_where(several, several.data >= _COVERAGE_LISTED), alike]),
        }
        other, holdout = np.hstack([found[kind] for kind in KINDS])
        rank = np.repeat(np.arange(len(KINDS)), [found[kind].shape[1] for kind in KINDS])
        _, first = np.unique(
            other * len(self._texts.texts) + holdout, return_index=True
        )  # the strongest kind comes first
        other, holdout = other[first], holdout[first]
        inverse = sparse.csr_matrix((jaccard, (common.row, common.col)), shape=masked.shape)
        return Pairs(other, holdout, rank[first], _values(coverage, other, holdout), _values(inverse, other, holdout))

    def _same_numbers(self, block: _Texts, common: sparse.coo_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pairs with the same numbers and a shingle in common: those that are near, those with sentences moved, and
        those that are listed."""
        mine, theirs = block.lengths[common.row], self._texts.lengths[common.col]
        possible = 2 * np.minimum(mine, theirs) >= _SIMILARITY_LISTED * (mine + theirs)
        equal = block.numbers[common.row] == self._texts.numbers[common.col]
        equal_figures = block.figures[common.row] == self._texts.figures[common.col]
        other, holdout = _where(common, possible & (equal | equal_figures))
        both = [(self._texts.tokens[h], block.tokens[o]) for o, h in zip(other, holdout, strict=True)]
        similarity = np.array([word_similarity(*pair) if _number_words_agree(*pair) else 0.0 for pair in both])
        near, moved = similarity >= _SIMILARITY, np.zeros(len(both), dtype=bool)
        for place in np.flatnonzero(~near):
            moved[place] = is_moved_copy(*both[place], _SIMILARITY) and self._moved(block, other[place], holdout[place])
        pairs = np.vstack([other, holdout])
        return pairs[:, near], pairs[:, moved], pairs[:, similarity >= _SIMILARITY_LISTED]

    def _moved(self, block: _Texts, other: int, holdout: int) -> bool:
        """Whether the operators, too, have their neighbours, where they count."""
        if not self._with_operators[holdout]:
            return True
        return is_moved_copy(self._parts(holdout), with_operators(block.texts[other]), _SIMILARITY)

    def _same_operators(self, block: _Texts, pairs: np.ndarray) -> np.ndarray:
        """Of pairs of (other, holdout), those in which the other has the operators of a holdout item that is short or
        mostly formula, in their order; no more than them if it has no more tokens."""
        keep = np.ones(pairs.shape[1], dtype=bool)
        for place in np.flatnonzero(self._with_operators[pairs[1]]):
            other, holdout = pairs[:, place].tolist()
            parts = self._parts(holdout), with_operators(block.texts[other])
            wanted, found = ([part for part in each if is_symbol(part)] for each in parts)
            if block.lengths[other] <= self._texts.lengths[holdout]:
                keep[place] = wanted == found
            else:
                rest = iter(found)
                keep[place] = all(sign in rest for sign in wanted)
        return pairs[:, keep]


def _number_words_agree(first: Sequence[str], second: Sequence[str]) -> bool:
    """Of texts with the same figures: number words may be in one and not in the other ("any one of them", "each of
    them"), but not in each another."""
    mine, theirs = Counter(_numbers(first)), Counter(_numbers(second))
    return mine <= theirs or theirs <= mine


def _places(keys: Iterable) -> dict[Hashable, list[int]]:
    """Where each key is; None is no key."""
    places = defaultdict(list)
    for position, key in enumerate(keys):
        if key is not None:
            places[key].append(position)
    return places


def _where(matrix: sparse.coo_matrix, chosen: np.ndarray) -> np.ndarray:
    return np.vstack([matrix.row[chosen], matrix.col[chosen]]).astype(np.int64)


def _joined(keys: Iterable, places: dict) -> np.ndarray:
    pairs = [(other, holdout) for other, key in enumerate(keys) for holdout in places.get(key, ())]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


def _values(matrix: sparse.csr_matrix, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    return np.asarray(matrix[row, column], dtype=float).ravel() if len(row) else np.empty(0)
