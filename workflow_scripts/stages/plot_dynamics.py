"""What training did: clipping, ratio and advantage, and the course of the rollouts."""

from workflow_scripts import tables
from workflow_scripts.figures.clip_fraction import clip_fraction_chart
from workflow_scripts.figures.ratio_advantage import ratio_advantage_chart
from workflow_scripts.figures.style import mark_missing, save
from workflow_scripts.figures.training_course import training_course_chart
from workflow_scripts.stages._command import Job, run

LIBRARIES = ("altair", "vl-convert-python")


def main(job: Job) -> None:
    dynamics = tables.read(job.input("dynamics"), tables.DYNAMICS).to_pandas()
    arms, branches = job.settings["arms"], job.settings.get("branches")
    charts = {
        "clip_fraction": clip_fraction_chart(dynamics, arms),
        "ratio_advantage": ratio_advantage_chart(dynamics, arms, branches),
        "training_course": training_course_chart(dynamics, arms, branches),
    }
    runs = dynamics.groupby("arm")["seed"].nunique().to_dict()
    for name, chart in charts.items():
        mark_missing(chart, job.settings.get("declared"), runs)
        save(chart, *job.outputs[name])


if __name__ == "__main__":
    run(main, LIBRARIES)
