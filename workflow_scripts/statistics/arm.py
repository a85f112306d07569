"""The problem scores of one arm and what follows from them alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workflow_scripts.statistics.pass_at_k import Reals

_ROUNDING = 1e-20  # run scores that differ at all have a variance far above this


@dataclass(frozen=True, eq=False)
class Arm:
    """Problem scores of one arm: seeds (S,), and for each benchmark the score and its sampling variance, (S,N).

    Several benchmarks make a macro average: each counts the same, whatever its number of problems.
    """

    seeds: tuple[int, ...]
    score: tuple[Reals, ...]
    variance: tuple[Reals, ...]

    @cached_property
    def run_means(self) -> Reals:
        """(S,): score of each run."""
        return np.mean([score.mean(1) for score in self.score], axis=0) if self.seeds else np.empty(0)

    @cached_property
    def run_variance(self) -> float:
        """Variance of the runs' scores; nan for one run."""
        variance = float(self.run_means.var(ddof=1)) if len(self.seeds) > 1 else np.nan
        return 0.0 if variance <= _ROUNDING else variance

    @cached_property
    def evaluation_variance(self) -> Reals:
        """(S,): sampling variance of each run's score."""
        return sum_over_benchmarks([v.mean(1) / v.shape[1] for v in self.variance])

    @cached_property
    def residual_variance(self) -> list[float]:
        """For each benchmark, the mean square of seed x problem over the number of problems; nan for one seed."""
        return [_residual_mean_square(score) / score.shape[1] for score in self.score]

    def problem_means(self, benchmark: int) -> Reals:
        """(N,): scores averaged over the seeds."""
        return self.score[benchmark].mean(0)

    def of_runs(self, rows: Sequence[int]) -> "Arm":
        """The same arm with some of its runs, by their place."""
        if list(rows) == list(range(len(self.seeds))):
            return self
        score, variance = (tuple(each[list(rows)] for each in part) for part in (self.score, self.variance))
        return Arm(tuple(self.seeds[row] for row in rows), score, variance)

    def subset(self, problems: NDArray[np.bool_]) -> "Arm":
        """The same arm on some problems (N,) of its one benchmark."""
        return Arm(self.seeds, (self.score[0][:, problems],), (self.variance[0][:, problems],))


def sum_over_benchmarks(variances: Sequence[Reals] | Sequence[float]) -> Reals:
    """Variance of a macro average from the variances of its benchmarks."""
    return np.sum(variances, axis=0) / len(variances) ** 2


def _residual_mean_square(score: Reals) -> float:
    seeds, problems = score.shape
    if seeds < 2 or problems < 2:
        return np.nan
    residual = score - score.mean(1, keepdims=True) - score.mean(0) + score.mean()
    return float((residual**2).sum() / ((seeds - 1) * (problems - 1)))
