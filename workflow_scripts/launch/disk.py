"""The disk a study needs below results/, by kind, and whether it is there.

Sizes of weights come from what lies there already, else from the model's configuration; where that cannot be had (a
model on the hub that is not in the cache yet) they are unknown.
"""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from workflow_scripts import stage_settings, tables
from workflow_scripts.launch.cost import tokens
from workflow_scripts.launch.progress import RunProgress
from workflow_scripts.study import Study

EMBEDDED_BYTES = 444_000  # of models/warm_start.py's model
TOKENIZER_BYTES = 4_000_000
BYTES_PER_TOKEN = 4  # records and texts, compressed: 0.8 in the default study, 4 in that of SmolLM2
HEADER_BYTES = 128  # of one tensor in a safetensors file
STATE = 3  # weights that train and AdamW's two moments of them


@dataclass(frozen=True)
class Need:
    """Bytes of one kind of file: in all when the study is done (or, of state, while it runs), there, and to come; None:
    unknown."""

    kind: str
    whole: int | None
    there: int
    to_come: int | None


def gigabytes(size: int | None) -> str:
    """1.2 GB; 3.0 MB; - for nothing, ? for unknown."""
    if not size:
        return "?" if size is None else "-"
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def _bytes_below(folder: Path) -> int:
    size = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):  # gone since: a job is at work
                size += os.stat(os.path.join(place, name)).st_size
    return size


def _manifest_bytes(path: Path, table: tables.Table) -> int | None:
    """Bytes of the files that a manifest lists, of one step where it has steps; None without a usable manifest."""
    if not path.exists():
        return None
    try:
        rows = tables.read(path, table).to_pylist()
    except tables.TableError:
        return None
    steps = {row.get("step") for row in rows}
    return sum(row["bytes"] for row in rows) // max(len(steps), 1)


def _configuration(study: Study, root: Path, fetch: bool) -> tuple[Path, dict[str, str]] | None:
    """Folder with the model's configuration, and what to say when it is read; None where it cannot be had here."""
    name = study.model.name
    if (root / "base" / "model" / "config.json").is_file():
        return root / "base" / "model", {}
    if name is None:
        return None
    if study.model.source == "local":
        return Path(name).expanduser(), {}
    if study.model.source == "hub":
        from workflow_scripts.models.files import cached_snapshot

        if fetch:
            from huggingface_hub import hf_hub_download

            with suppress(Exception):  # whatever is wrong between here and the hub: the size stays unknown
                hf_hub_download(name, "config.json", revision=study.model.revision)
        cached = cached_snapshot(name, study.model.revision)
        return (cached, {}) if cached else None
    spec = find_spec(name.replace("-", "_"))
    files = [f for place in (spec and spec.submodule_search_locations) or () for f in Path(place).glob("*.gguf")]
    return (files[0].parent, {"gguf_file": files[0].name}) if files else None


def weight_bytes(folder: Path, how: dict[str, str], dtype: str, adapter: dict[str, Any] | None) -> tuple[int, int]:
    """Bytes of the model's weights in a dtype, and of one checkpoint: the adapter, or else all of them; both float32.

    Nothing is read but the configuration; the model is built without memory. Raises OSError or ValueError where
    transformers or peft refuse it.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from workflow_scripts.models.weights import lora, training_dtype

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **how)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    whole = _saved_bytes(model.parameters())
    if adapter is None:
        return whole, _saved_bytes(model.to(getattr(torch, training_dtype({"dtype": dtype}))).parameters())
    from peft import get_peft_model

    with torch.device("meta"):
        trained = get_peft_model(model, lora(adapter))
    return whole, _saved_bytes(p for p in trained.parameters() if p.requires_grad)


def _saved_bytes(parameters: Any) -> int:
    return sum(p.numel() * p.element_size() + HEADER_BYTES for p in parameters)


Sizes = tuple[int | None, int | None]  # of the base, and of one checkpoint


def sizes(study: Study, root: Path, fetch: bool = False) -> Sizes:
    """Bytes of the base and of one checkpoint: of those that lie there, else by the model's configuration.

    fetch: get the configuration (a few kB) from the hub if the cache has none.
    """
    base, checkpoint = _made(study, root)
    if base and checkpoint:
        return base, checkpoint
    found = _configuration(study, root, fetch)
    if found is None:
        return base, checkpoint
    try:
        adapter = study.model.adapter.model_dump() if study.model.adapter else None
        weights, trained = weight_bytes(*found, study.model.dtype, adapter)
    except (OSError, ValueError, KeyError, ImportError):  # preparing the base says what is wrong with it
        return base, checkpoint
    return base or weights + TOKENIZER_BYTES, checkpoint or trained


def _made(study: Study, root: Path) -> Sizes:
    base = _manifest_bytes(root / "base" / "manifest.parquet", tables.MANIFEST)
    runs = (root / "runs" / arm / f"seed-{seed}" for arm, seeds in study.runs().items() for seed in seeds)
    found = (_manifest_bytes(run / "checkpoints.parquet", tables.CHECKPOINTS) for run in runs)
    checkpoint = next((size for size in found if size), None)
    if study.model.source == "embedded" and study.model.adapter is None:
        return base or EMBEDDED_BYTES, checkpoint or EMBEDDED_BYTES
    return base, checkpoint


def _at_most(study: Study, root: Path) -> Sizes:
    """Bounds from the sizes of the weight files alone: no adapter is larger than its model. Takes no second."""
    base, checkpoint = _made(study, root)
    folder, _ = _configuration(study, root, fetch=False) or (None, {})
    files = [*folder.glob("*.safetensors"), *folder.glob("*.gguf")] if folder else []
    largest = sum(f.stat().st_size * (8 if f.suffix == ".gguf" else 2) for f in files) or None  # as float32
    return base or largest, checkpoint or largest


def needs(study: Study, root: Path, runs: Sequence[RunProgress], size: Sizes) -> list[Need]:
    """What the study needs on disk, kind by kind; without tables, figures and logs, which are small."""
    return [
        _base(root, size[0]),
        _checkpoints(study, root, runs, size[1]),
        _state(study, root, runs, size[1]),
        _records(study, root, runs),
    ]


def _base(root: Path, size: int | None) -> Need:
    there = _bytes_below(root / "base" / "model")
    return Need("base", size, there, None if size is None else max(0, size - there))


def _checkpoints(study: Study, root: Path, runs: Sequence[RunProgress], size: int | None) -> Need:
    each = {arm: len(study.resolved(arm).checkpoints) for arm in study.runs()}
    whole = sum(each[run.arm] for run in runs)
    to_come = sum(each[run.arm] for run in runs if not run.trained)
    if not study.compute.keep.checkpoints:  # those of the run that is going
        whole, to_come = (min(count, max(each.values())) for count in (whole, to_come))
    there = sum(_bytes_below(folder) for folder in root.glob("runs/*/seed-*/checkpoints"))
    return _counted("checkpoints", whole, there, to_come, size)


def _state(study: Study, root: Path, runs: Sequence[RunProgress], size: int | None) -> Need:
    """Of one run that is going, twice: a new state is whole before the old one goes; of all runs where it is kept."""
    branches = stage_settings.branch_states(study)
    untrained = [run for run in runs if not run.trained]
    kept = study.compute.keep.state == "last"
    branching, to_branch = (sum(len(branches.get(run.arm, ())) for run in some) for some in (runs, untrained))
    whole = (len(runs) if kept else 2) + branching
    to_come = (len(untrained) if kept else 2 * min(1, len(untrained))) + to_branch
    folders = [root / "state", *root.glob("runs/*/seed-*/branch_states")]
    there = sum(map(_bytes_below, folders))
    return _counted("resumable state", whole, there, to_come, STATE * size if size else None)


def _counted(kind: str, whole: int, there: int, to_come: int, size: int | None) -> Need:
    return Need(kind, size and whole * size, there, size and to_come * size)


def _records(study: Study, root: Path, runs: Sequence[RunProgress]) -> Need:
    everything = tokens(study, {arm: len(seeds) for arm, seeds in study.runs().items()}, study.evaluation.base_repeats)
    open_runs = {arm: sum(r.arm == arm and r.state != "evaluated" for r in runs) for arm in study.runs()}
    to_come = tokens(study, open_runs, 0)
    there = sum(f.stat().st_size for part in ("runs", "evals", "base") for f in (root / part).rglob("*.parquet"))
    whole, left = (None if n is None else (m + n) * BYTES_PER_TOKEN for m, n in (everything, to_come))
    return Need("rollouts and completions", whole, there, left)


def faults(study: Study, root: Path, runs: Sequence[RunProgress]) -> list[str]:
    """One line if the disk has less room than what is to come needs, as far as that is known."""
    place = next(folder for folder in (root.absolute(), *root.absolute().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    found = needs(study, root, runs, _at_most(study, root))
    if any(need.to_come is None for need in found) or _sum(found) > free:
        found = needs(study, root, runs, sizes(study, root, fetch=True))
    if _sum(found) <= free:
        return []
    keep, parts = study.compute.keep, ", ".join(f"{n.kind} {gigabytes(n.to_come)}" for n in found if n.to_come)
    keys = {"checkpoints: false": keep.checkpoints, "state: none": keep.state == "last"}
    less = ", ".join(key for key, helps in keys.items() if helps)
    return [
        f"{root}: needs {gigabytes(_sum(found))} more ({parts}), and {place} has {gigabytes(free)} free; "
        + (f"compute.keep: {{{less}}} needs less, " if less else "")
        + "or run where there is room (snakemake --directory)"
    ]


def _sum(found: list[Need]) -> int:
    return sum(need.to_come or 0 for need in found)
