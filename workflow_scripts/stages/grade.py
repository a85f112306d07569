"""Grade completions, all of a checkpoint together; equal ones of a problem are graded once."""

from workflow_scripts import grading, tables
from workflow_scripts.errors import UserError
from workflow_scripts.job import Job, run
from workflow_scripts.models import retention

LIBRARIES = ()


def _hold_to_what_is_asked(job: Job) -> None:
    """Raises UserError for completions drawn in another way: a job that outlived its Snakemake may have left them."""
    made = tables.provenance(job.input("completions"))
    asked = {"settings": job.settings["sampled"], "code": job.settings["sampling_code"]}
    if any(made.get(name) != value for name, value in asked.items()):
        raise UserError(
            f"{job.input('completions')}: drawn with other settings or by other code than the study asks for, by a job "
            "that outlived its Snakemake; delete it to draw again"
        )


def main(job: Job) -> None:
    _hold_to_what_is_asked(job)
    completions = tables.read(job.input("completions"), tables.COMPLETIONS)
    holdout = tables.read(job.input("holdout"), tables.PROBLEMS, ["problem_id", "answer", "question"]).to_pydict()
    known = dict(zip(holdout["problem_id"], zip(holdout["answer"], holdout["question"], strict=True), strict=True))
    name = job.settings["grader"]
    rows, questions = [], []
    asked = [completions[column].to_pylist() for column in ("problem_id", "completion", "truncated")]
    for problem_id, completion, truncated in zip(*asked, strict=True):
        if problem_id not in known:
            raise UserError(f"{job.input('completions')}: problem {problem_id} is not in {job.input('holdout')}")
        answer, question = known[problem_id]
        rows.append((completion, answer, truncated))
        questions.append(question)
    verdicts = grading.grade_many(name, rows, questions if job.settings.get("copied") == "refuse" else None)
    found = {
        "status": [verdict.status for verdict in verdicts],
        "correct": [verdict.status == "correct" for verdict in verdicts],
        "answer": [verdict.answer for verdict in verdicts],
    }
    columns = {name: found[name] if name in found else completions[name] for name in tables.SAMPLES.columns}
    engine = tables.provenance(job.input("completions")).get("engine")
    job.write("samples", tables.SAMPLES, columns, reward_version=grading.version(name), engine=engine)
    if "checkpoints" in job.inputs:  # of a run
        retention.drop_sampled_weights(retention.of_sampling(job))


if __name__ == "__main__":
    run(main, LIBRARIES)
