"""The small study with instant stages, run once; each test changes a copy of it."""

import subprocess
from pathlib import Path

import pytest
from copies import Copy, instant
from filelock import FileLock


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Copy:
    """A copy in which the small study has been run to its end, once for all workers; not to be changed."""
    here = tmp_path_factory.getbasetemp()
    target = (here if worker_id == "master" else here.parent) / "finished"
    with FileLock(f"{target}.lock"):
        if not target.exists():
            instant(target.with_name("unfinished")).snakemake("--cores", "2", "--quiet", "all")
            target.with_name("unfinished").rename(target)
    return Copy(target)


@pytest.fixture
def copy(finished: Copy, tmp_path: Path) -> Copy:
    """A copy of the finished one, to change."""
    subprocess.run(["cp", "-a", str(finished.root), str(tmp_path / "copy")], check=True)
    return Copy(tmp_path / "copy")
