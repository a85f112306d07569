"""Seed-to-seed spread of every arm against the noise of the evaluation."""

from workflow_scripts import tables
from workflow_scripts.figures.noise_floors import noise_floors_chart
from workflow_scripts.figures.style import mark_missing, save
from workflow_scripts.stages._command import Job, run

LIBRARIES = ("altair", "vl-convert-python")


def main(job: Job) -> None:
    noise_floors = tables.read(job.input("noise_floors"), tables.NOISE_FLOORS).to_pandas()
    chart = noise_floors_chart(noise_floors, job.settings["endpoint"]["pass_at"], job.settings["arms"])
    training = noise_floors[noise_floors["kind"] == "training"]
    mark_missing(chart, job.settings.get("declared"), training.groupby("arm")["runs"].max().to_dict())
    save(chart, *job.outputs["noise_floors"])


if __name__ == "__main__":
    run(main, LIBRARIES)
