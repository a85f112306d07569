"""Caches of our own where the user's home directory cannot hold them: in a container, under another user, on a node.

Snakemake, torch, transformers and the hub's client keep caches below the home directory and end in a traceback where
that is missing or cannot be written, or where the user has no name. `python -m workflow_scripts.home` prints what a
shell has to set for them, as the Makefile does before it starts Snakemake; the Snakefile sets it for its jobs.
"""

import getpass
import os
import shlex
import tempfile
from pathlib import Path

FOLDER = Path(".snakemake") / "home"  # below the working directory, where Snakemake keeps what it knows of it


def _can_be_written(folder: str) -> bool:
    """Whether files can be made in a folder, which is made where it is missing."""
    try:
        os.makedirs(folder, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _has_name() -> bool:
    try:
        return bool(getpass.getuser())
    except (KeyError, OSError, ImportError):  # OSError since Python 3.13
        return False


def variables() -> dict[str, str]:
    """The environment variables to set: none where the home directory serves."""
    needed = {} if _has_name() else {"USER": f"user-{os.getuid()}"}
    home = os.path.expanduser("~")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    if os.path.isabs(cache) and _can_be_written(cache):
        return needed
    ours = FOLDER.absolute()
    models = os.path.join(cache, "huggingface")
    if "HF_HOME" not in os.environ and os.path.isabs(cache) and os.path.isdir(models):
        needed["HF_HOME"] = models  # models and data sets that are there can be read all the same
    if not os.path.isabs(home) or not os.path.isdir(home):
        needed["HOME"] = str(ours)
    if "TRITON_HOME" not in os.environ:
        needed["TRITON_HOME"] = str(ours)
    return needed | {"XDG_CACHE_HOME": str(ours / ".cache")}


if __name__ == "__main__":
    print(*(f"export {name}={shlex.quote(value)}" for name, value in variables().items()), sep="\n")
