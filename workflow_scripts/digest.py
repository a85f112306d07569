"""Digest of the code a stage runs.

What counts: every symbol of this package that can be reached from the stage module, across modules, as its syntax tree
without comments, docstrings and formatting; data files that such code names beside itself; the versions of the
libraries in the stage's ``LIBRARIES``. What a stage looks up by name at run time (the clip policy of an arm, a grader,
a prompt family) is handed in as *roots*, so that a change to one clip policy touches only the arms that use it. What is
*cut* does not count although it is reached: the grader under training, for which a version number stands.
"""

import ast
import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

PACKAGE = "workflow_scripts"
HERE = Path(__file__).parent
# How, not what: where a job runs, how much at once, what its errors are called. The engine that drew is on record
# beside the results, and is in no key.
HOW = (
    "sampling.memory", "sampling.vllm_engine", "stages._devices", "stages._errors", "stages._retention",
    "training.memory", "training.processes", "training.vllm_rollouts",
)  # fmt: skip
_SILENT_FIELDS = {"type_ignores", "type_comment", "kind", "ctx"}


def _file(module: str) -> Path:
    path = HERE.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@lru_cache(None)
def _is_module(name: str) -> bool:
    return (name == PACKAGE or name.startswith(PACKAGE + ".")) and _file(name).is_file()


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _dump(node: object) -> str:
    """ast.dump without positions, docstrings and empty fields (new Python versions add empty ones)."""
    if isinstance(node, list):
        return "[" + ",".join(map(_dump, node)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for name, value in ast.iter_fields(node):
        if name in _SILENT_FIELDS or value is None or value == []:
            continue
        if name == "body" and isinstance(value, list) and value and _is_text(value[0]):
            value = value[1:] or [ast.Pass()]
        fields.append(f"{name}={_dump(value)}")
    return f"{type(node).__name__}({','.join(fields)})"


@dataclass
class _Module:
    symbols: dict[str, list[ast.stmt]]  # every name that is bound at the top level
    aliases: dict[str, tuple[str, str | None]]  # local name -> (module of ours, symbol in it or None)
    effects: list[ast.stmt]  # other statements: they run on import


@lru_cache(None)
def _tree(name: str) -> ast.Module:
    return ast.parse(_file(name).read_text(encoding="utf-8"))


@lru_cache(None)
def _module(name: str) -> _Module:
    tree = _tree(name)
    module = _Module({}, {}, [])
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            module.symbols.setdefault(node.name, []).append(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            names = (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
            for bound in names:
                module.symbols.setdefault(bound, []).append(node)
        elif not isinstance(node, (ast.Import, ast.ImportFrom)) and not _is_text(node):
            module.effects.append(node)
    package = name if _file(name).name == "__init__.py" else name.rpartition(".")[0]
    imports = [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]  # inside functions too
    for statement in imports:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if _is_module(alias.name):
                    module.aliases[alias.asname or PACKAGE] = (alias.name if alias.asname else PACKAGE, None)
        elif isinstance(statement, ast.ImportFrom):
            base = statement.module or ""
            if statement.level:
                parents = package.split(".")
                base = ".".join(parents[: len(parents) - statement.level + 1] + ([base] if base else []))
            if base.split(".")[0] == PACKAGE:
                for alias in statement.names:
                    full = f"{base}.{alias.name}"
                    module.aliases[alias.asname or alias.name] = (
                        (full, None) if _is_module(full) else (base, alias.name)
                    )
    return module


def _nodes(module: str, symbol: str | None) -> list[ast.stmt]:
    found = _module(module)
    chosen = [n for nodes in found.symbols.values() for n in nodes] if symbol is None else found.symbols.get(symbol, [])
    return chosen + found.effects


def _dotted(node: ast.expr) -> list[str]:
    """a.b.c as names, or [] where it is not a plain chain."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


class _Reach:
    def __init__(self, cut: tuple[str, ...]) -> None:
        self.cut = tuple(f"{PACKAGE}.{name}" for name in cut)
        self.seen: set[tuple[str, str | None]] = set()

    def visit(self, module: str, symbol: str | None) -> None:
        if (module, symbol) in self.seen or not _is_module(module):
            return
        if any(module == cut or module.startswith(cut + ".") for cut in self.cut):
            return
        found = _module(module)
        if symbol is not None and symbol not in found.symbols and symbol in found.aliases:  # a re-export
            self.visit(*found.aliases[symbol])
            return
        self.seen.add((module, symbol))
        for top in _nodes(module, symbol):
            through_module: set[int] = set()
            for node in ast.walk(top):
                if isinstance(node, ast.Attribute):
                    self._attribute(node, found, through_module)
            for node in ast.walk(top):
                if isinstance(node, ast.Name) and id(node) not in through_module:
                    if node.id in found.symbols and node.id != symbol:
                        self.visit(module, node.id)
                    elif node.id in found.aliases and node.id not in found.symbols:
                        self.visit(*found.aliases[node.id])

    def _attribute(self, node: ast.Attribute, found: _Module, through_module: set[int]) -> None:
        """module.symbol reaches that symbol alone, not the whole module."""
        names = _dotted(node)
        if not names or names[0] not in found.aliases or found.aliases[names[0]][1] is not None:
            return
        target = found.aliases[names[0]][0]
        for position, name in enumerate(names[1:], start=1):
            if _is_module(f"{target}.{name}"):
                target = f"{target}.{name}"
                if position == len(names) - 1:
                    self.visit(target, None)
            else:
                self.visit(target, name)
                break
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        through_module.add(id(root))


def _data_files(module: str, nodes: list[ast.stmt]) -> list[Path]:
    """Files that the code names, as a plain string, beside its own module."""
    folder = _file(module).parent
    names = {
        n.value
        for top in nodes
        for n in ast.walk(top)
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and "." in n.value and len(n.value) < 80
    }
    return sorted(folder / n for n in names if "/" not in n and not n.endswith(".py") and (folder / n).is_file())


def _content(path: Path, roots: tuple[str, ...]) -> bytes:
    """The file's bytes; of one of which roots name keys ("sampling/prompts.json:plain"), what stands under these."""
    named = path.relative_to(HERE).as_posix() + ":"
    keys = [root.removeprefix(named) for root in roots if root.startswith(named)]
    if not keys:
        return path.read_bytes()
    whole = json.loads(path.read_text(encoding="utf-8"))
    return json.dumps({key: whole.get(key) for key in keys}, sort_keys=True).encode()


@lru_cache(None)
def libraries(stage: str) -> tuple[str, ...]:
    """The stage's LIBRARIES: installed packages whose version counts."""
    for node in _module(f"{PACKAGE}.stages.{stage}").symbols.get("LIBRARIES", []):
        if isinstance(node, ast.Assign):
            return tuple(ast.literal_eval(node.value))
    return ()


@lru_cache(None)
def reached(stage: str, roots: tuple[str, ...] = (), cut: tuple[str, ...] = ()) -> tuple[tuple[str, str | None], ...]:
    """All (module, symbol) that count for a stage; symbol None is the whole module."""
    reach = _Reach((*cut, *HOW))
    reach.visit(f"{PACKAGE}.stages.{stage}", None)
    for root in roots:  # one that names a key of a data file reaches no code
        module, _, symbol = root.partition(":")
        reach.visit(f"{PACKAGE}.{module}", symbol or None)
    return tuple(sorted(reach.seen, key=lambda pair: (pair[0], pair[1] or "")))


@lru_cache(None)
def digest(stage: str, roots: tuple[str, ...] = (), cut: tuple[str, ...] = ()) -> str:
    """Sixteen hex digits for what the stage runs.

    stage: name of a module in stages. roots: further "module" or "module:symbol" of the package that it looks up by
    name, or "folder/file.json:key" for the part of a data file that it uses. cut: modules of the package that do not
    count.
    """
    sha = hashlib.sha256()
    for module, symbol in reached(stage, roots, cut):
        nodes = _nodes(module, symbol)
        sha.update(f"{module}:{symbol}\n".encode())
        for node in nodes:
            sha.update(_dump(node).encode())
        for path in _data_files(module, nodes):
            sha.update(path.name.encode() + _content(path, roots))
    for name in libraries(stage):
        sha.update(f"{name}=={version(name)}\n".encode())
    return sha.hexdigest()[:16]


def source_digest(path: Path) -> str:
    """Sixteen hex digits for a Python file of anyone's: of its syntax tree without comments and docstrings, or of its
    bytes where it has none."""
    content = path.read_bytes()
    with suppress(SyntaxError, ValueError):
        content = _dump(ast.parse(content)).encode()
    return hashlib.sha256(content).hexdigest()[:16]


@lru_cache(None)
def keyword_arguments(module: str) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Public functions of a module of ours: name -> (required, optional) keyword-only arguments, without importing
    it."""
    found = {}
    for node in _tree(f"{PACKAGE}.{module}").body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            pairs = list(zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True))
            found[node.name] = (
                tuple(a.arg for a, default in pairs if default is None),
                tuple(a.arg for a, default in pairs if default is not None),
            )
    return found
