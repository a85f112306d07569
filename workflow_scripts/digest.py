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
from collections.abc import Iterator
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
    "platforms", "sampling.memory", "sampling.vllm_engine", "devices", "errors", "models.retention",
    "started", "training.finished", "training.lease", "training.outputs", "training.memory", "training.processes",
    "training.vllm_rollouts",
)  # fmt: skip
_SILENT_FIELDS = {"type_ignores", "type_comment", "kind", "ctx"}


@lru_cache(None)
def _file(module: str) -> Path:
    path = HERE.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@lru_cache(None)
def _is_module(name: str) -> bool:
    return (name == PACKAGE or name.startswith(PACKAGE + ".")) and _file(name).is_file()


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@lru_cache(None)
def _walked(top: ast.AST) -> list[ast.AST]:
    """ast.walk, once."""
    nodes = [top]
    for node in nodes:  # it grows while it is read
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                nodes.append(value)
            elif isinstance(value, list):
                nodes += [part for part in value if isinstance(part, ast.AST)]
    return nodes


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
        if isinstance(node, ast.JoinedStr):  # some versions of Python 3.12 add an empty text to a nested format
            value = [part for part in value if not (isinstance(part, ast.Constant) and part.value == "")]
        fields.append(f"{name}={_dump(value)}")
    return f"{type(node).__name__}({','.join(fields)})"


@lru_cache(None)
def _dumped(node: ast.stmt) -> str:
    return _dump(node)


_Symbol = tuple[str, str | None]  # module of ours, symbol in it or None


@dataclass
class _Module:
    symbols: dict[str, list[ast.stmt]]  # every name that is bound at the top level
    aliases: dict[str, _Symbol]  # by local name
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
    imports = [n for n in _walked(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]  # inside functions too
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
                if statement.names[0].name == "*":
                    module.aliases |= {name: (base, name) for name in _module(base).symbols if not name.startswith("_")}
                    continue
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


@lru_cache(None)
def _uses(module: str, top: ast.stmt) -> frozenset[_Symbol]:
    """What of this package a top-level statement names: symbols of its own module, and what the module imports."""
    found = _module(module)
    uses: set[_Symbol] = set()
    through_module: set[int] = set()
    for node in _walked(top):
        names = _dotted(node) if isinstance(node, ast.Attribute) else []
        if names and found.aliases.get(names[0], ("", ""))[1] is None:
            uses.add(_through_module(found.aliases[names[0]][0], names[1:]))
            root = node
            while isinstance(root, ast.Attribute):
                root = root.value
            through_module.add(id(root))
    for node in _walked(top):
        if isinstance(node, ast.Name) and id(node) not in through_module:
            if node.id in found.symbols:
                uses.add((module, node.id))
            elif node.id in found.aliases:
                uses.add(found.aliases[node.id])
    return frozenset(uses)


def _through_module(target: str, names: list[str]) -> _Symbol:
    """module.symbol reaches that symbol alone, not the whole module."""
    for name in names:
        if not _is_module(f"{target}.{name}"):
            return target, name
        target = f"{target}.{name}"
    return target, None


def _reach(module: str, symbol: str | None, cut: tuple[str, ...], seen: set[_Symbol]) -> None:
    """Add to seen what a symbol reaches, itself too, without the modules that are cut and what is below them."""
    if (module, symbol) in seen or not _is_module(module):
        return
    if any(module == name or module.startswith(name + ".") for name in cut):
        return
    found = _module(module)
    if symbol is not None and symbol not in found.symbols and symbol in found.aliases:  # a re-export
        _reach(*found.aliases[symbol], cut, seen)
        return
    seen.add((module, symbol))
    for top in _nodes(module, symbol):
        for use in _uses(module, top):
            _reach(*use, cut, seen)


@lru_cache(None)
def _data_files(module: str, symbol: str | None) -> list[Path]:
    """Files that the code names, as a plain string, beside its own module."""
    folder = _file(module).parent
    names = {
        n.value
        for top in _nodes(module, symbol)
        for n in _walked(top)
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and "." in n.value and len(n.value) < 80
    }
    return sorted(folder / n for n in names if "/" not in n and not n.endswith(".py") and (folder / n).is_file())


@lru_cache(None)
def _text(module: str, symbol: str | None) -> bytes:
    """What a digest counts of a symbol, without data files."""
    return "".join([f"{module}:{symbol}\n", *map(_dumped, _nodes(module, symbol))]).encode()


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
def reached(stage: str, roots: tuple[str, ...] = (), cut: tuple[str, ...] = ()) -> tuple[_Symbol, ...]:
    """All (module, symbol) that count for a stage; symbol None is the whole module."""
    left_out = tuple(f"{PACKAGE}.{name}" for name in (*cut, *HOW))
    seen: set[_Symbol] = set()
    _reach(f"{PACKAGE}.stages.{stage}", None, left_out, seen)
    for root in roots:  # one that names a key of a data file reaches no code
        module, _, symbol = root.partition(":")
        _reach(f"{PACKAGE}.{module}", symbol or None, left_out, seen)
    return tuple(sorted(seen, key=lambda pair: (pair[0], pair[1] or "")))


@lru_cache(None)
def digest(stage: str, roots: tuple[str, ...] = (), cut: tuple[str, ...] = ()) -> str:
    """Sixteen hex digits for what the stage runs.

    stage: name of a module in stages. roots: further "module" or "module:symbol" of the package that it looks up by
    name, or "folder/file.json:key" for the part of a data file that it uses. cut: modules of the package that do not
    count.
    """
    sha = hashlib.sha256()
    for module, symbol in reached(stage, roots, cut):
        sha.update(_text(module, symbol))
        for path in _data_files(module, symbol):
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


@lru_cache(None)
def members(module: str, name: str) -> tuple[str, ...]:
    """Public fields, properties and methods of a class of a module of ours, without importing it."""
    found = []
    for top in _module(f"{PACKAGE}.{module}").symbols[name]:
        for node in top.body if isinstance(top, ast.ClassDef) else ():
            if isinstance(node, ast.FunctionDef):
                found.append(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.append(node.target.id)
    return tuple(name for name in found if not name.startswith("_"))


def _parameters(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _annotated(parameter: ast.arg, of: str) -> bool:
    note = parameter.annotation
    return (isinstance(note, ast.Name) and note.id == of) or (isinstance(note, ast.Constant) and note.value == of)


def _renamed(function: ast.FunctionDef, names: set[str]) -> set[str]:
    """Other names that a function gives to a value of one of these names."""
    pairs = ((node.value, node.targets) for node in _walked(function) if isinstance(node, ast.Assign))
    return {
        target.id
        for value, targets in pairs
        for target in targets
        if isinstance(value, ast.Name) and value.id in names and isinstance(target, ast.Name)
    }


def _handed_on(function: ast.FunctionDef, names: set[str], to: dict[str, ast.FunctionDef]) -> Iterator[tuple[str, str]]:
    """(name of a function, its parameter) for every call that passes on a value of one of these names."""
    for node in _walked(function):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in to):
            continue
        called = to[node.func.id]
        places = [*called.args.posonlyargs, *called.args.args]
        given = [*zip((p.arg for p in places), node.args, strict=False), *((k.arg, k.value) for k in node.keywords)]
        for parameter, value in given:
            if parameter and isinstance(value, ast.Name) and value.id in names:
                yield called.name, parameter


def _attributes(function: ast.FunctionDef, names: set[str]) -> Iterator[str]:
    """Attributes that a function reads of the values of these names, by a dot or by getattr without a default."""
    for node in _walked(function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            match node.args:
                case [ast.Name(id=name), ast.Constant(value=str(attribute))] if name in names:
                    yield attribute


@lru_cache(None)
def attributes_read(module: str, function: str, of: str) -> tuple[str, ...]:
    """Attributes that a function of a module of ours reads on its first parameter, without importing the module.

    They include those that functions of the same module, as far as it reaches them, read on parameters annotated as the
    class `of` or given that parameter.
    """
    full, seen = f"{PACKAGE}.{module}", set[_Symbol]()
    _reach(full, function, (), seen)
    tops = [top for where, symbol in sorted(seen, key=str) if where == full and symbol for top in _nodes(full, symbol)]
    functions = {top.name: top for top in tops if isinstance(top, ast.FunctionDef)}
    names = {name: {p.arg for p in _parameters(top) if _annotated(p, of)} for name, top in functions.items()}
    names[function] |= {p.arg for p in _parameters(functions[function])[:1]}
    before: dict[str, set[str]] = {}
    while before != names:
        before = {name: set(own) for name, own in names.items()}
        for name, top in functions.items():
            names[name] |= _renamed(top, names[name])
            for called, parameter in _handed_on(top, names[name], functions):
                names[called].add(parameter)
    return tuple(sorted({read for name, top in functions.items() for read in _attributes(top, names[name])}))
