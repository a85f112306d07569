"""pass@k of a problem from `correct` successes among `samples`, and the sampling variance of that estimate."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Reals = NDArray[np.float64]


def _all_wrong(correct: NDArray[np.int64], samples: NDArray[np.int64], drawn: int) -> Reals:
    """C(samples - correct, drawn) / C(samples, drawn): chance that `drawn` of the samples hold no success."""
    share = np.ones(np.broadcast(correct, samples).shape)
    for i in range(drawn):
        share = share * np.maximum(samples - correct - i, 0) / np.maximum(samples - i, 1)
    return share


def _checked(correct: ArrayLike, samples: ArrayLike, pass_at: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    c, n = np.broadcast_arrays(np.asarray(correct, dtype=np.int64), np.asarray(samples, dtype=np.int64))
    if (wrong := (c < 0) | (c > n)).any():
        raise ValueError(f"correct must lie between 0 and samples: {c[wrong][0]} of {n[wrong][0]}")
    if pass_at < 1 or (n < pass_at).any():
        raise ValueError(f"pass_at must lie between 1 and samples: pass_at {pass_at}, samples {n.min(initial=pass_at)}")
    return c, n


def pass_at_k(correct: ArrayLike, samples: ArrayLike, pass_at: int) -> Reals:
    """Unbiased probability that `pass_at` samples hold a success (arXiv:2107.03374 Eq. 1).

    correct, samples: integers of any one shape, which is also the result's. ValueError if correct > samples or
    samples < pass_at.
    """
    return 1.0 - _all_wrong(*_checked(correct, samples, pass_at), pass_at)


def pass_at_k_variance(correct: ArrayLike, samples: ArrayLike, pass_at: int) -> Reals:
    """Unbiased sampling variance of `pass_at_k`, one problem at a time; nan where samples < 2 pass_at.

    The square of U = 1 - pass@k, less the unbiased estimate C(n-c,2k)/C(n,2k) of its expectation squared; for
    pass_at = 1 this is p(1-p)/(samples-1). Shapes and errors as in `pass_at_k`.
    """
    c, n = _checked(correct, samples, pass_at)
    variance = _all_wrong(c, n, pass_at) ** 2 - _all_wrong(c, n, 2 * pass_at)
    return np.where(n < 2 * pass_at, np.nan, np.maximum(variance, 0.0))
