"""Names of the files that `armslength audit` does not read, so that a user learns what the file is."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workflow_scripts import file_kinds

READS = "audit reads trainer_state.json (transformers, TRL) and trainer_log.parquet (Armslength), or a folder with one"
EXAMINED = 1 << 20  # bytes at the start of a text file that are examined
OF_TRAINING = (
    (b":W&B", "a W&B run file (run-ID.wandb)"),
    (b"PK\x03\x04", "a zip archive, as PyTorch saves (training_args.bin, optimizer.pt)"),
    (b"SQLite format 3\0", "an SQLite database, as trackio and MLflow write"),
)


def _json(line: str) -> Any:
    """The value of a line of JSON; None if the line is not JSON."""
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


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _csv(lines: Sequence[str]) -> str | None:
    if lines[0].lstrip().startswith(("{", "[")):  # JSON that breaks off
        return None
    for delimiter in ",;\t":
        try:
            rows = list(csv.reader(lines[:2], delimiter=delimiter))
        except csv.Error:  # a line too long to be a row
            return None
        if len(rows) < 2 or len(rows[0]) < 2 or len(rows[0]) != len(rows[1]) or not any(map(_is_number, rows[1])):
            continue
        exported = rows[0][0] in ("Step", "_step") and any(" - " in name for name in rows[0][1:])
        history = {"_step", "_timestamp", "_runtime"} & set(rows[0])
        return "a csv file exported from W&B" if exported or history else "a csv file"
    return None


def name_of_bytes(content: bytes) -> str | None:
    """What a file with this content is, by its first bytes alone; None if they do not show it."""
    if b"brain.Event:" in content[:64]:
        return "a tensorboard event file"
    own = next((name for magic, name in OF_TRAINING if content.startswith(magic)), None)
    return own or file_kinds.name_of(content[: file_kinds.START])


def name_of_text(content: bytes) -> str | None:
    """What a text file that is not a JSON document is; None if its lines do not show it."""
    if b"\0" in content[:EXAMINED]:
        return "a binary file of an unknown format"
    text = content[:EXAMINED].decode("utf-8-sig", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    printed = any(line.startswith(("{'", "[{'")) for line in lines)
    return _json_lines(lines) or ("the console output of a trainer" if printed else _csv(lines))


def name_of_json(document: Any) -> str | None:
    """What a JSON document without log_history is; None if unknown."""
    if isinstance(document, list) and any(isinstance(entry, dict) for entry in document):
        steps = any("step" in entry for entry in document if isinstance(entry, dict))
        return 'a bare log_history list; save it as {"log_history": [...]}' if steps else "a list of JSON objects"
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
