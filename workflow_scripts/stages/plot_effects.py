"""Forest plot of the primary effects."""

from workflow_scripts import tables
from workflow_scripts.figures.effects import effects_chart
from workflow_scripts.figures.style import mark_missing, save
from workflow_scripts.stages._command import Job, run

LIBRARIES = ("altair", "vl-convert-python")


def main(job: Job) -> None:
    effects = tables.read(job.input("effects"), tables.EFFECTS).to_pandas()
    noise_floors = tables.read(job.input("noise_floors"), tables.NOISE_FLOORS).to_pandas()
    chart = effects_chart(effects, noise_floors, job.settings["arms"])
    primary = effects[effects["primary"]]
    drawn = dict(zip(primary["baseline"], primary["baseline_seeds"], strict=True))
    mark_missing(chart, job.settings.get("declared"), drawn | dict(zip(primary["arm"], primary["seeds"], strict=True)))
    save(chart, *job.outputs["effects"])


if __name__ == "__main__":
    run(main, LIBRARIES)
