"""Seeds that would resolve the margin, and the time of every job."""

from workflow_scripts import tables
from workflow_scripts.figures.costs import costs_chart, seeds_needed_chart
from workflow_scripts.figures.style import mark_missing, save
from workflow_scripts.stages._command import Job, run

LIBRARIES = ("altair", "vl-convert-python")


def main(job: Job) -> None:
    power = tables.read(job.input("power"), tables.POWER).to_pandas()
    runs = tables.read(job.input("runs"), tables.RUNS).to_pandas()
    charts = {
        "seeds_needed": seeds_needed_chart(power, job.settings["margin"]),
        "costs": costs_chart(runs, job.settings["arms"]),
    }
    there = runs[runs["status"] != "missing"].groupby("arm")["seed"].nunique().to_dict()
    for name, chart in charts.items():
        mark_missing(chart, job.settings.get("declared"), there)
        save(chart, *job.outputs[name])


if __name__ == "__main__":
    run(main, LIBRARIES)
