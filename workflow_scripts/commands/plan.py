"""`armslength plan`: what a study would train and sample, what that costs, and what exists already."""

from argparse import ArgumentTypeError
from contextlib import suppress

from workflow_scripts.figures.words import columns
from workflow_scripts.launch import declared, disk
from workflow_scripts.launch.cost import completions, cost, hours_line
from workflow_scripts.launch.progress import RunProgress, read_runs
from workflow_scripts.launch.study_file import read_study, root_of, study_parser
from workflow_scripts.study import Study


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _rate(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise ArgumentTypeError(f"{text}: a number above 0")


def main(arguments: list[str]) -> int:
    """Print what would be trained and sampled, what exists already, and the disk and the hours that it takes."""
    parser = study_parser("plan", main.__doc__)
    parser.add_argument(
        "--tokens-per-second",
        metavar="N",
        type=_rate,
        help="of one GPU, or else of one core, each completion counted at its longest; for the hours",
    )
    options = parser.parse_args(arguments)
    study = read_study(options)
    root = root_of(study)
    steps = {name: study.resolved(name).training.steps for name in study.arms}
    missing = declared.missing(study, root)
    runs = read_runs(root, study.runs(), steps, study.sampled, missing)
    if study.question:
        print(f"{study.question}\n")
    print(columns(_runs_table(study, runs)))
    endpoint = study.analysis.endpoint
    print(
        f"\nendpoint: pass@{endpoint.pass_at} at checkpoint {endpoint.checkpoint} on {', '.join(study.reported)};"
        f" margin {study.analysis.margin:g}, alpha {study.analysis.alpha:g}, looks at {study.looks} seeds"
        "\ntrained and evaluated count files; whether they are current, `snakemake -n` tells"
    )
    print(f"{declared.line(study, missing)}\n")
    found = disk.needs(study, root, runs, disk.sizes(study, root))
    print(columns(_disk_table(found)))
    if any(need.whole is None for need in found):
        print("?: told once the model's configuration is here (source hub: in the cache)")
    print(f"\n{hours_line(study, root, runs, options.tokens_per_second)}")
    return 0


def _runs_table(study: Study, runs: list[RunProgress]) -> list[list[str]]:
    rows = [["arm", "role", "seeds", "updates", "rollouts", "completions", "trained", "evaluated"]]
    costs = []
    for name in study.runs():
        own = [run for run in runs if run.arm == name]
        costs.append(cost(study, name, len(own)))
        rows.append(
            [
                name,
                "baseline" if name == study.baseline else study.roles()[name],
                str(len(own)),
                *map(_number, (costs[-1].updates, costs[-1].rollouts, costs[-1].completions)),
                *_done(own),
            ]
        )
    base = completions(study, study.evaluation.base_repeats)
    rows.append(["base", "", str(study.evaluation.base_repeats), "", "", _number(base), "", ""])
    sampled = [c.completions for c in costs] + [base]
    total = None if None in sampled else sum(n for n in sampled if n is not None)
    counts = (sum(c.updates for c in costs), sum(c.rollouts for c in costs), total)
    rows.append(["all", "", str(len(runs)), *map(_number, counts), *_done(runs)])
    return rows


def _done(runs: list[RunProgress]) -> list[str]:
    return [str(sum(run.trained for run in runs)), str(sum(run.state == "evaluated" for run in runs))]


def _disk_table(found: list[disk.Need]) -> list[list[str]]:
    rows = [["disk", "in all", "there", "to come"]]
    rows += [[n.kind, *map(disk.gigabytes, (n.whole, n.there, n.to_come))] for n in found]
    total = ["all"]
    for sizes in ([n.whole for n in found], [n.there for n in found], [n.to_come for n in found]):
        total.append("at least " * (None in sizes) + disk.gigabytes(sum(size or 0 for size in sizes)))
    return [*rows, total]
