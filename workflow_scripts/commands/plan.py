"""`armslength plan`: what a study will cost before it is run; and the plan a study is held to afterwards.

The plan is results/{study}/plan.parquet: written when a real run starts, only ever added to, read by no job. What was
asked before the first result can be told from what was asked later.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workflow_scripts import benchmarks, tables
from workflow_scripts.commands import columns, read_study, root_of, study_parser
from workflow_scripts.commands.progress import Run, read_runs
from workflow_scripts.study import Study


@dataclass(frozen=True)
class Cost:
    """Counts of one arm over all its runs; completions are of evaluation, None if a benchmark's size is unknown."""

    updates: int
    rollouts: int
    completions: int | None


def problems_of(study: Study, benchmark: str) -> int | None:
    """Problems sampled of a benchmark; None where only the fetched file could tell."""
    size = None if benchmark in study.sets else benchmarks.problem_set(benchmark).size
    wanted = study.evaluation.problems
    if wanted is None or size is None:
        return wanted or size
    return min(wanted, size)


def completions(study: Study, passes: int) -> int | None:
    """Completions of so many passes over all sampled benchmarks."""
    total = 0
    for benchmark in study.sampled:
        problems = problems_of(study, benchmark)
        if problems is None:
            return None
        total += passes * problems * study.samples_of(benchmark)
    return total


def cost(study: Study, arm_name: str, runs: int) -> Cost:
    """What so many runs of an arm train and sample."""
    arm = study.resolved(arm_name)
    updates = runs * (arm.training.steps - (arm.branch_from.step if arm.branch_from else 0))
    return Cost(
        updates=updates,
        rollouts=updates // arm.updates_per_batch * arm.rollout.rollouts,
        completions=completions(study, runs * len(arm.checkpoints)),
    )


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def main(arguments: list[str]) -> int:
    """Print, for each arm, what would be trained and sampled, and what exists already."""
    study = read_study(study_parser("plan", main.__doc__).parse_args(arguments))
    steps = {name: study.resolved(name).training.steps for name in study.arms}
    state: dict[str, list[Run]] = {name: [] for name in study.runs()}
    for run in read_runs(root_of(study), study.runs(), steps, study.sampled):
        state[run.arm].append(run)
    rows = [["arm", "role", "seeds", "updates", "rollouts", "completions", "trained", "evaluated"]]
    costs = []
    for name, runs in state.items():
        costs.append(cost(study, name, len(runs)))
        rows.append(
            [
                name,
                "baseline" if name == study.baseline else study.roles()[name],
                str(len(runs)),
                *map(_number, (costs[-1].updates, costs[-1].rollouts, costs[-1].completions)),
                str(sum(run.trained for run in runs)),
                str(sum(run.state == "evaluated" for run in runs)),
            ]
        )
    base = completions(study, study.evaluation.base_repeats)
    rows.append(["base", "", str(study.evaluation.base_repeats), "", "", _number(base), "", ""])
    sampled = [c.completions for c in costs] + [base]
    total = None if None in sampled else sum(n for n in sampled if n is not None)
    rows.append(
        [
            "all", "", str(sum(map(len, state.values()))), _number(sum(c.updates for c in costs)),
            _number(sum(c.rollouts for c in costs)), _number(total),
            str(sum(run.trained for runs in state.values() for run in runs)),
            str(sum(run.state == "evaluated" for runs in state.values() for run in runs)),
        ]
    )  # fmt: skip
    if study.question:
        print(f"{study.question}\n")
    print(columns(rows))
    endpoint = study.analysis.endpoint
    print(
        f"\nendpoint: pass@{endpoint.pass_at} at checkpoint {endpoint.checkpoint} on {', '.join(study.reported)};"
        f" margin {study.analysis.margin:g}, alpha {study.analysis.alpha:g}, looks at {study.looks} seeds"
        "\ntrained and evaluated count files; whether they are current, `snakemake -n` tells"
    )
    return 0


def registration(study: Study, reward_version: int) -> dict[str, Any]:
    """What the study is held to: everything that must not follow from the results."""
    analysis = study.analysis
    return {
        "question": study.question,
        "endpoint": {**analysis.endpoint.model_dump(), "benchmarks": study.reported},
        "margin": analysis.margin,
        "alpha": analysis.alpha,
        "looks": study.looks,
        "seeds": {name: study.resolved(name).seeds for name in study.arms},
        "baseline": study.baseline,
        "arms": {name: study.resolved(name).identity for name in study.arms},
        "decontaminate_against": study.data.decontaminate_against,
        "reward_version": reward_version,
    }


def _commit() -> str:
    """HEAD of the working tree, with + when it has changes; empty outside git."""
    folder = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
        changed = subprocess.run(
            ["git", "status", "--porcelain"], cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def _recorded(path: str | Path) -> list[dict[str, str]]:
    return tables.read(path, tables.PLAN).to_pylist() if Path(path).exists() else []


def latest(path: str | Path) -> dict[str, Any]:
    """The value of each key recorded last; empty where no plan exists. Raises TableError for a damaged one."""
    return {row["key"]: json.loads(row["value"]) for row in _recorded(path)}


def record(study: Study, path: str | Path, reward_version: int) -> None:
    """Add what is new or changed to the plan, with the time (UTC) and the git commit; nothing else is touched."""
    values: Mapping[str, Any] = json.loads(json.dumps(registration(study, reward_version)))
    known = latest(path)
    changed = {key: value for key, value in values.items() if key not in known or known[key] != value}
    if not changed:
        return
    stamp = {"recorded": datetime.now(UTC).isoformat(timespec="milliseconds"), "commit": _commit()}
    rows = [{**stamp, "key": key, "value": json.dumps(value, sort_keys=True)} for key, value in changed.items()]
    tables.write(path, tables.PLAN, _recorded(path) + rows, {})


def pinned_reward_version(path: str | Path, current: int) -> int:
    """The reward version that the study's runs are held to: the plan's, or the current one before there is a plan."""
    return latest(path).get("reward_version", current)
