"""What the analysis stages share: the counts by run, checkpoint and benchmark, and what the study asks of them."""

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from workflow_scripts import tables
from workflow_scripts.analysis.counts import Cell, Cells
from workflow_scripts.statistics.arm import Arm
from workflow_scripts.statistics.effects import level
from workflow_scripts.statistics.pass_at_k import pass_at_k, pass_at_k_variance

BASE = "base"  # the untrained model in counts: its seed is the repeat, its step 0
MACRO = "macro"  # in place of a benchmark: the mean over the reported benchmarks
KEPT = 128  # score arrays of other arms than the baseline that are kept: of an arm's step, all views and pass_at

Row = dict[str, Any]


def all_pass_at(settings: dict[str, Any]) -> list[int]:
    """Every k of pass@k that the analysis needs, the endpoint's too."""
    return sorted({*settings["pass_at"], settings["endpoint"]["pass_at"]})


class Analysis:
    """Settings of the analysis with the counts that remain after exclusions.

    settings: of the stage; cells: (arm, seed, step, benchmark) -> counts.
    views: name -> benchmarks averaged under it (each reported benchmark, and `macro` when there are several).
    """

    def __init__(self, settings: dict[str, Any], cells: Cells) -> None:
        self.settings, self.cells = settings, cells
        self.baseline: str = settings["baseline"]
        self.roles: dict[str, str] = settings["roles"]
        self.margin: float = settings["margin"]
        self.looks: list[int] | None = settings["looks"]  # None: one, with whatever seeds there are
        self.last_steps: dict[str, int] = settings["last_steps"]
        self.benchmarks: list[str] = settings["benchmarks"]
        self.views = {name: [name] for name in self.benchmarks}
        if len(self.benchmarks) > 1:
            self.views[MACRO] = self.benchmarks
        self.endpoint_view = MACRO if len(self.benchmarks) > 1 else self.benchmarks[0]
        self.endpoint_pass_at: int = settings["endpoint"]["pass_at"]
        self.pass_at = all_pass_at(settings)
        self._runs: dict[tuple[str, tuple[str, ...], int], dict[int, list[Cell]]] = {}
        self._kept: dict[tuple[str, tuple[str, ...], int, int], Arm] = {}
        self._of_baseline: dict[tuple[str, tuple[str, ...], int, int], Arm] = {}

    @classmethod
    def read(cls, settings: dict[str, Any], counts: str | Path) -> Self:
        """From the file of the table counts, after a check that its rows make sense."""
        return cls(settings, Cells.read(counts, max(all_pass_at(settings))))

    @property
    def arms(self) -> list[str]:
        """All arms of the study, whether or not they were trained."""
        return sorted({*self.roles, self.baseline})

    @property
    def others(self) -> list[str]:
        """All arms but the baseline."""
        return [arm for arm in self.arms if arm != self.baseline]

    @property
    def family(self) -> list[str]:
        """The arms of role comparison: what Bonferroni and Holm count."""
        return [arm for arm in self.others if self.roles[arm] == "comparison"]

    def alpha(self, arm: str) -> float:
        """Level of an arm's verdict: alpha/(arms x looks), or alpha/looks for a placebo or sensitivity arm."""
        return self.alpha_of(len(self.family) if arm in self.family else 1)

    def alpha_of(self, arms: int) -> float:
        """Level of a verdict in a family of so many arms."""
        return level(self.settings["alpha"], arms, self.number_of_looks)

    @property
    def number_of_looks(self) -> int:
        """Planned looks that share alpha; at least one."""
        return max(len(self.looks or ()), 1)

    def endpoint_step(self, arm: str) -> int:
        """The arm's step that the endpoint asks for; 0, where nothing was trained, for an arm left out by only_arms."""
        checkpoint = self.settings["endpoint"]["checkpoint"]
        return self.last_steps.get(arm, 0) if checkpoint == "last" else int(checkpoint)

    def baseline_step(self, arm: str, step: int) -> int:
        """The baseline's step to compare with: the same, but the last with the last if the endpoint says so."""
        last = self.settings["endpoint"]["checkpoint"] == "last" and step == self.endpoint_step(arm)
        return self.last_steps.get(self.baseline, step) if last else step

    def seeds(self, arm: str) -> list[int]:
        """Declared seeds of an arm; for base the evaluation repeats."""
        return sorted(self.settings["base_repeats"] if arm == BASE else self.settings["runs"].get(arm, []))

    def problem_ids(self, benchmark: str) -> list[str]:
        """The problems that count, in the order of every cell; empty if none is left."""
        return self.cells.problem_ids.get(benchmark, [])

    @cached_property
    def _steps(self) -> dict[str, dict[tuple[int, str], list[int]]]:
        """arm -> (seed, benchmark) -> its steps in order."""
        found: dict[str, dict[tuple[int, str], list[int]]] = {}
        for arm, seed, step, benchmark in self.cells:
            found.setdefault(arm, {}).setdefault((seed, benchmark), []).append(step)
        return found

    @cached_property
    def _steps_of_arm(self) -> dict[str, list[int]]:
        found = {}
        for arm, runs in self._steps.items():
            evaluated = sorted({step for steps in runs.values() for step in steps})
            declared = self.settings.get("checkpoints", {}).get(arm, evaluated)
            found[arm] = [step for step in declared if step >= evaluated[0]]
        return found

    def steps(self, arm: str) -> list[int]:
        """Declared steps of an arm from the first on that any of its runs was evaluated at.

        A run that diverged may have been evaluated at a step of its own, the last it reached.
        """
        return self._steps_of_arm.get(arm, [])

    def steps_or_end(self, arm: str) -> list[int]:
        """The same; of a declared arm of which nothing is there, the step that the endpoint asks for."""
        end = 0 if arm == BASE else self.endpoint_step(arm)
        return self.steps(arm) or ([end] if self.seeds(arm) else [])

    def step_reached(self, arm: str, seed: int, step: int, benchmark: str) -> int | None:
        """The step itself, or the last checkpoint of a run that ended before it; None without either.

        A run that diverged counts with the score of its last checkpoint: dropping it would be survivor bias.
        """
        if step not in self.steps(arm) and step != self.last_steps.get(arm):
            return None
        return max((s for s in self._steps.get(arm, {}).get((seed, benchmark), []) if s <= step), default=None)

    def runs(self, arm: str, benchmarks: Sequence[str], step: int) -> dict[int, list[Cell]]:
        """seed -> one cell per benchmark, for the runs that have them all."""
        key = arm, tuple(benchmarks), step
        if key not in self._runs:
            found = self._runs[key] = {}
            for seed in self.seeds(arm):
                reached = {benchmark: self.step_reached(arm, seed, step, benchmark) for benchmark in benchmarks}
                cells = [self.cells[arm, seed, at, benchmark] for benchmark, at in reached.items() if at is not None]
                if len(cells) == len(benchmarks):
                    found[seed] = cells
        return self._runs[key]

    def arm(self, arm: str, benchmarks: Sequence[str], step: int, pass_at: int) -> Arm:
        """The arm's problem scores; without seeds where it has no such runs."""
        key = arm, tuple(benchmarks), step, pass_at
        kept = self._of_baseline if arm == self.baseline else self._kept
        if key not in kept:
            if kept is self._kept and len(kept) >= KEPT:
                kept.pop(next(iter(kept)))
            kept[key] = self._made(*key)
        return kept[key]

    def _made(self, arm: str, benchmarks: tuple[str, ...], step: int, pass_at: int) -> Arm:
        runs = self.runs(arm, benchmarks, step)
        if not runs:
            return Arm((), (), ())
        if len(benchmarks) > 1:  # shares the arrays of its benchmarks
            each = [self.arm(arm, [benchmark], step, pass_at) for benchmark in benchmarks]
            parts = [part.of_runs([part.seeds.index(seed) for seed in runs]) for part in each]
            return Arm(tuple(runs), tuple(p.score[0] for p in parts), tuple(p.variance[0] for p in parts))
        correct, samples = (
            np.stack([getattr(cell, name) for (cell,) in runs.values()]) for name in ("correct", "samples")
        )
        score, variance = (made(correct, samples, pass_at) for made in (pass_at_k, pass_at_k_variance))
        return Arm(tuple(runs), (score,), (variance,))

    def gaps(self, arm: str, benchmarks: Sequence[str], step: int) -> list[str]:
        """What is missing of an arm at a step, in words; empty if nothing is."""
        if not self.seeds(arm):
            return [f"{arm} is not part of this run of the study"]
        there = self.runs(arm, benchmarks, step)
        if not there:
            return [f"{arm} has no run with counts of {', '.join(benchmarks)} at step {step}"]
        missing = [str(seed) for seed in self.seeds(arm) if seed not in there]
        early = [
            f"{arm}, seed {seed}: ended at step {at}, which counts"
            for seed in there
            if (at := self.step_reached(arm, seed, step, benchmarks[0])) != step
        ]
        return ([f"{arm}: seed {', '.join(missing)} missing"] if missing else []) + early


def in_order(table: tables.Table, rows: list[Row]) -> list[Row]:
    """Rows in the order of the table's key; nan becomes null."""

    def plain(value: Any) -> Any:
        value = value.item() if isinstance(value, np.generic) else value
        return None if isinstance(value, float) and not math.isfinite(value) else value

    def order(row: Row) -> tuple[Any, ...]:
        return tuple((row.get(column) is not None, row.get(column)) for column in table.key)

    return sorted(({column: plain(value) for column, value in row.items()} for row in rows), key=order)
