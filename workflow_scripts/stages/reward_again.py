"""Grade the stored rollouts of every run with the grader of this code: would their rewards be others today?"""

from collections import Counter
from typing import Any

import pyarrow.compute as pc

from workflow_scripts import grading, tables
from workflow_scripts.stages._command import Job, StageError, run
from workflow_scripts.stages._records import run_files

LIBRARIES = ()

_NOT_KEPT = "completions not kept (compute.keep.rollouts: false)"


def _moves(path: str, grader: str, answers: dict[str, str], train: str) -> Counter[tuple[bool, bool]]:
    """How often a reward was 1 (first) and would be 1 (second); rollouts without a text are left out. Texts are read in
    parts, in each of which equal ones of a problem are graded once."""
    rows, first = tables.read(path, tables.ROLLOUTS, ["problem_id", "status", "truncated"], coded=True), 0
    found: Counter[tuple[bool, bool]] = Counter()
    for texts in tables.parts(path, tables.ROLLOUTS, "completion", rows=1 << 10):
        whole = rows.slice(first, len(texts)).append_column("completion", texts)
        first += len(texts)
        part = whole.filter(pc.is_valid(whole["completion"])).to_pydict()
        if unknown := set(part["problem_id"]) - answers.keys():
            raise StageError(f"{path}: problem {min(unknown)} is not in {train}")
        golds = [answers[problem] for problem in part["problem_id"]]
        try:
            verdicts = grading.grade_many(grader, list(zip(part["completion"], golds, part["truncated"], strict=True)))
        except grading.GraderError as error:
            raise StageError(str(error)) from None
        pairs = zip(part["status"], verdicts, strict=True)
        found.update((status == "correct", verdict.status == "correct") for status, verdict in pairs)
    return found


def _again(path: str, grader: str, answers: dict[str, str], train: str) -> dict[str, Any]:
    """The columns of one run that tell what its rewards would be."""
    rollouts = tables.read(path, tables.ROLLOUTS, ["batch"]).num_rows
    if ":" in grader:
        return {"rollouts": rollouts, "regraded": 0,
                "reason": f"{grader} is the study's own function: a change of its file trains again"}  # fmt: skip
    moves = _moves(path, grader, answers, train)
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
    problems = tables.read(train, tables.PROBLEMS, ["problem_id", "answer"]).to_pydict()
    answers = dict(zip(problems["problem_id"], problems["answer"], strict=True))
    rows = []
    for (arm, seed), path in run_files(job, tables.ROLLOUTS).items():
        grader = settings["rewards"][arm]
        known = {"arm": arm, "seed": seed, "grader": grader, "reward_version": settings["reward_version"]}
        rows.append(known | _again(path, grader, answers, train))
    job.write("rewards", tables.REWARDS, rows)


if __name__ == "__main__":
    run(main, LIBRARIES)
