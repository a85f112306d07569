"""pass@k and its variance against brute force; and the inputs they must refuse."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workflow_scripts.statistics.pass_at_k import pass_at_k, pass_at_k_variance


@st.composite
def counts(draw: st.DrawFn, factor: int = 1) -> tuple[int, int, int]:
    """(correct, samples, pass_at) with samples >= factor pass_at."""
    samples = draw(st.integers(factor, 9))
    return draw(st.integers(0, samples)), samples, draw(st.integers(1, samples // factor))


@given(counts())
def test_pass_at_k_is_the_share_of_subsets_with_a_success(given_counts: tuple[int, int, int]) -> None:
    correct, samples, pass_at = given_counts
    outcomes = [True] * correct + [False] * (samples - correct)
    subsets = list(itertools.combinations(outcomes, pass_at))
    assert pass_at_k(correct, samples, pass_at) == pytest.approx(np.mean([any(subset) for subset in subsets]))


@given(counts(factor=2), st.floats(0, 1).map(lambda rate: round(rate, 9)))
def test_pass_at_k_and_its_variance_are_unbiased(given_counts: tuple[int, int, int], rate: float) -> None:
    _, samples, pass_at = given_counts
    correct = np.arange(samples + 1)
    weight = stats.binom.pmf(correct, samples, rate)
    score = pass_at_k(correct, samples, pass_at)
    mean = weight @ score
    assert mean == pytest.approx(1 - (1 - rate) ** pass_at, abs=1e-12)
    expected = weight @ (score - mean) ** 2
    assert weight @ pass_at_k_variance(correct, samples, pass_at) == pytest.approx(expected, abs=1e-12)


def test_variance_of_pass_at_1_is_the_binomial_one() -> None:
    rate = np.arange(9) / 8
    assert pass_at_k_variance(np.arange(9), 8, 1) == pytest.approx(rate * (1 - rate) / 7)


def test_variance_is_nan_below_twice_the_draws() -> None:
    assert np.isnan(pass_at_k_variance([3, 3], [8, 7], 4)).tolist() == [False, True]


def test_pass_at_k_of_many_samples_stays_finite() -> None:
    assert pass_at_k(1, 2000, 1000) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("correct", "samples", "pass_at", "message"),
    [
        (9, 8, 1, "correct must lie between 0 and samples: 9 of 8"),
        (-1, 8, 1, "correct must lie between 0 and samples: -1 of 8"),
        (1, 3, 4, "pass_at 4, samples 3"),
        (1, 3, 0, "pass_at 0"),
    ],
)
def test_impossible_counts_are_refused(correct: int, samples: int, pass_at: int, message: str) -> None:
    for function in (pass_at_k, pass_at_k_variance):
        with pytest.raises(ValueError, match=message):
            function([0, correct], [samples, samples], pass_at)
