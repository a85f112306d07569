"""Draw one figure, as html and as svg.

What the figure is made of comes from the rule, so that this stage reaches only the code that draws it.
"""

from importlib import import_module
from pathlib import Path

import pandas as pd
import pyarrow as pa

from workflow_scripts.figures.drawn_runs import drawn_runs
from workflow_scripts.figures.style import mark_missing, save
from workflow_scripts.job import Job, run

LIBRARIES = ("altair", "vl-convert-python")


_SUMMED = ["arm", "step", "benchmark", "problem_id"]


def main(job: Job) -> None:
    settings = job.settings
    read = {name: _read(path, name) for path in job.inputs["tables"] for name in [Path(path).stem]}
    module, _, function = settings["chart"].partition(":")
    draw = getattr(import_module(f"workflow_scripts.figures.{module}"), function)
    chart = draw(*(_frame(name, read[name]) for name in settings["tables"]), **settings["options"])
    if settings["runs_of"]:
        mark_missing(chart, settings.get("declared"), drawn_runs(settings["runs_of"], read[settings["runs_of"]]))
    save(chart, *job.outputs["figure"])


def _read(path: str, name: str) -> pa.Table:
    """A table; of the counts, millions of rows in a large study, only what figures show."""
    files, schemas = (import_module(f"workflow_scripts.tables.{part}") for part in ("files", "schemas"))
    table = getattr(schemas, name.upper())
    if name != "counts":
        return files.read(path, table)
    counts = files.read(path, table, [*_SUMMED, "seed", "samples", "correct", "excluded"], coded=True)
    return counts.filter(counts["excluded"].is_null())


def _frame(name: str, rows: pa.Table) -> pd.DataFrame:
    """A table as a chart takes it: counts are summed over the runs of an arm."""
    if name != "counts":
        return rows.to_pandas()
    sums = rows.group_by(_SUMMED).aggregate([("samples", "sum"), ("correct", "sum")])
    return sums.rename_columns([*_SUMMED, "samples", "correct"]).to_pandas()


if __name__ == "__main__":
    run(main, LIBRARIES)
