"""The command line that all stages share, and how a stage ends: quietly, or with one last line that says why."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from workflow_scripts import tables
from workflow_scripts.errors import UserError, out_of_space, refused
from workflow_scripts.started import STARTED


@dataclass
class Job:
    """What a rule hands to its stage: settings (part of the key), compute (not part of it), files by name."""

    settings: dict[str, Any]
    compute: dict[str, Any]
    code: str
    root: Path
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    libraries: Sequence[str]

    def input(self, name: str) -> str:
        """The one file of that name."""
        return self.inputs[name][0]

    def output(self, name: str) -> str:
        """The one file of that name."""
        return self.outputs[name][0]

    def add_inputs(self, name: str, paths: list[str]) -> list[str]:
        """Files that the stage derives itself (too many for a command line); they count in the inputs digest."""
        self.inputs[name] = paths
        self.__dict__.pop("provenance", None)
        _ = self.provenance
        return paths

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """What each written footer says: settings, code, inputs as they were before being read, library versions."""
        paths = [path for files in self.inputs.values() for path in files]
        return {
            "settings": self.settings,
            "code": self.code,
            "inputs": tables.inputs_digest(paths, self.root),
            "libraries": {name: version(name) for name in self.libraries},
        }

    def write(self, name: str, table: tables.Table, rows: Any, **extra: Any) -> None:
        """Write one output table with this job's provenance."""
        tables.write(self.output(name), table, rows, {**self.provenance, **extra})


def _named(words: Sequence[str]) -> dict[str, list[str]]:
    """`name=a b c` as the shell splits it: a word without a name belongs to the last one; an empty list is no file."""
    files: dict[str, list[str]] = {}
    name = ""
    for word in words:
        before, equals, path = word.partition("=")
        name = before if equals else name
        files.setdefault(name, [])
        if not equals or path:
            files[name].append(path if equals else word)
    return files


def run(main: Callable[[Job], None], libraries: Sequence[str] = ()) -> None:
    """Parse the command line, run the stage, turn a known fault into one line and exit code 1.

    --settings JSON  --code HEX  --root results/STUDY  [--compute JSON]  [--input NAME=PATH… …]  --output NAME=PATH… …
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--settings", required=True, type=json.loads)
    parser.add_argument("--compute", default={}, type=json.loads)
    parser.add_argument("--code", required=True)
    parser.add_argument("--root", required=True, type=Path)
    parser.add_argument("--input", nargs="*", default=[])
    parser.add_argument("--output", nargs="+", required=True)
    a = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ[STARTED] = "1"
    job = Job(a.settings, a.compute, a.code, a.root, _named(a.input), _named(a.output), libraries)
    try:
        _ = job.provenance  # an input that changes meanwhile, of a job whose Snakemake was killed, is another input
        main(job)
    except Exception as error:
        if out_of_space(error):
            sys.exit(
                f"armslength: no space left on the disk, or in the quota, of {job.root}; free some and run again "
                "(compute.keep.checkpoints, rollouts or completions: false keep less)"
            )
        if isinstance(error, UserError):
            sys.exit(f"armslength: {error}")
        if refused(error):
            sys.exit(f"armslength: {error.filename or job.root}: {error.strerror}; the study writes below {job.root}")
        raise
