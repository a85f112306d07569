"""Learning curves of every run and arm."""

from workflow_scripts import tables
from workflow_scripts.figures.learning_curves import learning_curves_chart
from workflow_scripts.figures.style import mark_missing, save
from workflow_scripts.stages._command import Job, run

LIBRARIES = ("altair", "vl-convert-python")


def main(job: Job) -> None:
    scores = tables.read(job.input("scores"), tables.SCORES).to_pandas()
    chart = learning_curves_chart(
        scores, job.settings["arms"], job.settings.get("branches"), job.settings.get("baseline")
    )
    runs = scores[scores["level"] == "run"]
    mark_missing(chart, job.settings.get("declared"), runs.groupby("arm")["seed"].nunique().to_dict())
    save(chart, *job.outputs["learning_curves"])


if __name__ == "__main__":
    run(main, LIBRARIES)
