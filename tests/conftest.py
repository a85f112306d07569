"""Shared by all tests."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import smoke_study
from copies import Copy
from filelock import FileLock
from hypothesis import settings

settings.register_profile("any machine", deadline=None)  # no verdict depends on the speed of the processor
settings.load_profile("any machine")
# Two cores are enough for no thread pool at all; and no test may reach for a hub.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return Path(__file__).resolve().parents[1]


Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Once:
    """once(name, make) -> a folder that `make` has filled, once for all workers; not to be changed.

    In place of xdist's groups, which the session's pytest (9.2) does not keep together.
    """
    here = tmp_path_factory.getbasetemp()
    shared = here if worker_id == "master" else here.parent

    def made(name: str, make: Callable[[Path], object]) -> Path:
        target = shared / name
        with FileLock(f"{target}.lock"):
            if not target.exists():
                make(unfinished := target.with_name(f"{name}-unfinished"))
                unfinished.rename(target)
        return target

    return made


@pytest.fixture(scope="session")
def done(once: Once) -> Copy:
    """A copy of the repository in which the small study has been run by the real stages; not to be changed."""
    return Copy(once("smoke", smoke_study.run))
