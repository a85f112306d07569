"""Grade every reference answer against itself; a problem whose answer does not grade itself correct is dropped."""

from workflow_scripts import grading, tables
from workflow_scripts.stages._command import Job, StageError, run

LIBRARIES = ()

_REASONS = {
    "unparsed": "the reference answer is not of the form this grader reads",
    "wrong": "the reference answer does not equal itself",
    "timeout": "grading the reference answer took too long",
}


def main(job: Job) -> None:
    name = job.settings["grader"]
    if "reward_version" in job.settings:  # the train set
        try:
            grading.hold_to(job.settings["reward_version"])
        except grading.RewardVersionError as error:
            raise StageError(str(error)) from None
    grade = grading.grader(name)
    rows = []
    for problem in tables.read(job.input("problems"), tables.PROBLEMS).to_pylist():
        verdict = grade(grading.stated(name, problem["answer"]), problem["answer"], False)
        dropped = verdict.status != "correct" or verdict.answer is None
        rows.append(
            {key: problem[key] for key in ("benchmark", "problem_id", "row", "answer")}
            | {"status": verdict.status, "dropped": dropped, "reason": _REASONS[verdict.status] if dropped else None}
        )
    job.write(
        "audit", tables.GOLD_AUDIT, rows, reward_version=grading.REWARD_VERSION, dropped=sum(r["dropped"] for r in rows)
    )


if __name__ == "__main__":
    run(main, LIBRARIES)
