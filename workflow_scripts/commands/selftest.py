"""`armslength selftest`: check the clip rules and the statistics on worked examples: seconds, offline, no model."""

import argparse
import math

import numpy as np
import torch

from workflow_scripts.objectives import bounds, surrogate
from workflow_scripts.statistics.arm import Arm
from workflow_scripts.statistics.effects import estimate, judge
from workflow_scripts.statistics.pass_at_k import pass_at_k, pass_at_k_variance

GROUP_SIZE, EPS_LOW, EPS_HIGH = 8, 0.20, 0.28
# arXiv:2609.00444 Eq. 11: 0.20 + 0.08 (8 - c) / 7 for c = 1..8
SCHEDULE = (0.28, 0.268571, 0.257143, 0.245714, 0.234286, 0.222857, 0.211429, 0.20)
MATCHED_WIDTH = 0.234286  # the same at c = (2 x 8 - 1) / 3 = 5, the mean count of a positive rollout's group
RATIOS = (0.60, 0.79, 0.81, 1.00, 1.19, 1.21, 1.27, 1.29, 1.60)

# Correct of 100 samples on two problems, a row per seed. Run scores: .60 .62 .58 .61 .59 and .64 .66 .62 .65 .63.
BASELINE = ((70, 50), (74, 50), (66, 50), (72, 50), (68, 50))
TREATMENT = ((78, 50), (78, 54), (78, 46), (78, 52), (78, 48))
MARGIN, ALPHA = 0.05, 0.05


Pair = tuple[float | str, float | str]


class _Report:
    """Prints a row per check, each value beside what it should be, and remembers how many failed."""

    def __init__(self) -> None:
        self.failed = 0

    def heading(self, title: str, *columns: str) -> None:
        """Title of a table and names of its columns of pairs."""
        print(f"\n{title}\n  {'':<42}" + "".join(f"{f'{name}, expected':<32}" for name in columns).rstrip())

    def row(self, text: str, *pairs: Pair) -> None:
        """pairs: (got, expected), as text or as numbers that agree in six digits."""
        good, shown = True, ""
        for got, expected in pairs:
            if isinstance(got, str) or isinstance(expected, str):
                good &= got == expected
                shown += f"{got}, {expected}".ljust(32)
            else:
                good &= math.isclose(got, expected, rel_tol=1e-6, abs_tol=1e-6)
                shown += f"{got:9.6f} {expected:9.6f}".ljust(32)
        self.failed += not good
        print(f"  {text:<42}{shown}{'ok' if good else 'FAIL'}")


def _group(advantage: float, correct: int) -> bounds.Group:
    column = torch.tensor([[advantage]], dtype=torch.float64)
    return bounds.Group(column, torch.full_like(column, correct), GROUP_SIZE, torch.full_like(column, -0.1))


def _check_schedule(report: _Report) -> None:
    title = f"Width of the upper clip bound for A > 0: group of {GROUP_SIZE}, eps_low {EPS_LOW}, ceiling {EPS_HIGH}"
    report.heading(title, "gapo", "gapo_matched", "ppo")
    for correct, expected in enumerate(SCHEDULE, start=1):
        group = _group(1.0, correct)
        limits = (
            bounds.gapo(group, eps_low=EPS_LOW, eps_high_max=EPS_HIGH),
            bounds.gapo_matched(group, eps_low=EPS_LOW, eps_high_max=EPS_HIGH),
            bounds.ppo(group, eps_low=EPS_LOW, eps_high=EPS_HIGH),
        )
        widths = [limit.upper.item() - 1 for limit in limits]
        report.row(f"{correct} correct", *zip(widths, (expected, MATCHED_WIDTH, EPS_HIGH), strict=True))


def _check_clamp(report: _Report) -> None:
    report.heading("The clamp against PPO's min(r A, clip(r) A)", "value", "gradient in r")
    for advantage in (0.7, -0.7):
        limits = bounds.ppo(_group(advantage, 3), eps_low=EPS_LOW, eps_high=EPS_HIGH)
        for value in RATIOS:
            ratio = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
            column = torch.full_like(ratio, advantage).detach()
            ours = -surrogate.clipped(ratio, column, torch.zeros_like(column), limits)
            theirs = torch.minimum(ratio * column, ratio.clamp(1 - EPS_LOW, 1 + EPS_HIGH) * column)
            ours_gradient, theirs_gradient = (torch.autograd.grad(x.sum(), ratio)[0].item() for x in (ours, theirs))
            pairs = (ours.item(), theirs.item()), (ours_gradient, theirs_gradient)
            report.row(f"A {advantage:+.1f}, ratio {value:.2f}", *pairs)


def _arm(correct: tuple[tuple[int, int], ...]) -> Arm:
    score, variance = (function(np.array(correct), 100, 1) for function in (pass_at_k, pass_at_k_variance))
    return Arm(tuple(range(len(correct))), (score,), (variance,))


def _check_statistics(report: _Report) -> None:
    title = f"Statistics: 2 arms x 5 seeds x 2 problems x 100 samples, margin {MARGIN}, alpha {ALPHA}"
    report.heading(title, "value")
    treatment, baseline = _arm(TREATMENT), _arm(BASELINE)
    report.row("pass@4 of 2 correct in 8: 1 - 15/70", (pass_at_k(2, 8, 4).item(), 55 / 70))
    report.row("variance of pass@1, 2 of 8: p (1 - p) / 7", (pass_at_k_variance(2, 8, 1).item(), 3 / 16 / 7))
    for seed, score in enumerate((0.60, 0.62, 0.58, 0.61, 0.59)):
        report.row(f"score of baseline run {seed}", (float(baseline.run_means[seed]), score))
    fixed = estimate(treatment, baseline, "benchmark", ALPHA)
    low, high = fixed.interval(ALPHA)
    report.row("difference", (fixed.delta, 0.04))
    report.row("standard error: sqrt(2 x 0.00025 / 5)", (fixed.se, 0.01))
    report.row("degrees of freedom: 2 (5 - 1)", (fixed.df, 8))
    report.row("95 % interval, lower end: t = 2.306004", (low, 0.04 - 0.02306004))
    report.row("95 % interval, upper end", (high, 0.04 + 0.02306004))
    report.row("p of t = 4 with 8 df", (fixed.p, 0.003950))
    found = judge(treatment, baseline, "benchmark", ALPHA, MARGIN)
    report.row("detectable effect: 2.024440 run SDs", (found.mde80, 2.024440 * math.sqrt(0.00025)))
    report.row("verdict", (found.verdict, "better"))
    population = estimate(treatment, baseline, "population", ALPHA)
    report.row("problems like these: standard error", (population.se, 0.04))
    # Satterthwaite: 2.56e-6 / 2.5625e-6, which is below the df of all its parts: 8 of the seeds, 1 of two problems.
    report.row("problems like these: degrees of freedom", (population.df, 1.0))
    alone = judge(_arm(TREATMENT[:1]), _arm(BASELINE[:1]), "benchmark", ALPHA, MARGIN)
    report.row("verdict with one seed per arm", (alone.verdict, "not assessable"))


def main(argv: list[str]) -> int:
    """Print every check with ok or FAIL; 1 if any failed."""
    argparse.ArgumentParser(prog="armslength selftest", description=__doc__).parse_args(argv)
    report = _Report()
    for check in (_check_schedule, _check_clamp, _check_statistics):
        check(report)
    print(f"\n{report.failed} checks FAILED" if report.failed else "\nall checks ok")
    return 1 if report.failed else 0
