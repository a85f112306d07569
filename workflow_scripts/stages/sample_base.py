"""Sample the untrained base once more on one benchmark: the sampling seed is the number of the repeat."""

from workflow_scripts.job import Job, run
from workflow_scripts.sampling.sampler import Sampler

LIBRARIES = ("torch", "transformers", "tokenizers")


def main(job: Job) -> None:
    sampler = Sampler(job)
    sampler.write(sampler.draw(None, "base", job.settings["repeat"], 0))


if __name__ == "__main__":
    run(main, LIBRARIES)
