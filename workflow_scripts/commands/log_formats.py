"""Names of the files that `armslength audit` does not read, so that a user learns what the file is."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

READS = "audit reads trainer_state.json (transformers, TRL) and trainer_log.parquet (Armslength), or a folder with one"
EXAMINED = 1 << 20  # bytes at the start of a text file that are examined
MAGIC = (
    (b":W&B", "a W&B run file (run-ID.wandb)"),
    (b"PK\x03\x04", "a zip archive, as PyTorch saves (training_args.bin, optimizer.pt)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"SQLite format 3\0", "an SQLite database, as trackio and MLflow write"),
    (b"\x89HDF", "an HDF5 file"),
    *((b"\x80" + bytes([protocol]), "a Python pickle") for protocol in range(2, 6)),
)


def _json(line: str) -> Any:
    """The value of a line of JSON; None if it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _json_lines(lines: Sequence[str]) -> str | None:
    first = _json(lines[0])
    if not isinstance(first, dict):
        return None
    if isinstance(first.get("data"), dict) and "step" in first:
        return "a JSON Lines file of verl's file logger"
    return "a JSON Lines file (one object per line)" if len(lines) > 1 else None


def _csv(lines: Sequence[str]) -> str | None:
    if len(lines) < 2:
        return None
    try:
        head, first = csv.reader(lines[:2])
    except (ValueError, csv.Error):  # a quoted field may go on over several lines
        return None
    if len(head) < 2 or len(head) != len(first) or lines[0].lstrip()[:1] in ("{", "["):
        return None
    exported = head[0] in ("Step", "_step") and any(" - " in name for name in head[1:])
    history = {"_step", "_timestamp", "_runtime"} & set(head)
    return "a csv file exported from W&B" if exported or history else "a csv file"


def name_of_bytes(content: bytes) -> str | None:
    """What a file with this content is, by its first bytes alone; None if they tell nothing."""
    if b"brain.Event:" in content[:64]:
        return "a tensorboard event file"
    return next((name for magic, name in MAGIC if content.startswith(magic)), None)


def name_of_text(content: bytes) -> str | None:
    """What a text file that is no JSON document is; None if its lines tell nothing."""
    text = content[:EXAMINED].decode("utf-8-sig", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    printed = any(line.startswith(("{'loss'", "{'train_loss'", "{'reward")) for line in lines)
    return _json_lines(lines) or ("the console output of a trainer" if printed else _csv(lines))


def name_of_json(document: Any) -> str | None:
    """What a JSON document without log_history is; None if unknown."""
    if isinstance(document, list) and any(isinstance(entry, dict) and "step" in entry for entry in document):
        return 'a bare log_history list; save it as {"log_history": [...]}'
    if isinstance(document, dict) and isinstance(document.get("data"), dict) and "step" in document:
        return "a JSON Lines file of verl's file logger"
    if isinstance(document, dict) and {"_step", "_runtime", "_timestamp"} & document.keys():
        return "a summary of a W&B run, which holds last values only"
    return None


def name_of_folder(folder: Path) -> str | None:
    """What a folder without a log of ours or of transformers holds; None if unknown."""
    if any(folder.glob("events.out.tfevents*")) or any(folder.glob("runs/*/events.out.tfevents*")):
        return "tensorboard event files"
    if any(folder.glob("*.wandb")) or (folder / "wandb").is_dir():
        return "the files of a W&B run"
    return None
