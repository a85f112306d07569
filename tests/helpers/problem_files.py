"""What tests of problem sets share: files they write, real ones where they lie, and stage jobs."""

import json
import os
from pathlib import Path

import pytest

from workflow_scripts.benchmarks import sources
from workflow_scripts.job import Job

REAL = Path(os.environ.get("ARMSLENGTH_DATA") or Path(__file__).resolve().parents[2].parent / "shared" / "data")


def real(name: str) -> Path:
    path = REAL / name
    if not path.is_file():
        pytest.skip(f"{name} is not in {REAL}: set ARMSLENGTH_DATA to a folder that has it")
    return path


def fetched(entry: dict, data_dir: Path | None = None) -> list[dict]:
    return sources.fetch(entry, str(data_dir) if data_dir else None)[0]


def questions(rows: list[dict]) -> list[str]:
    return [row["question"] for row in rows]


def own(path: Path, **more: object) -> dict:
    fields = {"question": "q", "answer": "a"}
    return {"name": "own", "source": "local", "path": path.name, "fields": fields, **more}


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def stage_job(
    folder: Path, settings: dict, inputs: dict[str, list[Path]], output: str, compute: dict | None = None
) -> Job:
    files = {name: [str(path) for path in paths] for name, paths in inputs.items()}
    return Job(settings, compute or {}, "code", folder, files, {output: [str(folder / f"{output}.parquet")]}, ())
