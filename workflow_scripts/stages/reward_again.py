"""Grade the stored rollouts of every run with the grader of this code: would their rewards be others today?"""

from collections import Counter
from typing import Any

import pyarrow.compute as pc

from workflow_scripts import grading, tables
from workflow_scripts.analysis.records import run_files
from workflow_scripts.errors import UserError
from workflow_scripts.job import Job, run

LIBRARIES = ()

_NOT_KEPT = "completions not kept (compute.keep.rollouts: false)"


Problems = dict[str, tuple[str, str]]  # problem_id -> answer, question


def _moves(path: str, grader: str, problems: Problems, train: str, refuse: bool) -> Counter[tuple[bool, bool]]:
    """How often a reward was 1 (first) and would be 1 (second); rollouts without a text are left out. Texts are read in
    parts, in each of which equal ones of a problem are graded once. refuse: copies of the question are not paid."""
    rows, first = tables.read(path, tables.ROLLOUTS, ["problem_id", "status", "truncated"], coded=True), 0
    found: Counter[tuple[bool, bool]] = Counter()
    for texts in tables.parts(path, tables.ROLLOUTS, "completion", rows=1 << 10):
        whole = rows.slice(first, len(texts)).append_column("completion", texts)
        first += len(texts)
        part = whole.filter(pc.is_valid(whole["completion"])).to_pydict()
        if unknown := set(part["problem_id"]) - problems.keys():
            raise UserError(f"{path}: problem {min(unknown)} is not in {train}")
        golds, questions = [[problems[problem][place] for problem in part["problem_id"]] for place in (0, 1)]
        graded = list(zip(part["completion"], golds, part["truncated"], strict=True))
        verdicts = grading.grade_many(grader, graded, questions if refuse else None)
        pairs = zip(part["status"], verdicts, strict=True)
        found.update((status == "correct", verdict.status == "correct") for status, verdict in pairs)
    return found


def _again(path: str, grader: str, problems: Problems, train: str, refuse: bool) -> dict[str, Any]:
    """The columns of one run that tell what its rewards would be."""
    rollouts = tables.read(path, tables.ROLLOUTS, ["batch"]).num_rows
    if ":" in grader:
        return {"rollouts": rollouts, "regraded": 0,
                "reason": f"{grader} is the study's own function: a change of its file trains again"}  # fmt: skip
    moves = _moves(path, grader, problems, train, refuse)
    regraded, changed = moves.total(), moves[True, False] + moves[False, True]
    return {
        "rollouts": rollouts,
        "regraded": regraded,
        "changed": changed if regraded else None,
        "changed_share": changed / regraded if regraded else None,
        "to_correct": moves[False, True] if regraded else None,
        "to_wrong": moves[True, False] if regraded else None,
        "code_reward_version": grading.version(grader),
        "reason": None if regraded else _NOT_KEPT if rollouts else "no rollouts",
    }


def main(job: Job) -> None:
    settings, train = job.settings, job.input("train")
    problems = tables.read(train, tables.PROBLEMS, ["problem_id", "answer", "question"]).to_pylist()
    known = {row["problem_id"]: (row["answer"], row["question"]) for row in problems}
    rows = []
    for (arm, seed), path in run_files(job, tables.ROLLOUTS).items():
        grader = settings["rewards"][arm]
        refuse = settings.get("copied", {}).get(arm) == "refuse"
        run = {"arm": arm, "seed": seed, "grader": grader, "reward_version": settings["reward_version"]}
        rows.append(run | _again(path, grader, known, train, refuse))
    job.write("rewards", tables.REWARDS, rows)


if __name__ == "__main__":
    run(main, LIBRARIES)
