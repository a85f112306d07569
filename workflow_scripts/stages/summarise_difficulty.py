"""Where an effect lies: arms against the baseline, problems split by the base model's solve rate and difficulty."""

from workflow_scripts import tables
from workflow_scripts.analysis import difficulty
from workflow_scripts.analysis.comparison import Analysis, in_order
from workflow_scripts.job import Job, run

LIBRARIES = ("scipy", "statsmodels")


def _difficulties(paths: list[str]) -> dict[str, int]:
    """problem_id -> difficulty, of the holdout problems whose source gives one."""
    found: dict[str, int] = {}
    for path in paths:
        problems = tables.read(path, tables.PROBLEMS, ["problem_id", "difficulty"]).drop_null()
        found.update(zip(*(problems[name].to_pylist() for name in ("problem_id", "difficulty")), strict=True))
    return found


def main(job: Job) -> None:
    analysis = Analysis.read(job.settings, job.input("counts"))
    rows = difficulty.rows(analysis, _difficulties(job.inputs.get("holdout", [])))
    job.write("difficulty", tables.DIFFICULTY, in_order(tables.DIFFICULTY, rows))


if __name__ == "__main__":
    run(main, LIBRARIES)
