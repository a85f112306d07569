"""Scores of each run, and of each arm over its runs, with truncated and unparsed shares and lengths beside them."""

from workflow_scripts import tables
from workflow_scripts.analysis import scores
from workflow_scripts.analysis.comparison import Analysis, in_order
from workflow_scripts.job import Job, run

LIBRARIES = ("scipy",)


def main(job: Job) -> None:
    analysis = Analysis.read(job.settings, job.input("counts"))
    selection = job.settings.get("selection")
    if selection:  # not reported, but the scores by which a checkpoint was chosen must be there to look at
        analysis.views[selection] = [selection]
    job.write("scores", tables.SCORES, in_order(tables.SCORES, scores.rows(analysis)))


if __name__ == "__main__":
    run(main, LIBRARIES)
