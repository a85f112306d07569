"""The process that compares answers with math-verify, and its workers.

One process imports sympy and forks workers from itself, so that a killed worker is replaced in milliseconds; it runs
no thread, so forking is safe. It reads a request a line from its input and ends when that is closed, also by a parent
that was killed; its workers end with it.
"""

import json
import logging
import os
import resource
import selectors
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import psutil

_LOOK_SECONDS = 0.25  # between two looks at what the workers take
_TYPICAL = (
    "2\\sqrt{3}", "\\frac{\\pi}{6}+1", "x^{2}-3x+2", "(x+1)(x-2)", "\\sin^{2} x", "\\log_{2} 3", "-\\frac{a+b}{2}",
    "\\binom{n}{2}", "e^{2x}", "2+3i", "|x-1|", "n!", "\\begin{pmatrix} 1 & \\frac{1}{2} \\\\ -3 & x \\end{pmatrix}",
    "1<x<2", "y=2x+3",
)  # fmt: skip


class Limits(NamedTuple):
    """Of one answer. cpu_seconds: processor time, so that a busy machine changes no verdict. wall_seconds: from
    outside, whatever a worker does. memory_bytes: of a worker's address space, or of what it holds in memory where the
    system limits no address space (macOS)."""

    cpu_seconds: float = 2.0
    wall_seconds: float = 20.0
    memory_bytes: int = 2 << 30


class _Dead(Exception):
    """A worker ended twice on the same pair, and not by a limit."""


def compare(said: str, gold: str) -> tuple[str, str | None]:
    """Status of an answer, in tidy LaTeX as is the reference answer, and its value if that is a rational number."""
    from sympy import Rational

    from workflow_scripts.grading.math_answer.equality import equal
    from workflow_scripts.grading.math_answer.expression import Unreadable
    from workflow_scripts.grading.math_answer.reading import Scalar, read

    try:
        reference = _reference(gold)
        answer = read(said)
    except (Unreadable, RecursionError):
        return "unparsed", None
    found = equal(reference, answer)
    if not found and "," in said:  # 100,200 for 100, 200
        try:
            found = equal(reference, read(said, thousands=False)) and ", " in gold
        except Unreadable:
            found = False
    value = answer.expr if isinstance(answer, Scalar) and isinstance(answer.expr, Rational) else None
    return "correct" if found else "wrong", None if value is None or answer.percent else str(value)


@lru_cache(1024)
def _reference(gold: str) -> Any:
    from workflow_scripts.grading.math_answer.reading import read

    return read(gold, reference=True)


def _limit(kind: int, most: int) -> None:
    """Sets a limit of this process, or leaves the lower one that it has. macOS refuses one of the address space."""
    with suppress(ValueError, OSError):
        hard = resource.getrlimit(kind)[1]
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (allowed, allowed))


def _resident(process: int) -> int:
    """Bytes that a process holds in memory; 0 if it has ended."""
    with suppress(psutil.Error):
        return int(psutil.Process(process).memory_info().rss)
    return 0


def _work(requests: int, replies: int, limits: Limits) -> None:
    """A worker: a line with a pair in, a line with a verdict out, until its input is closed or a limit ends it."""
    _limit(resource.RLIMIT_AS, limits.memory_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with os.fdopen(requests, encoding="utf-8") as lines, os.fdopen(replies, "w", encoding="utf-8") as answers:
        for line in lines:
            signal.setitimer(signal.ITIMER_PROF, limits.cpu_seconds)
            try:
                reply = compare(*json.loads(line))
            except Exception:  # out of memory or stack, or a fault in a library: no verdict, and said to be none
                reply = "timeout", None
            signal.setitimer(signal.ITIMER_PROF, 0)
            answers.write(json.dumps(reply) + "\n")
            answers.flush()


@dataclass
class _Worker:
    process: int
    requests: int
    replies: int
    row: int = -1  # what it works on
    since: float = 0.0
    heard: bytes = field(default=b"")


class _Pool:
    def __init__(self, size: int, limits: Limits) -> None:
        self.size, self.limits = size, limits
        self.workers: list[_Worker] = []

    def start(self) -> _Worker:
        request_read, request_write = os.pipe()
        reply_read, reply_write = os.pipe()
        process = os.fork()
        if not process:
            try:
                for other in self.workers:
                    os.close(other.requests)
                    os.close(other.replies)
                os.close(request_write)
                os.close(reply_read)
                os.close(0)
                os.close(1)
                _work(request_read, reply_write, self.limits)
            finally:
                os._exit(1)
        os.close(request_read)
        os.close(reply_write)
        self.workers.append(_Worker(process, request_write, reply_read))
        return self.workers[-1]

    def end(self, worker: _Worker) -> int:
        """Kills a worker; the signal that it had ended by, if it had."""
        os.close(worker.requests)
        os.close(worker.replies)
        self.workers.remove(worker)
        done, status = os.waitpid(worker.process, os.WNOHANG)
        if not done:
            os.kill(worker.process, signal.SIGKILL)
            _, status = os.waitpid(worker.process, 0)
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

    def _exceeds(self, worker: _Worker) -> bool:
        """Whether a worker is beyond a limit that it may not be ended by itself."""
        seconds = time.monotonic() - worker.since
        if seconds < _LOOK_SECONDS:
            return False
        return seconds > self.limits.wall_seconds or _resident(worker.process) > self.limits.memory_bytes

    def close(self) -> None:
        for worker in list(self.workers):
            self.end(worker)

    def grade(self, pairs: list[tuple[str, str]]) -> list[tuple[str, str | None]]:
        """Verdicts on pairs, each within its limits. _Dead: a worker ended twice, by no limit, on one of them."""
        verdicts: list[tuple[str, str | None]] = [("", None)] * len(pairs)
        waiting = list(range(len(pairs)))[::-1]
        retried: set[int] = set()
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            for worker in self.workers:
                selector.register(worker.replies, selectors.EVENT_READ, worker)
            while waiting or any(worker.row >= 0 for worker in self.workers):
                while len(self.workers) < min(self.size, len(waiting) + sum(w.row >= 0 for w in self.workers)):
                    worker = self.start()
                    selector.register(worker.replies, selectors.EVENT_READ, worker)
                for worker in self.workers:
                    if worker.row < 0 and waiting:
                        worker.row, worker.since = waiting.pop(), time.monotonic()
                        with suppress(BrokenPipeError):  # it died idle: its end is heard below
                            os.write(worker.requests, (json.dumps(pairs[worker.row]) + "\n").encode())
                events = selector.select(timeout=_LOOK_SECONDS)
                for worker in [w for w in self.workers if w.row >= 0 and self._exceeds(w)]:
                    verdicts[worker.row] = "timeout", None
                    selector.unregister(worker.replies)
                    self.end(worker)
                for key, _ in events:
                    if key.data is None:  # the parent is gone
                        self.close()
                        sys.exit()
                    if key.data in self.workers:
                        self._hear(key.data, verdicts, waiting, retried, selector)
        return verdicts

    def _hear(
        self,
        worker: _Worker,
        verdicts: list[tuple[str, str | None]],
        waiting: list[int],
        retried: set[int],
        selector: selectors.BaseSelector,
    ) -> None:
        heard = os.read(worker.replies, 1 << 16)
        worker.heard += heard
        if worker.heard.endswith(b"\n"):
            verdicts[worker.row] = tuple(json.loads(worker.heard))
            worker.row, worker.heard = -1, b""
        elif not heard:
            row = worker.row
            selector.unregister(worker.replies)
            ended_by = self.end(worker)
            if row < 0:
                return
            if ended_by == signal.SIGPROF:
                verdicts[row] = "timeout", None
            elif row in retried:
                raise _Dead(f"a worker ended twice by signal {ended_by}")
            else:
                retried.add(row)
                waiting.append(row)


def serve(size: int, limits: Limits) -> None:
    """Answers requests, a JSON list of pairs a line, until the input is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)
    for text in _TYPICAL:  # imports, and tables that the parser and sympy fill as they go: once for all workers
        compare(text, text + "+0")
    pool = _Pool(size, limits)
    out = sys.stdout
    out.write('"ready"\n')
    out.flush()
    buffered = b""
    while True:
        while not buffered.endswith(b"\n"):
            more = os.read(0, 1 << 20)
            if not more:
                return
            buffered += more
        line, buffered = buffered, b""
        try:
            reply: object = pool.grade(json.loads(line))
        except _Dead as error:
            reply = {"dead": str(error)}
            pool.close()
        try:
            out.write(json.dumps(reply) + "\n")
            out.flush()
        except BrokenPipeError:
            os._exit(0)
