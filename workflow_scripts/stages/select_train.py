"""Take the candidates fit for training: sound reference answer, in no benchmark the study decontaminates against."""

import pyarrow as pa
import pyarrow.compute as pc

from workflow_scripts import tables
from workflow_scripts.errors import UserError
from workflow_scripts.job import Job, run

LIBRARIES = ()


def _marked(path: str, table: tables.Table, flag: str, column: str) -> pa.Array:
    rows = tables.read(path, table, [flag, column])
    return rows.filter(rows[flag])[column].combine_chunks()


def main(job: Job) -> None:
    candidates = tables.read(job.input("candidates"), tables.PROBLEMS)
    found = {"gold": _marked(job.input("audit"), tables.GOLD_AUDIT, "dropped", "problem_id")}
    pairs = [tables.read(path, tables.CONTAMINATION) for path in job.inputs.get("contamination", [])]
    contamination = pa.concat_tables([tables.schema(tables.CONTAMINATION).empty_table(), *pairs])
    chosen = {"contaminated": contamination["removed"]}
    if job.settings["remove_template_twins"]:
        chosen["template_twin"] = pc.equal(contamination["kind"], "template_twin")
    for reason, mask in chosen.items():
        found[reason] = contamination.filter(mask)["other_problem_id"].combine_chunks()
    kept, removed = candidates, {}
    for reason, problem_ids in found.items():
        fit = kept.filter(pc.invert(pc.is_in(kept["problem_id"], problem_ids)))
        kept, removed[reason] = fit, len(kept) - len(fit)
    if not len(kept):
        raise UserError(
            f"{job.input('candidates')}: no train row is left of {len(candidates)}: "
            + ", ".join(f"{number} {reason}" for reason, number in removed.items())
        )
    job.write("train", tables.PROBLEMS, kept, candidates=len(candidates), removed=removed)


if __name__ == "__main__":
    run(main, LIBRARIES)
