"""Effects by difficulty, solve rates of problems, and how many are solved how often."""

from workflow_scripts import tables
from workflow_scripts.figures.problems import coverage_chart, difficulty_chart, solve_rates_chart
from workflow_scripts.figures.style import mark_missing, save
from workflow_scripts.stages._command import Job, run

LIBRARIES = ("altair", "vl-convert-python")
_SUMMED = ["arm", "step", "benchmark", "problem_id"]


def main(job: Job) -> None:
    arms, declared = job.settings["arms"], job.settings.get("declared")
    counts = tables.read(
        job.input("counts"), tables.COUNTS, [*_SUMMED, "seed", "samples", "correct", "excluded"], coded=True
    )
    counted = counts.filter(counts["excluded"].is_null())
    drawn = counted.group_by("arm").aggregate([("seed", "count_distinct")]).to_pydict()
    runs = dict(zip(drawn["arm"], drawn["seed_count_distinct"], strict=True))
    sums = counted.group_by(_SUMMED).aggregate([("samples", "sum"), ("correct", "sum")])
    difficulty = tables.read(job.input("difficulty"), tables.DIFFICULTY).to_pandas()
    charts = {
        "difficulty": difficulty_chart(difficulty, job.settings["endpoint"]["pass_at"], arms),
        "solve_rates": solve_rates_chart(sums.rename_columns([*_SUMMED, "samples", "correct"]).to_pandas(), arms),
        "coverage": coverage_chart(tables.read(job.input("coverage"), tables.COVERAGE).to_pandas(), arms),
    }
    for name, chart in charts.items():
        mark_missing(chart, declared, runs)
        save(chart, *job.outputs[name])


if __name__ == "__main__":
    run(main, LIBRARIES)
