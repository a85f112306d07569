"""`armslength simulate`: simulate studies with a known truth: do intervals and verdicts keep their word?"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from workflow_scripts import platforms, tables
from workflow_scripts.figures.words import columns, markdown_table
from workflow_scripts.statistics import designs, simulation
from workflow_scripts.statistics.designs import MARGIN, SEEDS, UNEQUAL, DesignCell
from workflow_scripts.statistics.effects import Verdict
from workflow_scripts.statistics.simulation import OURS, Row

REPETITIONS = 10_000  # of the Gaussian coverage cells: what the targets are meant for
LEAST, MOST = 20, 1_000_000
MOST_SEED = 2**63 - 1
MOST_PROCESSES = 1024
LIBRARIES = ("numpy", "scipy", "statsmodels")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # one each: the processes are the parallelism
Lines = list[list[str]]


def _whole(least: int, most: int) -> Any:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: a whole number from {least} to {most}")
        return value

    return parse


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="armslength simulate", description=__doc__.split(": ", 1)[1])
    more = f"simulated studies of each Gaussian coverage cell, a part of it of the others; default {REPETITIONS}"
    made.add_argument("--repetitions", metavar="N", type=_whole(LEAST, MOST), default=REPETITIONS, help=more)
    made.add_argument(
        "--seed", metavar="N", type=_whole(0, MOST_SEED), default=1, help="of all random numbers; default 1"
    )
    more = "default: all cores; the results do not depend on it"
    made.add_argument("--processes", metavar="N", type=_whole(1, MOST_PROCESSES), default=platforms.cores(), help=more)
    more = "write simulation.parquet and the figure simulated_coverage (html, svg)"
    made.add_argument("--output", metavar="FOLDER", type=Path, help=more)
    made.add_argument("--markdown", action="store_true", help="print markdown, to paste")
    return made


def simulate(repetitions: int, seed: int, processes: int) -> list[Row]:
    """The rows of all cells."""
    cells = designs.cells(repetitions)
    work = simulation.chunks(cells, seed)
    for name in THREADS:
        os.environ[name] = "1"
    found: dict[DesignCell, list[Any]] = {cell: [] for cell in cells}
    # Spawned, so that the libraries of the processes see the number of threads.
    with multiprocessing.get_context("spawn").Pool(min(processes, len(work))) as pool:
        for done, (chunk, values) in enumerate(zip(work, pool.imap(simulation.run, work), strict=True), start=1):
            found[chunk.cell].append(values)
            if sys.stderr.isatty():
                print(f"\r{100 * done // len(work)} %", end="" if done < len(work) else "\r", file=sys.stderr)
        pool.close()
        pool.join()
    return [row for cell, values in found.items() for row in simulation.summarise(cell, values)]


# What is said


def _share(row: Row) -> str:
    return f"{100 * row.value:.1f} ± {100 * row.mc_se:.1f}"


def _ratio(row: Row) -> str:
    return f"{row.value:.3f} ± {row.mc_se:.3f}"


def _met(rows: Sequence[Row]) -> str:
    """yes, or how many of the line's targets are missed; - without any."""
    judged = [row.met for row in rows if row.met is not None]
    missed = len(judged) - sum(judged)
    return "-" if not judged else f"NO, {missed} of {len(judged)}" if missed else "yes"


def _setting(cell: DesignCell) -> list[str]:
    return [str(cell.setting.problems), f"{100 * cell.setting.arm_problem:g}", cell.distribution]


def _settings_table() -> Lines:
    head = ["problems", "run SD", "seed", "seed x problem", "sampling", "arm x problem (difference)"]
    return [
        head,
        *(
            [str(s.problems)]
            + [f"{100 * x:.3g}" for x in (s.run_sd, s.seed_sd, s.seed_problem, s.evaluation, s.arm_problem)]
            for s in (*designs.SETTINGS, designs.NOISY)
        ),
    ]


def _groups(rows: Sequence[Row], *quantities: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows that differ in nothing but seeds, looks or arms, under what they share."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row.quantity in quantities:
            key = (row.estimand, row.method, row.quantity, row.cell.setting, row.cell.distribution)
            found.setdefault(key, []).append(row)
    return found


def _coverage_table(rows: Sequence[Row], *seeds: str) -> Lines:
    seeds = seeds or tuple(f"S = {n}" for n in SEEDS)
    lines = [["problems", "arm x problem", "runs", "estimand", "method", "what", *seeds, "target", "met"]]
    for (estimand, method, quantity, _, _), group in _groups(rows, "coverage", "width ratio").items():
        first = group[0]
        low, high = first.target_low, first.target_high
        shown, scale = (_share, 100) if quantity == "coverage" else (_ratio, 1)
        bounds = [f">= {scale * low:g}" if low else "", f"<= {scale * high:g}" if high else ""]
        target = ", ".join(filter(None, bounds)) or "-"
        lines.append([*_setting(first.cell), estimand, method, quantity, *map(shown, group), target, _met(group)])
    return lines


def _false_table(rows: Sequence[Row], claim: str) -> Lines:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault((row.cell, row.method), []).append(row)
    lines = [["looks", "problems", "arm x problem", "runs", "estimand", "effect", "method",
              *(f"{n} arm{'s' if n > 1 else ''}" for n in designs.ARMS), "target", "met"]]  # fmt: skip
    for (cell, method), group in found.items():
        target = claim if method == OURS else "-"
        asked = [cell.seeds, *_setting(cell), group[0].estimand, f"{100 * cell.delta:g}", method]
        lines.append([*asked, *map(_share, group), target, _met(group)])
    return lines


def _verdict_table(rows: Sequence[Row]) -> Lines:
    found: dict[DesignCell, list[Row]] = {}
    for row in rows:
        found.setdefault(row.cell, []).append(row)
    lines = [["problems", "arm x problem", "estimand", "effect", "S", *simulation.VERDICTS, "met"]]
    for cell, group in found.items():
        asked = [*_setting(cell)[:2], group[0].estimand, f"{100 * cell.delta:.3g}", cell.seeds]
        shares = [f"{_share(row)} ({100 * (row.expected or 0.0):.1f})" for row in group]
        lines.append([*asked, *shares, _met(group)])
    return lines


def report(rows: Sequence[Row], markdown: bool = False) -> str:
    """All tables, as they are printed."""
    parts = {name: [row for row in rows if row.cell.part == name] for name in simulation.PARTS}
    equal, unequal = ([row for row in parts["coverage"] if bool(row.cell.others) is x] for x in (False, True))
    verdicts = parts["verdicts"]
    at_margin = [row for row in verdicts if row.quantity == Verdict.NO_DIFFERENCE and abs(row.cell.delta) == MARGIN]
    points = f"{100 * MARGIN:g} points"
    found = {
        "Variance components: SDs in points of 100": _settings_table(),
        "Coverage of 95 % intervals (%), and mean width over that of the pooled t interval (benchmark) or of one who "
        "knows the variance components (population)": _coverage_table(equal),
        "The same with unequal seeds: cautious, the wider of pooled and Welch (no upper target)": _coverage_table(
            unequal, *(f"{fewer} against {more}" for fewer, more in UNEQUAL)
        ),
        "Coverage (%) of what is often reported instead": _coverage_table(parts["alternatives"]),
        "Studies (%) that call some arm better or worse at some look, without any effect": _false_table(
            parts["false verdicts"], "<= 5 + 3 SE"
        ),
        f"An arm (%) that differs by the margin, {points}, called no difference beyond the margin at the last look": (
            _false_table(at_margin, "<= 5/(arms x looks) + 3 SE")
        ),
        f"Verdicts (%) on one arm at the last look, margin {points}; in brackets what theory says, or 80.0 for the "
        "effect stated as detectable": _verdict_table([row for row in verdicts if row.arms == 1]),
    }
    table = markdown_table if markdown else columns
    return "\n\n".join(f"{'### ' if markdown else ''}{title}\n\n{table(lines)}" for title, lines in found.items())


def missed(rows: Sequence[Row]) -> list[str]:
    """One line per target that is missed."""
    lines = []
    for row in rows:
        if row.met is False:
            bounds = " to ".join(f"{x:.4g}" for x in (row.target_low, row.target_high) if x is not None)
            side = "" if row.target_low and row.target_high else "at least " if row.target_low else "at most "
            lines.append(
                f"missed: {row.quantity} {row.value:.4f} ± {row.mc_se:.4f}, should be {side}{bounds}: {row.estimand}, "
                f"{row.cell.setting.problems} problems, {row.cell.distribution}, S = {row.cell.seeds}, "
                f"{row.arms} arm(s), effect {100 * row.cell.delta:.3g}"
            )
    return lines


def _save(folder: Path, rows: Sequence[Row], options: argparse.Namespace) -> None:
    from workflow_scripts.figures.simulated_coverage import simulated_coverage_chart
    from workflow_scripts.figures.style import save

    made = [
        {
            "part": row.cell.part,
            "problems": row.cell.setting.problems,
            "run_sd": row.cell.setting.run_sd,
            "var_arm_problem": row.cell.setting.arm_problem**2,
            "distribution": row.cell.distribution,
            "delta": row.cell.delta,
            "looks": row.cell.seeds,
            "repetitions": row.cell.repetitions,
            **{name: getattr(row, name) for name in ("arms", "estimand", "method", "quantity", "value", "mc_se",
                                                     "expected", "target_low", "target_high", "met")},
        }
        for row in rows
    ]  # fmt: skip
    provenance = {
        "command": "simulate",
        "settings": {"repetitions": options.repetitions, "seed": options.seed},
        "libraries": {name: version(name) for name in LIBRARIES},
    }
    path = folder / "simulation.parquet"
    tables.write(path, tables.SIMULATION, made, provenance)
    frame = tables.read(path, tables.SIMULATION).to_pandas()
    frame = frame[~frame["looks"].str.contains("against")]  # the figure's coverage is by seeds of both arms
    figure = folder / "simulated_coverage"
    save(simulated_coverage_chart(frame, OURS), str(figure.with_suffix(".html")), str(figure.with_suffix(".svg")))


def main(arguments: list[str]) -> int:
    """Print the tables and what misses its target; 1 if something does, 2 if the folder cannot be written."""
    options = parser().parse_args(arguments)
    begun = time.monotonic()
    if options.output:
        try:
            for at in (options.output, *options.output.parents):
                if at.exists() and not at.is_dir():
                    print(f"armslength simulate: --output {at}: is a file, not a folder", file=sys.stderr)
                    return 2
            options.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            print(f"armslength simulate: --output {options.output}: {error.strerror}", file=sys.stderr)
            return 2
    rows = simulate(options.repetitions, options.seed, options.processes)
    print(report(rows, options.markdown), end="\n\n")
    if options.output:
        try:
            _save(options.output, rows, options)
        except OSError as error:
            print(f"armslength simulate: --output {options.output}: {error.strerror or error}", file=sys.stderr)
            return 2
    judged, wrong = sum(row.met is not None for row in rows), missed(rows)
    print(f"{judged - len(wrong)} of {judged} targets met, {time.monotonic() - begun:.0f} s. ± is one Monte Carlo "
          "standard error.")  # fmt: skip
    if options.repetitions < REPETITIONS:
        print(f"The targets are meant for {REPETITIONS} repetitions: with fewer, some are missed by chance.")
    print("\n".join(wrong), end="\n" if wrong else "")
    return int(bool(wrong))
