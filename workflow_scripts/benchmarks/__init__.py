"""Problem sets, one module per benchmark.

A module of this package states its sets as ``SETS`` and how their rows are read: ``read(row)`` for files and hub rows,
``generate(split, rows, seed)`` where the problems are made here. Adding a benchmark is adding such a module; nothing
else names it. Modules here import nothing heavy: the study is parsed with them on every call of Snakemake.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules


@dataclass(frozen=True)
class Hub:
    """Where a set lies on the Hugging Face hub; the revision is a commit, so the rows can never change."""

    path: str
    config: str | None
    split: str
    revision: str


@dataclass(frozen=True)
class ProblemSet:
    """One problem set: a benchmark, or one split of it.

    name: full name, unique; it is part of the problem_id. benchmark: module of this package. split: None for a whole
    benchmark. grader: module of `grading`. hub, file: where it can be had (file: its name inside ``data_dir``); both
    None for generated problems. size: rows of the source, of the file where they differ; None where the study chooses
    them (``rows`` and ``seed``). gaps: some rows have no reference answer, which the gold audit drops and lists; in any
    other set that is an error. version: goes up when `read` makes other problems of the same rows.
    """

    name: str
    benchmark: str
    grader: str
    split: str | None = None
    hub: Hub | None = None
    file: str | None = None
    size: int | None = None
    gaps: bool = False
    version: int = 1

    @property
    def sources(self) -> tuple[str, ...]:
        """Kinds of source it can come from: generated alone, or hub (preferred) and local."""
        found = tuple(kind for kind, place in (("hub", self.hub), ("local", self.file)) if place)
        return found or ("generated",)


@lru_cache(None)
def _sets() -> dict[str, ProblemSet]:
    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    return {entry.name: entry for module in modules for entry in getattr(module, "SETS", ())}


def names() -> tuple[str, ...]:
    """Full names of all problem sets, sorted."""
    return tuple(sorted(_sets()))


def problem_set(name: str, split: str | None = None) -> ProblemSet:
    """The set of that full name, or of that benchmark and split.

    Raises KeyError whose text names the nearest sets, and those that exist.
    """
    full = name if split is None or name.endswith(f"_{split}") else f"{name}_{split}"
    if full in _sets():
        return _sets()[full]
    splits = [entry.name for entry in _sets().values() if entry.benchmark == name]
    near = splits or get_close_matches(full, names(), n=3)
    hint = f"nearest: {', '.join(near)}" if near else f"allowed: {', '.join(names())}"
    raise KeyError(f"no problem set {full!r}; {hint}")
