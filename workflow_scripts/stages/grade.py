"""Grade completions; identical completions of a problem are graded once."""

from workflow_scripts import grading, tables
from workflow_scripts.stages._command import Job, StageError, run

LIBRARIES = ()


def main(job: Job) -> None:
    completions = tables.read(job.input("completions"), tables.COMPLETIONS)
    holdout = tables.read(job.input("holdout"), tables.PROBLEMS, ["problem_id", "answer"]).to_pydict()
    answers = dict(zip(holdout["problem_id"], holdout["answer"], strict=True))
    grade = grading.grader(job.settings["grader"])
    known: dict[tuple[str, str, bool], grading.Verdict] = {}
    verdicts = []
    asked = [completions[name].to_pylist() for name in ("problem_id", "completion", "truncated")]
    for problem_id, completion, truncated in zip(*asked, strict=True):
        if problem_id not in answers:
            raise StageError(f"{job.input('completions')}: problem {problem_id} is not in {job.input('holdout')}")
        question = (completion, answers[problem_id], truncated)
        if question not in known:
            known[question] = grade(*question)
        verdicts.append(known[question])
    found = {
        "status": [verdict.status for verdict in verdicts],
        "correct": [verdict.status == "correct" for verdict in verdicts],
        "answer": [verdict.answer for verdict in verdicts],
    }
    columns = {name: found[name] if name in found else completions[name] for name in tables.SAMPLES.columns}
    engine = tables.provenance(job.input("completions")).get("engine")
    job.write("samples", tables.SAMPLES, columns, reward_version=grading.REWARD_VERSION, engine=engine)


if __name__ == "__main__":
    run(main, LIBRARIES)
