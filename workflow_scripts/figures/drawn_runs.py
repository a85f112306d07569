"""How many runs of each arm a table holds."""

import pyarrow as pa
import pyarrow.compute as pc


def drawn_runs(name: str, rows: pa.Table) -> dict[str, int]:
    """arm -> runs. name: of the table."""
    if name == "effects":
        primary = rows.filter(rows["primary"]).to_pylist()
        baseline = {row["baseline"]: row["baseline_seeds"] for row in primary}
        return baseline | {row["arm"]: row["seeds"] for row in primary}
    if name == "noise_floors":
        training = rows.filter(pc.equal(rows["kind"], "training")).group_by("arm").aggregate([("runs", "max")])
        return dict(zip(training["arm"].to_pylist(), training["runs_max"].to_pylist(), strict=True))
    if name == "scores":
        rows = rows.filter(pc.equal(rows["level"], "run"))
    if name == "runs":
        rows = rows.filter(pc.not_equal(rows["status"], "missing"))
    seeds = rows.group_by("arm").aggregate([("seed", "count_distinct")])
    return dict(zip(seeds["arm"].to_pylist(), seeds["seed_count_distinct"].to_pylist(), strict=True))
