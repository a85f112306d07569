"""Which problems are solved at all: solve-rate histogram, and problems gained and lost against the baseline.

Gained and lost are both positive without any effect, so the counts of a placebo stand beside them. Runs of one seed
share their noise, and a placebo has seeds of its own: so runs are compared with those of other seeds.
"""

from workflow_scripts import tables
from workflow_scripts.analysis import coverage
from workflow_scripts.analysis.comparison import Analysis, in_order
from workflow_scripts.job import Job, run

LIBRARIES = ()


def main(job: Job) -> None:
    analysis = Analysis.read(job.settings, job.input("counts"))
    job.write("coverage", tables.COVERAGE, in_order(tables.COVERAGE, coverage.rows(analysis)))


if __name__ == "__main__":
    run(main, LIBRARIES)
