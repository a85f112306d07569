"""`armslength`: what needs no DAG. `armslength --help` lists the commands."""

import difflib
import errno
import importlib
import os
import sys

from workflow_scripts import platforms

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
BROKEN_PIPE = 128 + 13  # what the shell says of a program that SIGPIPE ended

COMMANDS = {
    "plan": "what the study would train and sample, and what exists already",
    "status": "where each run stands, read from the files alone",
    "selftest": "check the clip rules and the statistics on worked examples: seconds, offline, no model",
    "audit": "could the clip of a TRL run (trainer_state.json) bind, and did it",
    "compare": "the report's verdicts for results made elsewhere: a table, logs of lm-eval or lighteval",
    "simulate": "simulated studies with a known truth: do intervals and verdicts keep their word",
    "adopt": "take over results of unknown history (a fresh clone with cached parquet) where they prove to be current",
    "unlock": "let a study go on after its Snakemake was killed",
    "schema": "write the JSON schema of the study file for editors",
}


def usage() -> str:
    """One line per command."""
    return "usage: armslength COMMAND [--help]\n\n" + "\n".join(
        f"  {name:<10}{text}" for name, text in COMMANDS.items()
    )


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
