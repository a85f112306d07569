"""Fetch the candidates for training: as a benchmark is fetched, but possibly a part of the set."""

from workflow_scripts.job import run
from workflow_scripts.stages.fetch_benchmark import main

LIBRARIES = ()

if __name__ == "__main__":
    run(main, LIBRARIES)
