"""Gradient weight and upper bound of the objective of every arm."""

from workflow_scripts import tables
from workflow_scripts.figures.objectives import gradient_weight_chart, upper_bounds_chart
from workflow_scripts.figures.style import save
from workflow_scripts.stages._command import Job, run

LIBRARIES = ("altair", "vl-convert-python")


def main(job: Job) -> None:
    objectives = tables.read(job.input("objectives"), tables.OBJECTIVES).to_pandas()
    save(gradient_weight_chart(objectives, job.settings["arms"]), *job.outputs["gradient_weight"])
    save(upper_bounds_chart(objectives, job.settings["arms"]), *job.outputs["upper_bounds"])


if __name__ == "__main__":
    run(main, LIBRARIES)
