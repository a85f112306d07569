"""`armslength compare`: the report's verdicts for results made elsewhere: a table, or logs of lm-eval or lighteval.

Numbers, verdicts and sentences come from the analysis stages of a study; here is only what they need to be given.
"""

import argparse
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from workflow_scripts import file_kinds, tables
from workflow_scripts.analysis import effects, noise_floors, scores
from workflow_scripts.analysis.comparison import Analysis, in_order
from workflow_scripts.commands.compare import counts_table, sample_logs
from workflow_scripts.commands.compare.aggregates import check_rows
from workflow_scripts.commands.compare.counts_table import InputError, Part, near
from workflow_scripts.commands.compare.evaluations import Evaluations
from workflow_scripts.errors import UserError
from workflow_scripts.figures.words import columns, markdown_table, percent
from workflow_scripts.report import cells
from workflow_scripts.report.findings import primary, verdict_sentence
from workflow_scripts.stages import estimate_effects
from workflow_scripts.study.values import LEAST, MOST_ALPHA

RUN = re.compile(r"(.+?):([^:=]*)=(.+)", re.DOTALL)
UNKNOWN = ("truncated_share", "unparsed_share", "mean_completion_tokens")  # of which such results say nothing
FILES = (
    "csv or parquet with a row per run and problem: arm, seed, problem, n (samples), c (correct), and optionally run, "
    "benchmark, step; or ARM:SEED=FILE, a sample log of lm-evaluation-harness (jsonl), details of lighteval (parquet), "
    "or a folder of them"
)
Row = dict[str, Any]


# Inputs


def _input_error(path: str | Path, said: object) -> NoReturn:
    raise InputError(f"{path}: {said}")


def _kind(path: Path) -> str:
    """table or log, by what is in the file; InputError for anything else."""
    if lost := file_kinds.lost_link(path):
        raise InputError(lost)
    if known := file_kinds.foreign(path):
        raise InputError(known)
    with path.open("rb") as file:
        start = file.read(file_kinds.START)
    if not start.strip():
        raise InputError("the file is empty")
    if start.startswith(file_kinds.PARQUET):
        try:
            names = pq.read_schema(path).names
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"not a readable parquet file (truncated?): {str(error).splitlines()[0]}") from None
        return "log" if sample_logs.is_details(names) else "table"
    if b"\0" in start:
        raise InputError("neither csv, parquet nor jsonl")
    return "log" if start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[") else "table"


def _files(path: Path) -> list[Path]:
    """The file, or the logs in a folder."""
    if not path.is_dir():
        return [path]
    found = sorted(file for pattern in sample_logs.PATTERNS for file in path.rglob(pattern))
    return found or _input_error(path, f"a folder without {' or '.join(sample_logs.PATTERNS)}")


def _read(argument: str, metric: str | None, pass_at: int) -> list[Part]:
    """The counts of one FILE or ARM:SEED=FILE."""
    run = None if Path(argument).exists() or "=" not in argument else RUN.fullmatch(argument)
    if "=" in argument and not run and not Path(argument).exists():
        _input_error(argument, "no such file, and not ARM:SEED=FILE")
    if run and not re.fullmatch(r"-?\d{1,18}", run[2], re.ASCII):
        _input_error(argument, f"seed is {run[2]!r}, and should be a whole number: ARM:SEED=FILE")
    parts = []
    for path in _files(Path(run[3] if run else argument)):
        try:
            kind = _kind(path)
            if kind == "log" and not run:
                raise InputError("a log does not say of which arm and seed it is; give it as ARM:SEED=FILE")
            if kind == "table" and run:
                raise InputError("a table names its arms and seeds itself; give it without ARM:SEED=")
            if run:
                part = sample_logs.read(path, run[1].strip(), int(run[2]), metric)

                def fault(row: int, said: str, part: Part = part) -> NoReturn:
                    raise InputError(f"{part.place(row)}: {said}")

                counts_table.check_counts(part.rows, pass_at, fault)
            else:
                part = counts_table.read(path, pass_at)
        except InputError as error:
            _input_error(path, error)
        except OSError as error:
            _input_error(path, error.strerror or error)
        parts.append(part)
    return parts


# Analysis


def _roles(arms: list[str], options: argparse.Namespace) -> dict[str, str]:
    roles = dict.fromkeys((arm for arm in arms if arm != options.baseline), "comparison")
    for role in ("placebo", "sensitivity"):
        for arm in getattr(options, role):
            if arm not in roles:
                there = counts_table.listed(roles)
                raise InputError(f"--{role} {arm}: no such arm{near(arm, roles)}; there are {there}")
            if roles[arm] != "comparison":
                raise InputError(f"--{role} {arm}: it is a {roles[arm]} arm already")
            roles[arm] = role
    return roles


def analysis_of(found: Evaluations, options: argparse.Namespace) -> Analysis:
    """A study's analysis, with these counts in place of a study's: all arms without another role are the family."""
    seeds = found.seeds
    if options.baseline not in seeds:
        raise InputError(f"--baseline {options.baseline}: no such arm{near(options.baseline, seeds)}; there are "
                         f"{counts_table.listed(seeds)}")  # fmt: skip
    if len(seeds) < 2:
        raise InputError(f"only one arm, {options.baseline}: nothing to compare it with")
    settings = {
        "baseline": options.baseline,
        "roles": _roles(list(seeds), options),
        "runs": seeds,
        "base_repeats": seeds.get("base", []),  # an arm of that name is an arm here
        "benchmarks": found.benchmarks,
        "pass_at": options.pass_at,
        "endpoint": {"pass_at": options.pass_at[0], "checkpoint": "last"},
        "margin": options.margin,
        "alpha": options.alpha,
        "looks": options.looks or None,
        "last_steps": found.last_steps,
    }
    return Analysis(settings, found.cells)


def scores_of(analysis: Analysis) -> list[Row]:
    """Rows of the table scores, without what such results do not say."""
    return [row | dict.fromkeys(UNKNOWN) for row in scores.rows(analysis)]


def results(analysis: Analysis) -> dict[str, list[Row]]:
    """The tables effects, scores and noise_floors, each in the order of its key, nan as None."""
    made = (
        (tables.EFFECTS, effects.rows),
        (tables.SCORES, scores_of),
        (tables.NOISE_FLOORS, noise_floors.of_training),  # the only noise that such results hold
    )
    return {
        table.name: in_order(table, [dict.fromkeys(table.columns) | row for row in rows(analysis)])
        for table, rows in made
    }


# What is said


def _table(analysis: Analysis, found: dict[str, list[Row]]) -> list[list[str]]:
    """Score, difference and verdict of every arm at its last step: by benchmark, pass@k and estimand."""
    scored = {
        (row["arm"], row["step"], row["benchmark"], row["pass_at"]): row
        for row in found["scores"]
        if row["level"] == "arm" and row["metric"] == "pass@k"
    }
    head = ["arm", "benchmark", "pass@", "seeds", "score", "difference", "interval", "p", "detects", "verdict"]
    lines = [[*head, "of problems like these"]]
    order = {arm: place for place, arm in enumerate([analysis.baseline, *analysis.others])}
    judged = {(row["arm"], row["step"], row["benchmark"], row["pass_at"], row["estimand"]): row
               for row in found["effects"]}  # fmt: skip
    for key in sorted(scored, key=lambda k: (order[k[0]], list(analysis.views).index(k[2]), k[3])):
        arm, step, view, pass_at = key
        if step != analysis.endpoint_step(arm):
            continue
        row = scored[key]
        line = [arm, view, str(pass_at), str(row["seeds"]), cells.points(row["score"]).text]
        if arm == analysis.baseline:
            lines.append([*line, *["-"] * (len(head) - len(line)), "-"])
            continue
        effect, population = (judged[(*key, estimand)] for estimand in ("benchmark", "population"))
        lines.append([*line, *_numbers(effect), population["verdict"]])
    return lines


def _numbers(effect: Row) -> list[str]:
    """Difference, interval, p, smallest detectable effect and verdict."""
    written = [cells.points(effect["delta"], sign=True), cells.interval(effect), cells.p(effect["p"])]
    written.append(cells.detectable(effect["mde80"]))
    return [*(cell.text or "-" for cell in written), effect["verdict"]]


def _head(analysis: Analysis, found: Evaluations) -> str:
    arms, looks = len(analysis.family), analysis.number_of_looks
    level = percent(1 - analysis.alpha(analysis.others[0]))
    shared = [f"{arms} arms" if arms > 1 else "", f"{looks} looks" if looks > 1 else ""]
    over = f", alpha {analysis.settings['alpha']:g} over {' x '.join(filter(None, shared))}" if any(shared) else ""
    runs = sum(map(len, found.seeds.values()))
    counts = {"arm": len(found.seeds), "run": runs, "problem": found.problems, "benchmark": len(found.benchmarks)}
    found_in = [f"{count} {what}{'s' if count > 1 else ''}" for what, count in counts.items()]
    return (
        f"{', '.join(found_in[:3])} in {found_in[3]}, {found.samples} each. Against {analysis.baseline}: "
        f"pass@{analysis.endpoint_pass_at}, {analysis.endpoint_view}, margin {100 * analysis.margin:g} points, "
        f"intervals of {level}{over}."
    )


def _save(folder: Path, analysis: Analysis, results: dict[str, list[Row]], paths: list[str]) -> None:
    provenance = {
        "command": "compare",
        "settings": analysis.settings,
        "inputs": {path: tables.input_digest(path) for path in paths},
        "libraries": {name: version(name) for name in estimate_effects.LIBRARIES},
    }
    for table in (tables.EFFECTS, tables.SCORES, tables.NOISE_FLOORS):
        tables.write(folder / f"{table.name}.parquet", table, results[table.name], provenance)


def _numbers_above(least: int) -> Any:
    def parse(text: str) -> list[int]:
        try:
            values = [int(word) for word in text.split(",")]
        except ValueError:
            values = []
        if not values or min(values) < least or len(set(values)) < len(values):
            raise argparse.ArgumentTypeError(f"{text!r}: whole numbers from {least}, apart by commas, each once")
        return values

    return parse


def _between(least: float, below: float, example: str) -> Any:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not least <= value < below:
            raise argparse.ArgumentTypeError(f"{text!r}: a number from {least:g} to below {below:g} ({example})")
        return value

    return parse


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="armslength compare", description="The verdicts of a study's report for results that were made elsewhere."
    )
    add = made.add_argument
    add("files", metavar="FILE", nargs="+", help=FILES)
    add("--baseline", metavar="ARM", required=True, help="the arm that all others are compared with")
    more = "smallest difference that matters: 0.03 is 3 points"
    add("--margin", metavar="M", type=_between(LEAST, 1, "0.03 is 3 points"), required=True, help=more)
    more = "level, shared by all arms and looks; default 0.05"
    add("--alpha", type=_between(LEAST, MOST_ALPHA, "0.05 is usual"), default=0.05, help=more)
    more = "k of pass@k; the first is judged, others are exploratory; default 1"
    add("--pass-at", metavar="K,...", type=_numbers_above(1), default=[1], help=more)
    for role, what in (("placebo", "equal to the baseline but for its seeds"), ("sensitivity", "made to lose")):
        more = f"an arm {what}: judged alone, outside the family; may be repeated"
        add(f"--{role}", metavar="ARM", action="append", default=[], help=more)
    more = "numbers of seeds at which looks were planned; without it this look is the only one"
    add("--looks", metavar="S,...", type=_numbers_above(2), default=[], help=more)
    more = f"of logs: what counts as correct; default the only one, or {sample_logs.USUAL}"
    add("--metric", metavar="NAME[,FILTER]", help=more)
    add("--common-problems", action="store_true", help="leave out problems that a run lacks")
    add("--output", metavar="FOLDER", type=Path, help="write effects, scores and noise_floors as parquet")
    add("--markdown", action="store_true", help="print markdown, to paste")
    return made


def _printable(text: str) -> str:
    """The text without control characters and marks of direction, which names in a file could contain."""
    return "".join(x if x.isprintable() or x == "\n" else "?" for x in text)


def _say(text: str) -> None:
    print(_printable(text))


def _compare(options: argparse.Namespace) -> None:
    for at in (options.output, *options.output.parents) if options.output else ():
        if at.exists() and not at.is_dir():
            _input_error(f"--output {at}", "is a file, not a folder")
    parts = [part for file in options.files for part in _read(file, options.metric, max(options.pass_at))]
    if options.metric and not any(part.metric for part in parts):
        raise InputError(f"--metric {options.metric}: only logs have metrics, and all files are tables; leave it out")
    check_rows(parts, max(options.pass_at))
    found = Evaluations(parts, options.common_problems)
    analysis = analysis_of(found, options)
    made = results(analysis)
    if options.output:
        _save(options.output, analysis, made, [part.file for part in parts])
    bullet = "- " if options.markdown else ""
    _say(_head(analysis, found) + "\n")
    for row in primary(made["effects"]).values():
        _say(bullet + verdict_sentence(row))
    if found.warnings:
        _say("\nWarnings\n" + ("\n" if options.markdown else "") + "\n".join(f"- {line}" for line in found.warnings))
    lines = _table(analysis, made)
    _say("\n" + (markdown_table(lines) if options.markdown else columns(lines)))
    _say("\nIn points of 100. Everything but the verdicts above is exploratory. detects: effect seen with 80 % power.")


def main(arguments: list[str]) -> int:
    """Print the verdicts, warnings and a table; 1 if an input cannot be used."""
    options = parser().parse_args(arguments)
    try:
        _compare(options)
    except (InputError, UserError, tables.TableError) as error:
        said = str(error)
    except (OSError, MemoryError) as error:
        said = ": ".join(
            filter(None, (getattr(error, "filename", ""), getattr(error, "strerror", "") or "out of memory"))
        )
    else:
        return 0
    print("armslength compare: " + _printable(said.replace("\n", " ")), file=sys.stderr)
    return 1
