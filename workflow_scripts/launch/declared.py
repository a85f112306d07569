"""The results that a study declares, and which of them are missing.

Snakemake alone would not make a missing result again while later ones exist. The Snakefile therefore requests what
`missing` names, and `armslength plan` and `status` name the same results.
"""

import json
from collections.abc import Iterable
from os.path import exists
from pathlib import Path

from workflow_scripts import stage_settings
from workflow_scripts.figures import catalogue
from workflow_scripts.study import Study
from workflow_scripts.training.finished import write_json

RECORDS = ("rollout_updates", "tail_tokens", "rollouts", "trainer_log", "checkpoints")  # of a run
REPORTED = (  # tables that the report reads
    "counts", "scores", "effects", "noise_floors", "power", "difficulty", "coverage", "dynamics", "policies",
    "reachability", "rewards", "runs", "examples",
)  # fmt: skip
TABLES = (
    *REPORTED,
    "objectives",
)
SHOWN = 3  # missing results that one line names


def declared(study: Study) -> list[str]:
    """Every result that the study asks for, as a path below its results folder, in the order in which they are made.

    Completions that are dropped once they are graded are left out and, with `allow_missing`, all results of runs.
    """
    evaluated = ("completions", "samples") if study.compute.keep.completions else ("samples",)
    files = [f"data/{name}" for name in ("candidates", "gold_audit", "train")]
    files += [f"{folder}/{b}" for folder in ("holdouts", "gold_audit", "contamination") for b in study.all_benchmarks]
    files += ["base/manifest"]
    folders = [f"base/repeat-{repeat}" for repeat in range(study.evaluation.base_repeats)]
    states: list[str] = []
    if not study.allow_missing:
        branched = stage_settings.branch_states(study)
        for arm, seeds in study.runs().items():
            for seed in seeds:
                run = f"runs/{arm}/seed-{seed}"
                files += [f"{run}/{name}" for name in RECORDS]
                states += [f"{run}/branch_states/step-{step}.tar" for step in branched.get(arm, ())]
                folders.append(f"evals/{arm}/seed-{seed}")
    files += [f"{folder}/{b}/{name}" for folder in folders for b in study.sampled for name in evaluated]
    files += [f"tables/{name}" for name in TABLES]
    figures = [f"figures/{figure.name}.{kind}" for figure in catalogue.FIGURES for kind in ("html", "svg")]
    return [*(f"{file}.parquet" for file in files), *states, *figures, "report.html", "summary.md"]


def missing(study: Study, root: Path) -> list[str]:
    """Paths of the declared results that are missing, without those that are absent on purpose."""
    paths = [f"{root}/{file}" for file in declared(study)]
    gone = [path for path in paths if not exists(path)]
    on_purpose = absent(root) if gone else set()
    return [path for path in gone if path not in on_purpose]


def _register(root: Path) -> Path:
    return root / "absent.json"


def absent(root: Path) -> set[str]:
    """Paths of results that are absent on purpose: dropped once they were used, or not part of what was adopted."""
    try:
        said = json.loads(_register(root).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return set()
    return set(said) if isinstance(said, list) else set()


def note_absent(root: Path, paths: Iterable[str]) -> None:
    """Add results to those that are absent on purpose, and remove from the list those that exist by now."""
    known = absent(root)
    now = {path for path in known.union(paths) if not exists(path)}
    if now != known:
        write_json(_register(root), sorted(now))


def line(study: Study, gone: list[str]) -> str:
    """One line: how many of the declared results exist, and which are missing."""
    whole = len(declared(study))
    text = f"{whole - len(gone)} of {whole} declared results exist"
    if not gone or len(gone) == whole:
        return text
    more = f" and {len(gone) - SHOWN} more" if len(gone) > SHOWN else ""
    return f"{text}; missing: {', '.join(gone[:SHOWN])}{more}; the next run makes them"
