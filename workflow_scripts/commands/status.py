"""`armslength status`: where each run stands, read from the files alone (no lock, no Snakemake)."""

import time
from collections.abc import Sequence

from workflow_scripts.figures.words import columns, percent
from workflow_scripts.launch import declared
from workflow_scripts.launch.progress import RunProgress, expected, read_runs
from workflow_scripts.launch.study_file import read_study, root_of, study_parser

SILENT = 600.0  # seconds without a word from the trainer after which its step is shown with its time


def cell(run: RunProgress, left_out: bool = False) -> str:
    """What the table says of one run. left_out: the study is analysed without the runs that are not there."""
    if left_out and run.state != "evaluated":
        return f"left out ({run.state})"
    if run.trained and 0 < run.evaluated < run.benchmarks:
        return f"trained, {run.evaluated} of {run.benchmarks} evaluated"
    return run.state


def clock(moment: float, now: float) -> str:
    """Time of day; with the date if it is another day."""
    form = "%H:%M" if time.localtime(moment)[:3] == time.localtime(now)[:3] else "%d %b %H:%M"
    return time.strftime(form, time.localtime(moment))


def training(runs: Sequence[RunProgress], now: float) -> list[list[str]]:
    """Rows of the table of runs that train, its head first: step, last reward, clip share, entropy, expected end."""
    rows = [["training now", "seed", "step", "reward", "clipped", "entropy", "ends"]]
    for run in runs:
        if run.trained or run.last_sign is None:
            continue
        silent = now - run.last_sign > SILENT
        ends = f"silent since {clock(run.last_sign, now)}" if silent else clock(run.end, now) if run.end else "-"
        rows.append(
            [run.arm, str(run.seed), f"{run.step} of {run.steps}",
             *("-" if value is None else form(value) for value, form in
               ((run.reward, "{:.2f}".format), (run.clipped, percent), (run.entropy, "{:.2f}".format))), ends]
        )  # fmt: skip
    return rows


def main(arguments: list[str]) -> int:
    """Print a table of arms and seeds: waiting, step n of N, trained, evaluated. Of the runs that train: the last
    reward, the share of tokens their clip has stopped so far, where it could, the entropy, and when they end."""
    study = read_study(study_parser("status", main.__doc__).parse_args(arguments))
    root, now = root_of(study), time.time()
    steps = {name: study.resolved(name).training.steps for name in study.arms}
    missing = declared.missing(study, root)
    runs = read_runs(root, study.runs(), steps, study.sampled, missing)
    seeds = sorted({run.seed for run in runs})
    cells = {(run.arm, run.seed): cell(run, study.allow_missing) for run in runs}
    rows = [["arm", *(f"seed {seed}" for seed in seeds)]]
    rows += [[arm, *(cells.get((arm, seed), "-") for seed in seeds)] for arm in study.runs()]
    print(columns(rows))
    going = training(runs, now)
    if len(going) > 1:
        print("\n" + columns(going))
    trained, evaluated = sum(run.trained for run in runs), sum(run.state == "evaluated" for run in runs)
    print(f"\n{len(runs)} runs: {trained} trained, {evaluated} evaluated; results in {root}")
    print(declared.line(study, missing))
    if evaluated < len(runs):
        running, end = expected(root, now)
        ends = f"runs end about {clock(end, now)}, in {max(1, round((end - now) / 60))} min" if end else "no pace yet"
        print(
            f"The study is running; {ends}." if running else "The study is not running here, or has said nothing yet."
        )
    if study.allow_missing and evaluated < len(runs):
        print(f"allow_missing: {len(runs) - evaluated} without results are left out; the report names them")
    return 0
