"""Every arm against the baseline: intervals and verdicts; one primary row per arm, all others exploratory."""

from workflow_scripts import tables
from workflow_scripts.analysis import effects
from workflow_scripts.analysis.comparison import Analysis, in_order
from workflow_scripts.job import Job, run

LIBRARIES = ("scipy", "statsmodels")


def main(job: Job) -> None:
    analysis = Analysis.read(job.settings, job.input("counts"))
    job.write("effects", tables.EFFECTS, in_order(tables.EFFECTS, effects.rows(analysis)))


if __name__ == "__main__":
    run(main, LIBRARIES)
