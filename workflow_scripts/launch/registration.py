"""The plan that a study is held to: results/{study}/plan.parquet.

Written when a real run starts, before its first job, and only ever added to; no job has it as an input. What was asked
before the first result can be told from what was asked later: `report/deviations.py` reads it for the report.
"""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workflow_scripts import stage_settings, tables
from workflow_scripts.report.deviations import read
from workflow_scripts.study import Study
from workflow_scripts.study.keys import Sampling

_EVALUATION = {"problems", "prompt_family", *Sampling.model_fields}


def _set_only(value: Any) -> Any:
    """Without what is null: a key that joins the study later is no change of the studies before it."""
    if isinstance(value, dict):
        return {str(key): _set_only(part) for key, part in value.items() if part is not None}
    return [_set_only(part) for part in value] if isinstance(value, list | tuple) else value


def registration(study: Study, reward_version: int, root: str | Path, code: dict[str, Any]) -> dict[str, Any]:
    """What the study is held to: everything that must not follow from the results. code: digests by stage."""
    analysis, evaluation, model, root = study.analysis, study.evaluation, study.model, Path(root)
    holdouts = {
        b: stage_settings.fetch_benchmark(study, b, root / "holdouts" / f"{b}.parquet") for b in study.all_benchmarks
    }
    base = {
        key: value
        for key, value in stage_settings.prepare_base(study)["model"].items()
        if (model.source, key) != ("local", "name")
    }
    copied: dict[str, Any] = {}
    for grader in {*map(study.grader_of, study.sampled), *(study.resolved(arm).training.reward for arm in study.arms)}:
        copied |= stage_settings.copied(study, grader)
    values = {
        "question": study.question,
        "endpoint": {**analysis.endpoint.model_dump(), "benchmarks": study.reported},
        "margin": analysis.margin,
        "alpha": analysis.alpha,
        "looks": study.looks,
        "seeds": {name: study.resolved(name).seeds for name in study.arms},
        "baseline": study.baseline,
        "roles": study.roles(),
        "arms": {name: study.resolved(name).identity for name in study.arms},
        "pass_at": evaluation.pass_at,
        "selection": evaluation.selection,
        "evaluation": evaluation.model_dump(include=_EVALUATION)
        | {"samples": stage_settings.sampled_on(study)}
        | copied,
        "base_repeats": evaluation.base_repeats,
        "model": base | model.model_dump(include={"prompt_family", "date", "adapter"}),
        "decontaminate_against": study.data.decontaminate_against,
        "remove_template_twins": study.data.remove_template_twins,
        "train_set": stage_settings.fetch_train_set(study, root / "data" / "candidates.parquet")["set"],
        "holdouts": {benchmark: settings["set"] for benchmark, settings in holdouts.items()},
        "reward_version": reward_version,
        "code": code,
    }
    found: dict[str, Any] = json.loads(json.dumps({key: _set_only(value) for key, value in values.items()}))
    return found


def begun(root: str | Path) -> int:
    """Runs of which there is a sign that they were begun, of any arm and seed; at least 1 where results are there."""
    root = Path(root)
    files = [*root.glob("runs/*/seed-*/checkpoints.parquet"), *root.glob("state/*/seed-*/progress.json")]
    files += root.glob("evals/*/seed-*/*/samples.parquet")
    runs = {path.relative_to(root).parts[1:3] for path in files}
    return len(runs) or int((root / "tables" / "effects.parquet").exists())


def _commit() -> str:
    """HEAD of the working tree, with + when it has changes; empty outside git."""
    folder = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
        changed = subprocess.run(
            ["git", "status", "--porcelain"], cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def latest(path: str | Path) -> dict[str, Any]:
    """The value of each key recorded last; empty where no plan exists. Raises TableError for a damaged one."""
    return {row["key"]: json.loads(row["value"]) for row in read(path)}


def _changed(path: str | Path, values: dict[str, Any]) -> list[dict[str, str]]:
    """Rows, without their stamp, of what the plan does not say or says differently."""
    known = latest(path)
    return [
        {"key": key, "value": json.dumps(value, sort_keys=True)}
        for key, value in values.items()
        if key not in known or _set_only(known[key]) != value
    ]


def record(values: dict[str, Any], path: str | Path) -> None:
    """Add what is new or changed to the plan, with the time (UTC) and the git commit; nothing else is touched.

    Before it the sign that training has begun, once there is one: what comes after it was asked with results at hand.
    """
    known, runs = latest(path), begun(Path(path).parent)
    rows = _changed(path, values)
    if tables.TRAINING_BEGUN not in known or (runs and not known[tables.TRAINING_BEGUN]):
        rows = [{"key": tables.TRAINING_BEGUN, "value": json.dumps(runs)}, *rows]
    if not rows:
        return
    stamp = {"recorded": datetime.now(UTC).isoformat(timespec="milliseconds"), "commit": _commit()}
    tables.write(path, tables.PLAN, read(path) + [{**stamp, **row} for row in rows], {})


def digest(values: dict[str, Any], path: str | Path) -> str:
    """Of what the plan will say once this run has started, without times: the same before and after `record`."""
    recorded = read(path)
    if recorded:  # what came with the first rows
        first = {row["key"]: row["value"] for row in recorded if row["recorded"] == recorded[0]["recorded"]}
        late = first.get(tables.TRAINING_BEGUN, "0") != "0"
    else:
        late = begun(Path(path).parent) > 0
    said = [row for row in recorded if row["key"] != tables.TRAINING_BEGUN] + _changed(path, values)
    return tables.text_digest(json.dumps([late, *([row["key"], row["value"]] for row in said)]))


def pinned_reward_version(path: str | Path, current: int) -> int:
    """The reward version that the study's runs are held to: the plan's, or the current one before there is a plan."""
    version: int = latest(path).get("reward_version", current)
    return version
