"""Clip fraction by the number of correct rollouts in the group."""

from workflow_scripts import tables
from workflow_scripts.figures.clip_fraction import clip_fraction_chart
from workflow_scripts.figures.style import mark_missing, save
from workflow_scripts.stages._command import Job, run

LIBRARIES = ("altair", "vl-convert-python")


def main(job: Job) -> None:
    dynamics = tables.read(job.input("dynamics"), tables.DYNAMICS).to_pandas()
    chart = clip_fraction_chart(dynamics, job.settings["arms"])
    mark_missing(chart, job.settings.get("declared"), dynamics.groupby("arm")["seed"].nunique().to_dict())
    save(chart, job.output("html"), job.output("svg"))


if __name__ == "__main__":
    run(main, LIBRARIES)
