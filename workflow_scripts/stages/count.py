"""Count samples: for each run, step and problem, how many there are and how many are correct."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from workflow_scripts import tables
from workflow_scripts.errors import UserError
from workflow_scripts.job import Job, run

LIBRARIES = ()

_BASE = "base"  # reserved arm name: the untrained model; its seed is the repeat


def _present(paths: Iterable[str], allow_missing: bool) -> list[str]:
    """Those that exist; all must, unless the study allows missing runs."""
    paths = list(paths)
    missing = [path for path in paths if not Path(path).is_file()]
    if missing and not allow_missing:
        raise UserError(
            f"{missing[0]}: the file is missing ({len(missing)} of {len(paths)} are); allow_missing: true skips them"
        )
    return [path for path in paths if path not in missing]


def _made_with(footer: dict) -> dict[str, object]:
    """What all seeds of an arm must share. A branch starts from the run of its own seed: its inputs do differ."""
    settings = {key: value for key, value in footer.get("settings", {}).items() if key != "seed"}
    return {
        "code": footer.get("code"),
        "settings": settings,
        "inputs": None if "branch" in settings else footer.get("inputs"),
    }


def _check_provenance(job: Job) -> None:
    """Seeds of an arm ran the same code and settings from the same files, all arms the same libraries; else a
    difference is not the arm's."""
    first_of_all: tuple[str, dict] | None = None
    for arm, seeds in job.settings["runs"].items():
        paths = [f"{job.root}/runs/{arm}/seed-{seed}/checkpoints.parquet" for seed in seeds]
        first: tuple[str, dict] | None = None
        for path in job.inputs["checkpoints"]:
            if path not in paths:
                continue
            footer = tables.provenance(path)
            made = _made_with(footer)
            first = first or (path, made)
            first_of_all = first_of_all or (path, footer.get("libraries", {}))
            other_kinds = [kind for kind in made if made[kind] != first[1][kind]]
            if other_kinds:
                raise UserError(
                    f"{path} and {first[0]} were trained with different {' and '.join(other_kinds)}; delete the older "
                    "run, it will run again"
                )
            ours, other = footer.get("libraries", {}), first_of_all[1]
            different = [name for name in sorted({*ours, *other}) if ours.get(name) != other.get(name)]
            if different:
                raise UserError(
                    f"{path} and {first_of_all[0]} were trained with different versions of {', '.join(different)}"
                )


def _check_sampling(job: Job) -> None:
    """All that is compared was sampled alike; else a difference is not the arm's."""
    own = ("arm", "seed", "steps", "repeat")
    first: dict[str, tuple[str, dict]] = {}
    for path in job.inputs["samples"]:
        sampled = tables.provenance(path).get("settings", {}).get("sampled", {})
        alike = {key: value for key, value in sampled.items() if key not in own}
        before, other = first.setdefault(alike.get("benchmark", ""), (path, alike))
        different = [key for key in sorted({*alike, *other}) if alike.get(key) != other.get(key)]
        if different:
            raise UserError(
                f"{path} and {before} were sampled with different {', '.join(different)}; delete the older one, it "
                "will be made again"
            )


def _samples(path: str, arm: str, seed: int) -> pa.Table:
    samples = tables.read(path, tables.SAMPLES)
    if pc.unique(samples["arm"]).to_pylist() != [arm] or pc.unique(samples["seed"]).to_pylist() != [seed]:
        raise UserError(f"{path}: holds samples of another run than {arm}, seed {seed}")
    return samples


def _counted(samples: pa.Table) -> pa.Table:
    for status in ("unparsed", "timeout"):
        samples = samples.append_column(status, pc.equal(samples["status"], status))
    keys = list(tables.COUNTS.key)
    sums = ("correct", "truncated", "unparsed", "timeout", "completion_tokens")
    grouped = samples.group_by(keys).aggregate([([], "count_all"), *((name, "sum") for name in sums)])
    return grouped.rename_columns({"count_all": "samples"} | {f"{name}_sum": name for name in sums})


def _check_equal_sizes(counts: pa.Table) -> None:
    """pass@k of problems with different numbers of samples does not compare."""
    sizes = counts.group_by(["benchmark"]).aggregate([("samples", "min"), ("samples", "max")]).to_pylist()
    for row in sizes:
        if row["samples_min"] != row["samples_max"]:
            raise UserError(
                f"{row['benchmark']}: between {row['samples_min']} and {row['samples_max']} samples a problem; an "
                "evaluation in evals/ or base/ is of other settings than the rest"
            )


def _excluded(job: Job) -> pa.Table:
    """Problems left out of scores. Where the train set was cleaned of a benchmark, all its items may stay."""
    rows = {}
    for path in job.inputs.get("contamination", []):
        pairs = tables.read(path, tables.CONTAMINATION, ["benchmark", "holdout_problem_id", "removed"])
        for row in pairs.filter(pairs["removed"]).to_pylist():
            if row["benchmark"] not in job.settings["decontaminated"]:
                rows[row["benchmark"], row["holdout_problem_id"]] = "contaminated"
    for path in job.inputs.get("audit", []):
        audit = tables.read(path, tables.GOLD_AUDIT, ["benchmark", "problem_id", "dropped"])
        for row in audit.filter(audit["dropped"]).to_pylist():
            rows[row["benchmark"], row["problem_id"]] = "gold"
    columns = ([key[0] for key in rows], [key[1] for key in rows], list(rows.values()))
    arrays = [pa.array(column, type=pa.string()) for column in columns]
    return pa.table(arrays, names=["benchmark", "problem_id", "excluded"])


def main(job: Job) -> None:
    settings = job.settings
    missing = settings["allow_missing"]
    runs = [(arm, seed) for arm, seeds in settings["runs"].items() for seed in seeds]
    places = [(f"{job.root}/evals/{arm}/seed-{seed}", arm, seed) for arm, seed in runs]
    places += [(f"{job.root}/base/repeat-{repeat}", _BASE, repeat) for repeat in settings["base_repeats"]]
    files = {
        f"{folder}/{b}/samples.parquet": (arm, seed) for folder, arm, seed in places for b in settings["benchmarks"]
    }
    records = {(arm, seed): f"{job.root}/runs/{arm}/seed-{seed}/checkpoints.parquet" for arm, seed in runs}
    known = job.add_inputs("checkpoints", _present(records.values(), missing))
    # an evaluation whose run left no record was made nobody knows how: it is not counted
    proven = [path for path, run in files.items() if run[0] == _BASE or records[run] in known]
    job.add_inputs("samples", _present(proven, missing))
    _check_provenance(job)
    _check_sampling(job)
    if not job.inputs["samples"]:
        raise UserError(f"{job.root}: no samples.parquet of any run is there")
    counts = _counted(pa.concat_tables([_samples(path, *files[path]) for path in job.inputs["samples"]]))
    _check_equal_sizes(counts)
    excluded = _excluded(job)
    counts = counts.join(excluded, ["benchmark", "problem_id"]).sort_by(
        [(key, "ascending") for key in tables.COUNTS.key]
    )
    job.write("counts", tables.COUNTS, counts)


if __name__ == "__main__":
    run(main, LIBRARIES)
