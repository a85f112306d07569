"""The small study with instant stages, run once; each test changes a copy of it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from copies import Copy, instant


@pytest.fixture(scope="session")
def finished(once: Callable[..., Path]) -> Copy:
    """A copy in which the small study has been run to its end, once for all workers; not to be changed."""
    return Copy(once("finished", lambda root: instant(root).snakemake("--cores", "2", "--quiet", "all")))


@pytest.fixture
def copy(finished: Copy, tmp_path: Path) -> Copy:
    """A copy of the finished one, to change."""
    subprocess.run(["cp", "-a", str(finished.root), str(tmp_path / "copy")], check=True)
    return Copy(tmp_path / "copy")
