"""The noise that a difference must rise above: evaluation, training, placebo; and one the other way, sensitivity."""

from workflow_scripts import tables
from workflow_scripts.analysis import noise_floors
from workflow_scripts.analysis.comparison import Analysis, in_order
from workflow_scripts.job import Job, run

LIBRARIES = ("scipy", "statsmodels")


def main(job: Job) -> None:
    analysis = Analysis.read(job.settings, job.input("counts"))
    job.write("noise_floors", tables.NOISE_FLOORS, in_order(tables.NOISE_FLOORS, noise_floors.rows(analysis)))


if __name__ == "__main__":
    run(main, LIBRARIES)
