"""How much two texts, as lists of tokens, resemble each other: in order, and with sentences moved."""

from collections import Counter, defaultdict
from collections.abc import Sequence

_SHORTEST_TILE = 4  # tokens; shorter runs are in common by chance


def word_similarity(first: Sequence[str], second: Sequence[str]) -> float:
    """2 LCS / (a + b), between 0 and 1; bit-parallel LCS (Hyyrö 2004, figure 2)."""
    if not first or not second:
        return float(len(first) == len(second))
    places: dict[str, int] = defaultdict(int)
    for position, word in enumerate(first):
        places[word] |= 1 << position
    everything = unmatched = (1 << len(first)) - 1
    for word in second:
        hit = unmatched & places.get(word, 0)
        unmatched = ((unmatched + hit) | (unmatched - hit)) & everything
    return 2 * (len(first) - unmatched.bit_count()) / (len(first) + len(second))


def is_moved_copy(first: Sequence[str], second: Sequence[str], least: float) -> bool:
    """Whether runs of four tokens or more, in any order, make up at least that share of both texts and hold every
    number and symbol of the first: sentences are moved, and each number keeps its neighbours.

    The runs are found by greedy string tiling (Wise 1993): the longest run in common first, no token twice.
    """
    total = len(first) + len(second)
    if 2 * (Counter(first) & Counter(second)).total() < least * total:
        return False
    mine: list[str | None] = [*first]
    theirs: list[str | None] = [*second]
    tiled = 0
    while True:
        length, end, other_end = _longest_run(mine, theirs)
        if length < _SHORTEST_TILE:
            break
        tiled += length
        mine[end - length : end] = theirs[other_end - length : other_end] = [None] * length
    return 2 * tiled >= least * total and all(word is None or word[0].isalpha() for word in mine)


def _longest_run(first: Sequence[str | None], second: Sequence[str | None]) -> tuple[int, int, int]:
    """Length of the longest run in common, and where it ends in both; None is in no run."""
    places = defaultdict(list)
    for position, word in enumerate(second):
        if word is not None:
            places[word].append(position)
    best = (0, 0, 0)
    runs: dict[int, int] = {}  # by the place in the second text where they end
    for position, word in enumerate(first):
        runs = {other: runs.get(other - 1, 0) + 1 for other in places.get(word, ())} if word is not None else {}
        if runs:
            other = max(runs, key=runs.__getitem__)
            best = max(best, (runs[other], position + 1, other + 1), key=lambda run: run[0])
    return best
