"""Functions of the user's own, written package.module:function; nothing of their modules is run here."""

import ast
import re
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from workflow_scripts.digest import source_digest
from workflow_scripts.study.faults import nearest

WRITTEN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def is_own(name: str) -> bool:
    """Whether a name is that of a user's own function."""
    return ":" in name


def file_of(name: str) -> Path | None:
    """Its module, where jobs will find it: the working directory, the repository, installed packages; None if there is
    none."""
    places: Sequence[str] | None = [str(Path.cwd()), str(Path(__file__).parents[2]), *sys.path]
    spec = None
    for part in name.partition(":")[0].split("."):
        spec = PathFinder.find_spec(part, places) if places is not None else None
        places = spec.submodule_search_locations if spec else None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def source(name: str) -> str | None:
    """Digest of its module, without comments, so that an edit of it trains again; None for a function of ours."""
    file = file_of(name) if is_own(name) else None
    return source_digest(file) if file and file.is_file() else None


def sources(names: Sequence[str]) -> dict[str, str]:
    """The same of each of the user's own functions among the names."""
    return {name: digest for name in names if (digest := source(name))}


def missing(name: str) -> str | None:
    """Why jobs will not find a function of the user's own; None if they will, and for a function of ours."""
    module, _, function = name.partition(":")
    if not is_own(name):
        return None
    file = file_of(name)
    if file is None:
        return f"no module {module} in the working directory or the installed packages"
    names = _bound(file)
    return f"{module} has no {function}{nearest(function, names)}" if names and function not in names else None


def keyword_arguments(name: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Its keyword-only arguments, required and optional; None where the text of its module does not tell."""
    file, function = file_of(name), name.partition(":")[2]
    tree = _tree(file) if file else None
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function] if tree else []
    if not found:
        return None
    pairs = list(zip(found[-1].args.kwonlyargs, found[-1].args.kw_defaults, strict=True))
    return (
        tuple(argument.arg for argument, default in pairs if default is None),
        tuple(argument.arg for argument, default in pairs if default is not None),
    )


def _tree(file: Path) -> ast.Module | None:
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _bound(file: Path) -> set[str]:
    """Names that a module binds, if its text tells."""
    tree = _tree(file)
    if tree is None:
        return set()
    names = {
        node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.asname or node.name for node in ast.walk(tree) if isinstance(node, ast.alias)}
    return set() if "*" in names else names
