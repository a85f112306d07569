"""What clip policies did and would have done: quadrants and decisive tokens."""

from workflow_scripts import tables
from workflow_scripts.figures.policies import decisive_tokens_chart, quadrants_chart
from workflow_scripts.figures.style import mark_missing, save
from workflow_scripts.stages._command import Job, run

LIBRARIES = ("altair", "vl-convert-python")


def main(job: Job) -> None:
    policies = tables.read(job.input("policies"), tables.POLICIES).to_pandas()
    charts = {
        "quadrants": quadrants_chart(policies, job.settings["arms"]),
        "decisive_tokens": decisive_tokens_chart(policies, job.settings["arms"]),
    }
    runs = policies.groupby("arm")["seed"].nunique().to_dict()
    for name, chart in charts.items():
        mark_missing(chart, job.settings.get("declared"), runs)
        save(chart, *job.outputs[name])


if __name__ == "__main__":
    run(main, LIBRARIES)
