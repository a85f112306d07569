"""All counts that `armslength compare` was given, checked against each other, in the form the analysis stages take."""

from collections import Counter
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from workflow_scripts.analysis.comparison import MACRO
from workflow_scripts.analysis.counts import Cell, Cells, Codes, coded
from workflow_scripts.commands.compare.counts_table import InputError, Part, listed

FEW = 10  # problems below which two runs may well have the same counts by chance


def _joined(first: Codes, second: Codes) -> Codes:
    """One code for each pair that occurs, in the order of the pairs."""
    return pd.factorize(first * (int(second.max()) + 1) + second, sort=True)[0]


class Evaluations:
    """Counts by arm, seed, step, benchmark and problem. Raises InputError for what no analysis can be made of.

    common: leave out problems that a run lacks, instead of refusing. warnings: sentences for the reader.
    """

    def __init__(self, parts: list[Part], common: bool) -> None:
        self.warnings = _notes(parts)
        _check_contents(parts, self.warnings)
        _check_metrics(parts)
        rows = pa.concat_tables([part.rows for part in parts])
        self._arm, self.arms = coded(rows["arm"])
        self._benchmark, self._names = coded(rows["benchmark"])
        self._problem, self._problems = coded(rows["problem"])
        self._n, self._c, seed, step = (rows[name].to_numpy() for name in ("n", "c", "seed", "step"))
        if MACRO in self._names:
            raise InputError(f"a benchmark may not be called {MACRO}: that is the mean over all of them")
        (self._seed, self._seeds), (self._step, self._steps) = (pd.factorize(x, sort=True) for x in (seed, step))
        self._run = _joined(_joined(self._arm, self._seed), self._step)
        self._cell = _joined(self._run, self._benchmark)
        self._order = np.argsort(key := _joined(self._cell, self._problem), kind="stable")
        self._check_repeats(parts, key)
        self._keep_common(common)
        self._warn()

    def _named(self, row: int) -> str:
        step = f", step {self._steps[self._step[row]]}" if len(self._steps) > 1 else ""
        return f"{self.arms[self._arm[row]]}, seed {self._seeds[self._seed[row]]}{step}"

    def _check_repeats(self, parts: list[Part], key: Codes) -> None:
        ordered = key[self._order]
        again = np.flatnonzero(ordered[1:] == ordered[:-1])
        if not len(again):
            return
        starts = np.cumsum([0, *(len(part.rows) for part in parts)])
        # Of all repeated rows, the one that comes first in the files.
        second = int(min(self._order[again + 1]))
        first = int(self._order[np.searchsorted(ordered, key[second])])
        places = []
        for row in (first, second):
            which = int(np.searchsorted(starts, row, side="right")) - 1
            places.append(f"{parts[which].file}, {parts[which].place(int(row - starts[which]))}")
        raise InputError(
            f"{places[1]}: {self._named(second)}, problem {self._problems[self._problem[second]]} of "
            f"{self._names[self._benchmark[second]]} is there already: {places[0]}"
        )

    def _keep_common(self, common: bool) -> None:
        """Every run must have the same problems: a mean over others is a mean over easier or harder ones."""
        pair = _joined(self._benchmark, self._problem)
        runs = int(self._run.max()) + 1
        complete = np.bincount(pair) == runs
        if complete.all():
            return
        if not common:
            self._refuse_gaps(pair, complete)
        kept = complete[pair]
        if not kept.any():
            raise InputError("no problem is in all runs")
        dropped = int((~complete).sum())
        names = {self._names[i] for i in np.unique(self._benchmark[~kept])}
        gone = names - {self._names[i] for i in np.unique(self._benchmark[kept])}
        whole = f", and with them all of {listed(sorted(gone))}" if gone else ""
        self.warnings.append(f"{dropped} of {len(complete)} problems are not in every run and are left out{whole}.")
        self._order = self._order[kept[self._order]]

    def _refuse_gaps(self, pair: Codes, complete: NDArray[np.bool_]) -> None:
        lacking = int(np.flatnonzero(~complete)[0])
        holders = np.unique(self._run[pair == lacking])
        run = next(i for i, other in enumerate([*holders, -1]) if i != other)
        row, example = (int(np.flatnonzero(x)[0]) for x in (self._run == run, pair == lacking))
        name = self._benchmark[example]
        here, all_of_it = (len(np.unique(pair[rows & (self._benchmark == name)])) for rows in (self._run == run, True))
        raise InputError(
            f"{self._named(row)} lacks {all_of_it - here} of the {all_of_it} problems of {self._names[name]}, such as "
            f"{self._problems[self._problem[example]]}; every run needs the same ones (--common-problems leaves out "
            "the rest)"
        )

    @cached_property
    def cells(self) -> Cells:
        """(arm, seed, step, benchmark) -> its counts by problem, in the order of `Cells`."""
        order = self._order
        cell = self._cell[order]
        starts = np.flatnonzero(np.r_[True, cell[1:] != cell[:-1]])
        found = Cells()
        for start, end in zip(starts, [*starts[1:], len(cell)], strict=True):
            rows = order[start:end]
            first = rows[0]
            name = (
                self.arms[self._arm[first]],
                int(self._seeds[self._seed[first]]),
                int(self._steps[self._step[first]]),
                self._names[self._benchmark[first]],
            )
            unknown = np.zeros(end - start, dtype=np.int64)
            found[name] = Cell(self._n[rows], self._c[rows], unknown, unknown, unknown)
        return found

    @cached_property
    def seeds(self) -> dict[str, list[int]]:
        """arm -> its seeds."""
        found: dict[str, set[int]] = {arm: set() for arm in self.arms}
        for arm, seed, *_ in self.cells:
            found[arm].add(seed)
        return {arm: sorted(seeds) for arm, seeds in found.items()}

    @cached_property
    def last_steps(self) -> dict[str, int]:
        """arm -> the last step of any of its runs."""
        return {arm: step for arm, _, step, _ in sorted(self.cells, key=lambda cell: cell[2])}

    @property
    def benchmarks(self) -> list[str]:
        """Benchmarks, in alphabetical order."""
        return sorted({name for *_, name in self.cells})

    @property
    def problems(self) -> int:
        """Problems of all benchmarks."""
        return sum({name: len(cell) for (*_, name), cell in self.cells.items()}.values())

    @property
    def samples(self) -> str:
        """Samples of a problem: "8 samples", or the range."""
        low, high = (int(bound(self._n[self._order])) for bound in (np.min, np.max))
        return f"{high if low == high else f'{low} to {high}'} sample{'s' if high > 1 else ''}"

    def _warn(self) -> None:
        """What a reader should know before the first number."""
        counts = {arm: len(seeds) for arm, seeds in self.seeds.items()}
        if single := [arm for arm, count in counts.items() if count == 1]:
            self.warnings.append(f"One seed only: {listed(single)}. One run says nothing about training again; no "
                                 "interval is given.")  # fmt: skip
        if len(set(counts.values())) > 1:
            each = listed(f"{arm} {count}" for arm, count in counts.items())
            self.warnings.append(f"Arms have different numbers of seeds: {each}.")
        for name in self.benchmarks:
            sizes = [cell.samples for (*_, other), cell in self.cells.items() if other == name]
            low, high = min(size.min() for size in sizes), max(size.max() for size in sizes)
            if low != high:
                self.warnings.append(
                    f"{name}: between {low} and {high} samples a problem; runs with fewer are noisier."
                )
        self._warn_of_extremes()

    def _warn_of_extremes(self) -> None:
        last = {key: cell for key, cell in self.cells.items() if key[2] == self.last_steps[key[0]]}
        for arm in self.arms:
            own = [cell for (name, *_), cell in last.items() if name == arm]
            if not any(cell.correct.any() for cell in own):
                self.warnings.append(f"{arm} solves nothing: no sample of any run is correct.")
            elif all((cell.correct == cell.samples).all() for cell in own):
                self.warnings.append(f"{arm} solves everything: every sample of every run is correct.")
        same = Counter(
            (name, cell.samples.tobytes(), cell.correct.tobytes())
            for (*_, name), cell in last.items()
            if len(cell) >= FEW and np.ptp(cell.correct / cell.samples) > 0
        )
        for (name, *_), count in same.items():
            if count > 1:
                self.warnings.append(
                    f"{name}: {count} runs have the same counts on every problem. One file given twice?"
                )


def _notes(parts: list[Part]) -> list[str]:
    """What the files' readers noted, each once, with the file it is of, or the first of several."""
    files: dict[str, list[str]] = {}
    for part in parts:
        for note in part.notes:
            files.setdefault(note, []).append(part.file)
    return [f"{of[0]}{f' and {len(of) - 1} more' if len(of) > 1 else ''}: {note}" for note, of in files.items()]


def _check_metrics(parts: list[Part]) -> None:
    """Every log of a benchmark must use the same metric: otherwise a difference could be that of two graders."""
    first: dict[str, Part] = {}
    for part in parts:
        if part.metric is None:
            continue
        other = first.setdefault(part.rows["benchmark"][0].as_py(), part)
        if other.metric != part.metric:
            raise InputError(
                f"{part.file}: {part.metric} counts as correct here, but {other.metric} in {other.file}; give logs "
                "with the same metric, or use --metric to choose one that all logs have"
            )


def _check_contents(parts: list[Part], warnings: list[str]) -> None:
    """Where logs hold hashes: a problem's number stands for one text; and was its prompt the same?"""
    first: dict[tuple[str, str], tuple[str, str, str]] = {}
    other_prompt: dict[str, str] = {}
    for part in parts:
        if not part.contents:
            continue
        name = part.rows["benchmark"][0].as_py()
        for problem, (content, prompt) in part.contents.items():
            file, known, known_prompt = first.setdefault((name, problem), (part.file, content, prompt))
            if content != known:
                raise InputError(f"{part.file}: problem {problem} of {name} is another one than in {file} (doc_hash)")
            if prompt != known_prompt:
                other_prompt.setdefault(name, f"{part.file} and {file}")
    for name, files in other_prompt.items():
        warnings.append(f"{name}: prompts differ between {files}; a difference may be the prompt's, not the arm's.")
