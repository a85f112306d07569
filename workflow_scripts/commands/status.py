"""`armslength status`: where each run stands, read from the files alone (no lock, no Snakemake)."""

import time

from workflow_scripts.commands import columns, read_study, root_of, study_parser
from workflow_scripts.commands.progress import Run, read_runs

SILENT = 600.0  # seconds without a word from the trainer after which its step is shown with its time


def cell(run: Run, now: float, left_out: bool = False) -> str:
    """What the table says of one run. left_out: the study is analysed without the runs that are not there."""
    if left_out and run.state != "evaluated":
        return f"left out ({run.state})"
    if run.trained and 0 < run.evaluated < run.benchmarks:
        return f"trained, {run.evaluated} of {run.benchmarks} evaluated"
    if run.last_sign and now - run.last_sign > SILENT:
        return f"{run.state}{run.signs}, silent since {time.strftime('%d %b %H:%M', time.localtime(run.last_sign))}"
    return run.state + run.signs


def main(arguments: list[str]) -> int:
    """Print a table of arms and seeds: waiting, step n of N, trained, evaluated. Of a run that trains: its last reward,
    and the share of tokens its clip has stopped so far, where it could."""
    study = read_study(study_parser("status", main.__doc__).parse_args(arguments))
    runs = read_runs(
        root_of(study), study.runs(), {name: study.resolved(name).training.steps for name in study.arms}, study.sampled
    )
    seeds = sorted({run.seed for run in runs})
    cells = {(run.arm, run.seed): cell(run, time.time(), study.allow_missing) for run in runs}
    rows = [["arm", *(f"seed {seed}" for seed in seeds)]]
    rows += [[arm, *(cells.get((arm, seed), "-") for seed in seeds)] for arm in study.runs()]
    print(columns(rows))
    trained, evaluated = sum(run.trained for run in runs), sum(run.state == "evaluated" for run in runs)
    print(f"\n{len(runs)} runs: {trained} trained, {evaluated} evaluated; results in {root_of(study)}")
    if study.allow_missing and evaluated < len(runs):
        print(f"allow_missing: {len(runs) - evaluated} without results are left out; the report names them")
    return 0
