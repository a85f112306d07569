"""Grade every reference answer against itself; a problem is dropped whose answer does not grade itself correct, is not
there, or is contradicted: the same question stands in the set with another answer, and which one is right is unknown.

Every expression of a question is graded as an answer to it, too: a model is paid for problems whose question shows an
expression that equals the answer if it copies that expression. Such problems are listed and kept.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from workflow_scripts import grading, tables
from workflow_scripts.grading._alternatives import alternatives
from workflow_scripts.grading.math_answer.copies import expressions, may_equal
from workflow_scripts.job import Job, run

LIBRARIES = ()

_REASONS = {
    "unparsed": "the reference answer is not of the form this grader reads",
    "wrong": "the reference answer does not equal itself",
    "timeout": "grading the reference answer took too long",
    "correct": "the reference answer parses to nothing",
}


def _graded(name: str, rows: list[grading.Row], questions: list[str] | None = None) -> list[grading.Grade]:
    return grading.grade_many(name, rows, questions)


def _faults(name: str, answers: list[str]) -> list[tuple[str, str | None]]:
    """Status of each answer graded against itself, and why its problem is dropped (None: it is not).

    Of alternatives one has to be readable.
    """
    parts = [alternatives(answer) for answer in answers]
    verdicts = iter(_graded(name, [(grading.stated(name, part), part, False) for each in parts for part in each]))
    found: list[tuple[str, str | None]] = []
    for answer, each in zip(answers, parts, strict=True):
        own = [next(verdicts) for _ in each]
        if not answer:
            found.append(("unparsed", "the source has no reference answer"))
        elif any(verdict.status == "correct" and verdict.answer is not None for verdict in own):
            found.append(("correct", None))
        else:
            found.append((own[0].status, _REASONS[own[0].status]))
    return found


def _paid_copies(name: str, problems: list[dict[str, Any]], refuse: bool) -> dict[str, tuple[str, bool]]:
    """problem_id -> an expression of its question that equals the reference answer, and whether answering it is paid.

    refuse: the study does not pay answers that the grader recognises as copied.
    """
    asked = [
        (row, text)
        for row in problems
        if row["answer"]
        for text in expressions(row["question"])
        if may_equal(text, row["answer"])
    ]
    rows = [(grading.stated(name, text), row["answer"], False) for row, text in asked]
    equal = [
        (row["problem_id"], text, each, row["question"])
        for (row, text), each, verdict in zip(asked, rows, _graded(name, rows), strict=True)
        if verdict.status == "correct"
    ]
    paid = _graded(name, [each for *_, each, _ in equal], [question for *_, question in equal] if refuse else None)
    found: dict[str, tuple[str, bool]] = {}
    for (problem_id, text, *_), verdict in zip(equal, paid, strict=True):
        is_paid = verdict.status == "correct"
        if problem_id not in found or (is_paid and not found[problem_id][1]):
            found[problem_id] = (text, is_paid)
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
        grading.hold_to(job.settings["reward_version"], name)
    problems = tables.read(job.input("problems"), tables.PROBLEMS).to_pylist()
    faults = _faults(name, [problem["answer"] for problem in problems])
    sound = [position for position, (_, reason) in enumerate(faults) if reason is None]
    columns = ([problems[position][key] for position in sound] for key in ("question", "answer"))
    for position in _contradicted(name, *columns):
        faults[sound[position]] = ("correct", "the same question has another answer in another row")
    copies = _paid_copies(name, problems, job.settings.get("copied") == "refuse")
    rows = [
        {key: problem[key] for key in ("benchmark", "problem_id", "row", "answer")}
        | {"status": status, "dropped": reason is not None, "reason": reason}
        | dict(zip(("copy", "copy_paid"), copies.get(problem["problem_id"], (None, None)), strict=True))
        for problem, (status, reason) in zip(problems, faults, strict=True)
    ]
    dropped = sum(row["dropped"] for row in rows)
    counts = {"dropped": dropped, "copies": len(copies), "copies_paid": sum(paid for _, paid in copies.values())}
    job.write("audit", tables.GOLD_AUDIT, rows, reward_version=grading.version(name), **counts)


if __name__ == "__main__":
    run(main, LIBRARIES)
