"""`armslength`: what needs no DAG. `armslength --help` lists the commands."""

import ast
import difflib
import errno
import importlib
import os
import pkgutil
import sys
from pathlib import Path

from workflow_scripts import commands, platforms

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
BROKEN_PIPE = 128 + 13  # what the shell says of a program that SIGPIPE ended

COMMANDS = tuple(module.name for module in pkgutil.iter_modules(commands.__path__))


def summary(name: str) -> str:
    """The first line of a command's docstring, without importing the module: "`armslength NAME`: what it does"."""
    (path,) = commands.__path__
    file = next(path for path in (Path(path, f"{name}.py"), Path(path, name, "__init__.py")) if path.is_file())
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].partition(": ")[2]


def usage() -> str:
    """One line per command."""
    return "usage: armslength COMMAND [--help]\n\n" + "\n".join(f"  {name:<10}{summary(name)}" for name in COMMANDS)


def _run() -> int:
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help", "help"):
        print(usage())
        return 0
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(COMMANDS)}"
        print(f"armslength: no command {name!r}; {hint}", file=sys.stderr)
        return 2
    return importlib.import_module(f"workflow_scripts.commands.{name}").main(arguments)


def main() -> int:
    """Run the command named first on the command line; its exit code."""
    if fault := platforms.fault():
        print(f"armslength: {fault}", file=sys.stderr)
        return 1
    try:
        try:
            return _run()
        finally:
            sys.stdout.flush()
    except OSError as error:  # whoever read the output has gone, as `head` does; or its disk is full
        if not isinstance(error, BrokenPipeError) and error.errno not in _UNWRITABLE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes again at its end
        if isinstance(error, BrokenPipeError):
            return BROKEN_PIPE
        print(f"armslength: {error.filename or 'the output'}: cannot be written: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
