"""The script that kills a study, on the small one."""

import shutil
import subprocess
import sys
from pathlib import Path

import chaos
import pytest
import yaml
from copies import Copy, environment
from smoke_study import ROOT, STUDY

from workflow_scripts import tables


@pytest.mark.slow
def test_the_small_study_killed_at_random_is_the_undisturbed_one(done: Copy, tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(yaml.safe_dump(STUDY), encoding="utf-8")
    command = [
        sys.executable, chaos.__file__, "--study", str(study), "--kills", "5", "--seed", "1", "--seconds", "60",
        "--reference", str(done.root / ROOT), str(tmp_path / "made"),
    ]  # fmt: skip
    ran = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:]
    assert "5 of 5 kills: " in ran.stdout and ran.stdout.endswith("files compared, 0 differ\n")


@pytest.mark.slow
def test_what_differs_is_named(done: Copy, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(done.root / ROOT, results)
    theirs = chaos.hashes(done.root / ROOT, chaos.SECONDS)
    assert len(theirs) > 90 and chaos.differences(chaos.hashes(results, chaos.SECONDS), theirs) == []
    changed, gone = results / "runs/gapo/seed-1/rollouts.parquet", results / "tables/effects.parquet"
    rows = tables.read(changed, tables.ROLLOUTS).to_pylist()
    rows[5]["reward"] += 1e-6
    tables.write(changed, tables.ROLLOUTS, rows, tables.provenance(changed))
    gone.unlink()
    weights = results / "runs/gapo/seed-1/checkpoints/step-8/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    timed = results / "tables/runs.parquet"
    runs = tables.read(timed, tables.RUNS).to_pylist()
    tables.write(timed, tables.RUNS, [{**row, "train_seconds": 1.0} for row in runs], tables.provenance(timed))
    assert chaos.differences(chaos.hashes(results, chaos.SECONDS), theirs) == [
        "tables/effects.parquet: only undisturbed",
        "runs/gapo/seed-1/checkpoints/step-8/model.safetensors: another content",
        "runs/gapo/seed-1/rollouts.parquet: another content",
    ]
