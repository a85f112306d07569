"""Could this comparison have shown anything? Clip, premise, groups, truncation, collapse and weights of every arm."""

from workflow_scripts import tables
from workflow_scripts.analysis import reachability
from workflow_scripts.job import Job, run

LIBRARIES = ("scipy",)


def main(job: Job) -> None:
    job.write("reachability", tables.REACHABILITY, reachability.rows(job))


if __name__ == "__main__":
    run(main, LIBRARIES)
