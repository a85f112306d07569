"""Fetch a benchmark, whole: data that a run is judged on."""

from workflow_scripts import tables
from workflow_scripts.benchmarks import sources
from workflow_scripts.job import Job, run

LIBRARIES = ()


def main(job: Job) -> None:
    rows, source = sources.fetch(job.settings["set"], job.compute.get("data_dir"))
    if source.get("gaps"):
        print(f"{source['gaps']} of {source['rows']} rows without question or answer left out (gaps: drop)", flush=True)
    if source.get("unused_columns"):
        print(f"columns that no field reads: {', '.join(source['unused_columns'])}", flush=True)
    job.write("problems", tables.PROBLEMS, rows, source=source)


if __name__ == "__main__":
    run(main, LIBRARIES)
