"""Sample the untrained base once more on one benchmark: the sampling seed is the number of the repeat."""

from workflow_scripts import tables
from workflow_scripts.stages import _sampling
from workflow_scripts.stages._command import Job, run

LIBRARIES = ("torch", "transformers", "tokenizers")


def main(job: Job) -> None:
    model, tokenizer = _sampling.base_model(job)
    rows = _sampling.draw(job, model, tokenizer, _sampling.holdout(job), "base", job.settings["repeat"], 0)
    job.write("completions", tables.COMPLETIONS, rows)


if __name__ == "__main__":
    run(main, LIBRARIES)
