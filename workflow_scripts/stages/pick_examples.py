"""Some problems with what the arms wrote on them: those where an arm's solve rate differs most from the baseline's, and
some at random.

The completions are no input of the rule: they may have been dropped once graded (compute.keep.completions), and nothing
may be sampled again for the sake of a page. Others would have other counts, which are an input.
"""

from workflow_scripts import tables
from workflow_scripts.analysis import examples
from workflow_scripts.analysis.comparison import Analysis, in_order
from workflow_scripts.job import Job, run

LIBRARIES = ()


def main(job: Job) -> None:
    analysis = Analysis.read(job.settings, job.input("counts"))
    job.write("examples", tables.EXAMPLES, in_order(tables.EXAMPLES, examples.rows(job, analysis)))


if __name__ == "__main__":
    run(main, LIBRARIES)
