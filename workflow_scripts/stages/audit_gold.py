"""Grade every reference answer against itself; a problem is dropped whose answer does not grade itself correct, is not
there, or is contradicted: the same question stands in the set with another answer, and which one is right is unknown.
"""

from collections import defaultdict
from collections.abc import Iterator

from workflow_scripts import grading, tables
from workflow_scripts.stages._command import Job, StageError, run

LIBRARIES = ()

_REASONS = {
    "unparsed": "the reference answer is not of the form this grader reads",
    "wrong": "the reference answer does not equal itself",
    "timeout": "grading the reference answer took too long",
    "correct": "the reference answer parses to nothing",
}


def _graded(name: str, rows: list[grading.Row]) -> list[grading.Verdict]:
    try:
        return grading.grade_many(name, rows)
    except grading.GraderError as error:
        raise StageError(str(error)) from None


def _faults(name: str, answers: list[str]) -> list[tuple[str, str | None]]:
    """Status of each answer graded against itself, and why its problem is dropped (None: it is not)."""
    verdicts = _graded(name, [(grading.stated(name, answer), answer, False) for answer in answers])
    found: list[tuple[str, str | None]] = []
    for answer, verdict in zip(answers, verdicts, strict=True):
        if not answer:
            found.append(("unparsed", "the source has no reference answer"))
        elif verdict.status != "correct" or verdict.answer is None:
            found.append((verdict.status, _REASONS[verdict.status]))
        else:
            found.append(("correct", None))
    return found


def _contradicted(name: str, questions: list[str], answers: list[str]) -> Iterator[int]:
    """Positions whose question stands elsewhere with an answer that is not the same."""
    same = defaultdict(list)
    for position, question in enumerate(questions):
        same[question].append(position)
    groups = [group for group in same.values() if len(group) > 1]
    pairs = [(grading.stated(name, answers[i]), answers[group[0]], False) for group in groups for i in group]
    verdicts = iter(_graded(name, pairs))
    for group in groups:
        statuses = {next(verdicts).status for _ in group}
        if statuses != {"correct"}:
            yield from group


def main(job: Job) -> None:
    name = job.settings["grader"]
    if "reward_version" in job.settings:  # the train set
        try:
            grading.hold_to(job.settings["reward_version"], name)
        except grading.RewardVersionError as error:
            raise StageError(str(error)) from None
    problems = tables.read(job.input("problems"), tables.PROBLEMS).to_pylist()
    faults = _faults(name, [problem["answer"] for problem in problems])
    sound = [position for position, (_, reason) in enumerate(faults) if reason is None]
    columns = ([problems[position][key] for position in sound] for key in ("question", "answer"))
    for position in _contradicted(name, *columns):
        faults[sound[position]] = ("correct", "the same question has another answer in another row")
    rows = [
        {key: problem[key] for key in ("benchmark", "problem_id", "row", "answer")}
        | {"status": status, "dropped": reason is not None, "reason": reason}
        for problem, (status, reason) in zip(problems, faults, strict=True)
    ]
    dropped = sum(row["dropped"] for row in rows)
    job.write("audit", tables.GOLD_AUDIT, rows, reward_version=grading.version(name), dropped=dropped)


if __name__ == "__main__":
    run(main, LIBRARIES)
