"""Some problems with what the arms wrote on them: those where an arm's solve rate differs most from the baseline's, and
some at random.

The completions are no input of the rule: they may have been dropped once graded (compute.keep.completions), and nothing
may be sampled again for the sake of a page. Others would have other counts, which are an input.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from workflow_scripts import tables
from workflow_scripts.analysis.comparison import BASE, Analysis, Row
from workflow_scripts.job import Job

MOST, AT_RANDOM = 40, 10  # problems of the study: with the largest differences, and whatever they are
OF_EACH = 2  # right completions of an arm on a problem, and as many wrong ones
HEAD, TAIL = 600, 300  # characters kept of a longer completion: its end has the answer
LONGEST_QUESTION = 1500
NOT_KEPT = "no completions on the disk (compute.keep.completions: false keeps none)"

Rates = dict[str, NDArray[np.float64]]  # arm -> (N,) share of correct samples over its runs


def cut(text: str, head: int = HEAD, tail: int = TAIL) -> str:
    """The text; of one longer than head + tail its ends, with how many characters lie between."""
    if len(text) <= head + tail:
        return text
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[len(text) - tail :]}"


def _ends(analysis: Analysis, arm: str) -> int:
    return 0 if arm == BASE else analysis.endpoint_step(arm)


def _rates(analysis: Analysis, benchmark: str) -> tuple[dict[str, tuple[int, Any, Any]], Rates]:
    """arm -> (runs, samples (N,), correct (N,)) over all its runs at the endpoint's step; and the solve rates."""
    sums, rates = {}, {}
    for arm in (BASE, analysis.baseline, *analysis.others):
        cells = [cell for (cell,) in analysis.runs(arm, [benchmark], _ends(analysis, arm)).values()]
        if cells:
            samples, correct = (sum(getattr(cell, name) for cell in cells) for name in ("samples", "correct"))
            sums[arm] = (len(cells), samples, correct)
            rates[arm] = correct / samples
    return sums, rates


def choose(rates: dict[str, Rates], baseline: str, most: int, at_random: int) -> dict[tuple[str, int], str]:
    """(benchmark, place of the problem) -> difference or random, of at most `most` and `at_random` problems.

    rates: benchmark -> solve rates. In rounds: the n-th most gained and the n-th most lost problem of each arm, the
    larger differences first, so that a study of many arms shows something of each. Equal differences go by place: ids
    are hashes. Random ones lie evenly in the order of the ids.
    """
    ranked: dict[int, list[tuple[float, str, str, int]]] = defaultdict(list)
    for benchmark, of_arms in rates.items():
        for arm in set(of_arms) - {BASE, baseline} if baseline in of_arms else ():
            for sign in (1, -1):
                gain = sign * (of_arms[arm] - of_arms[baseline])
                for rank, place in enumerate(np.argsort(-gain, kind="stable")[:most].tolist()):
                    if gain[place] > 0:
                        ranked[rank].append((-float(gain[place]), arm, benchmark, place))
    picked: dict[tuple[str, int], str] = {}
    for rank in sorted(ranked):
        for _, _, benchmark, place in sorted(ranked[rank]):
            if len(picked) < most:
                picked.setdefault((benchmark, place), "difference")
    share = max(1, at_random // max(1, len(rates)))
    for benchmark, of_arms in rates.items():
        left = [n for n in range(len(next(iter(of_arms.values()), ()))) if (benchmark, n) not in picked]
        for n in np.linspace(0, len(left) - 1, min(share, len(left)), dtype=int).tolist():
            picked[benchmark, left[n]] = "random"
    return picked


def _folders(job: Job, analysis: Analysis, arm: str, benchmark: str) -> Iterator[tuple[int, int, Path]]:
    """Seed, step and folder of the runs of an arm that count, in the order of their seeds."""
    for seed in analysis.seeds(arm):
        step = 0 if arm == BASE else analysis.step_reached(arm, seed, _ends(analysis, arm), benchmark)
        if step is not None:
            above = job.root / ("base" if arm == BASE else f"evals/{arm}")
            yield seed, step, above / f"{'repeat' if arm == BASE else 'seed'}-{seed}" / benchmark


def _chosen(path: Path, table: tables.Table, column: str, ids: set[str], step: int) -> Iterator[Row]:
    """A column of the rows of these problems at that step, with what identifies them; read in parts: texts of a large
    run are gigabytes."""
    names = ("problem_id", "step", "sample", "completion_tokens", column)
    wanted = pa.array(sorted(ids), type=tables.TEXT)
    for part in zip(*(tables.parts(path, table, name) for name in names), strict=True):
        rows = pa.table(dict(zip(names, part, strict=True)))
        here = pc.and_(pc.is_in(rows["problem_id"], value_set=wanted), pc.equal(rows["step"], step))
        yield from rows.filter(here).to_pylist()


def _written(
    job: Job, analysis: Analysis, arm: str, benchmark: str, ids: set[str]
) -> tuple[int, int, dict[str, list[Row]]]:
    """Of the first run whose completions are there: seed, step, and by problem its completions with their grades."""
    for seed, step, folder in _folders(job, analysis, arm, benchmark):
        completions, samples = (folder / f"{name}.parquet" for name in ("completions", "samples"))
        if not (completions.is_file() and samples.is_file()):
            continue
        graded = {
            (row["problem_id"], row["sample"], row["completion_tokens"]): row["status"]
            for row in _chosen(samples, tables.SAMPLES, "status", ids, step)
        }
        found: dict[str, list[Row]] = defaultdict(list)
        for row in _chosen(completions, tables.COMPLETIONS, "completion", ids, step):
            status = graded.get((row["problem_id"], row["sample"], row["completion_tokens"]))
            if status is not None:  # else completions and grades are of two makings
                found[row["problem_id"]].append({**row, "status": status})
        return seed, step, found
    return -1, -1, {}


def _few(rows: list[Row]) -> list[Row]:
    """The first right and the first wrong ones, in the order in which they were drawn."""
    rows = sorted(rows, key=lambda row: row["sample"])
    right = [row for row in rows if row["status"] == "correct"][:OF_EACH]
    wrong = [row for row in rows if row["status"] != "correct"][:OF_EACH]
    return sorted(right + wrong, key=lambda row: row["sample"])


def rows(job: Job, analysis: Analysis) -> list[Row]:
    """All rows; the completions are looked for below the root of the job."""
    sums, rates = {}, {}
    for benchmark in analysis.benchmarks:
        sums[benchmark], rates[benchmark] = _rates(analysis, benchmark)
    picked = choose(rates, analysis.baseline, MOST, AT_RANDOM)
    holdouts = [tables.read(path, tables.PROBLEMS).to_pylist() for path in job.inputs.get("holdout", [])]
    asked = {(row["benchmark"], row["problem_id"]): row for rows in holdouts for row in rows}
    shown: list[Row] = []
    for benchmark in analysis.benchmarks:
        ids = analysis.problem_ids(benchmark)
        places = {ids[place]: place for name, place in picked if name == benchmark}
        for arm, (runs, samples, correct) in sums[benchmark].items():
            seed, step, found = _written(job, analysis, arm, benchmark, set(places))
            for problem, place in places.items():
                known = asked.get((benchmark, problem), {})
                row = {
                    "benchmark": benchmark, "problem_id": problem, "picked": picked[benchmark, place], "arm": arm,
                    "question": cut(known.get("question") or "", LONGEST_QUESTION, 0) or None,
                    "answer": known.get("answer"), "runs": runs, "samples": samples[place], "correct": correct[place],
                }  # fmt: skip
                few = _few(found.get(problem, []))
                shown += [
                    row | {"seed": seed, "step": step, "sample": one["sample"], "status": one["status"],
                           "completion": cut(one["completion"]), "characters": len(one["completion"])}
                    for one in few
                ] or [row | {"reason": NOT_KEPT}]  # fmt: skip
    return shown
