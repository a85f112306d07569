"""Fetch a benchmark, whole: data that a run is judged on."""

from workflow_scripts import tables
from workflow_scripts.benchmarks import sources
from workflow_scripts.stages._command import Job, StageError, run

LIBRARIES = ()


def main(job: Job) -> None:
    try:
        rows, source = sources.fetch(job.settings["set"], job.compute.get("data_dir"))
    except sources.SourceError as error:
        raise StageError(str(error)) from None
    job.write("problems", tables.PROBLEMS, rows, source=source)


if __name__ == "__main__":
    run(main, LIBRARIES)
