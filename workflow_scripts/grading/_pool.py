"""The one connection of a process to its grading server: started when first needed, from any thread, closed at exit."""

import atexit
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from workflow_scripts import platforms
from workflow_scripts.grading import GraderError, _server

_START_SECONDS = 120.0
_MOST_WORKERS = 8
_SOURCE = """
import json, sys
path, size, limits = map(json.loads, sys.argv[1:])
sys.path[:] = path
from {0} import Limits, serve
serve(size, Limits(*limits))
"""
# One thread each; the same verdicts every time; and no GMP, which aborts the process where memory ends.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0",
    "SYMPY_GROUND_TYPES": "python", "MPMATH_NOGMPY": "1",
}  # fmt: skip


class _Gone(Exception):
    """The server ended or does not answer."""


class _Client:
    def __init__(self, limits: _server.Limits = _server.Limits()) -> None:  # noqa: B008
        self.lock = threading.Lock()
        self.server: subprocess.Popen[bytes] | None = None
        self.limits = limits
        self.workers = min(platforms.cores(), _MOST_WORKERS)

    def _start(self) -> None:
        source = _SOURCE.format(_server.serve.__module__)
        self.server = subprocess.Popen(
            [sys.executable, "-c", source, json.dumps(sys.path), str(self.workers), json.dumps(self.limits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # a Ctrl-C is for the parent to act on
            env={**os.environ, **_ENVIRONMENT},
        )
        self._line(_START_SECONDS)

    def _line(self, seconds: float) -> Any:
        """The server's next line, within so many seconds."""
        assert self.server is not None and self.server.stdout is not None
        heard = b""
        while not heard.endswith(b"\n"):
            if not select.select([self.server.stdout], [], [], seconds)[0]:
                raise _Gone(f"no answer in {seconds:.0f} seconds")
            more = os.read(self.server.stdout.fileno(), 1 << 20)
            if not more:
                raise _Gone(f"ended with code {self.server.wait()}")
            heard += more
        return json.loads(heard)

    def close(self) -> None:
        """Ends the server."""
        server, self.server = self.server, None
        if server is None:
            return
        assert server.stdin is not None and server.stdout is not None
        server.stdin.close()
        try:
            server.wait(timeout=2)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        server.stdout.close()

    def ask(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str | None]]:
        request = (json.dumps(list(pairs)) + "\n").encode()
        seconds = 60 + self.limits.wall_seconds * (1 + len(pairs) / self.workers)
        with self.lock:
            for last in (False, True):
                try:
                    if self.server is None:
                        self._start()
                    assert self.server is not None and self.server.stdin is not None
                    sent = memoryview(request)
                    while sent:
                        sent = sent[self.server.stdin.write(sent) :]
                    reply = self._line(seconds)
                    break
                except (_Gone, BrokenPipeError) as error:
                    self.close()
                    if last:
                        raise GraderError(f"the process that grades ended twice: {error}") from None
        if isinstance(reply, dict):
            raise GraderError(f"grading: {reply['dead']}")
        return [(status, value) for status, value in reply]


_client = _Client()


def _forget() -> None:
    """In a forked child: the server is the parent's; its pipes are closed here, so that it ends with the parent."""
    global _client
    server = _client.server
    if server is not None:
        for pipe in (server.stdin, server.stdout):
            assert pipe is not None
            os.close(pipe.fileno())
        server.returncode = 0  # nothing of the parent's to wait for
    _client = _Client()


def ask(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str | None]]:
    """Status and value of each pair of answer and reference answer, both tidy. GraderError: a worker died twice."""
    return _client.ask(pairs) if pairs else []


atexit.register(lambda: _client.close())
os.register_at_fork(after_in_child=_forget)
