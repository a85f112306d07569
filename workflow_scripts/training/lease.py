"""One writer at a time: a job holds the lease of a folder while it writes there; a second one waits for it.

Needed because Snakemake, killed and started again, submits a job that still runs on the cluster a second time. The
lease is the file with the highest number in the folder, made exclusively. Whether its holder lives is asked of the
kernel where that is the same one (a lock that dies with its process, but not while it is only stopped), else of its
heartbeat, judged by the watcher's own clock and by changes alone: clocks of two machines, and jumps of either, count
for nothing. A holder that was taken for dead and comes back finds a higher number, and writes nothing more.
"""

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflow_scripts.errors import UserError

BEAT_SECONDS = 10.0
DEAD_SECONDS = 60.0  # without a beat
POLL_SECONDS = 1.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class LeaseError(UserError):
    """The lease is another job's; its text says whose."""


def _kernel() -> str:
    """What two processes have in common whose locks the same kernel keeps."""
    with contextlib.suppress(OSError):
        return _BOOT.read_text(encoding="utf-8").strip()
    return socket.gethostname()


def _holder(content: bytes) -> dict[str, Any] | None:
    """What a lease file says; None while it is being written."""
    try:
        said = json.loads(content)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _named(content: bytes) -> str:
    """Who holds a lease, for people."""
    said = _holder(content) or {}
    job = f"Slurm job {said['job']}, " if said.get("job") else ""
    where = f"process {said.get('pid', '?')} on {said.get('host', 'an unknown machine')}"
    return f"{job}{where}, since {said.get('since', '?')}"


@dataclass(frozen=True)
class Lease:
    """A lease: its folder, its number there, and a word that no other one has."""

    folder: Path
    number: int
    token: str = ""

    @property
    def file(self) -> Path:
        """What names the holder, and beats."""
        return self.folder / f"lease-{self.number:06}"

    def check(self) -> None:
        """Raises LeaseError unless this lease still holds. To be asked before anything is put in its place."""
        newest = Lease(self.folder, max(numbers(self.folder), default=self.number))
        content = b""
        with contextlib.suppress(FileNotFoundError):
            content = newest.file.read_bytes()
        if newest.number == self.number and (_holder(content) or {}).get("token") == self.token:
            return
        if _holder(content) is None:
            raise LeaseError(f"{self.file} is gone or damaged: nothing tells whose turn it is")
        by = _named(content)
        raise LeaseError(
            f"{self.folder} was taken over by {by}: this job had not been heard of for {DEAD_SECONDS:.0f} s"
        )

    def share(self) -> None:
        """In another process of the same job: the lease lasts at least as long as this process."""
        with contextlib.suppress(OSError):  # a file system without locks; closed by the end of the process
            fcntl.flock(os.open(self.file, os.O_RDWR), fcntl.LOCK_SH)

    def look(self) -> tuple[bytes, bool | None]:
        """What the file says, and whether its holder lives, if the kernel knows. Raises FileNotFoundError when it is
        gone."""
        file = os.open(self.file, os.O_RDWR)
        try:
            free = True
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                free = False
            except OSError:  # a file system without locks
                return os.pread(file, 4096, 0), None
            content = os.pread(file, 4096, 0)
            here = (_holder(content) or {}).get("kernel") == _kernel()  # written after the lock was taken
            return content, (not free) if here else None
        finally:
            os.close(file)

    def wait(self, say: Callable[[str], None]) -> bytes | None:
        """Until the holder has let go, or is dead: then what its lease said last."""
        seen, since, said = b"", time.monotonic(), False
        while True:
            asked = time.monotonic()
            try:
                content, alive = self.look()
            except FileNotFoundError:
                return None
            since += max(0.0, time.monotonic() - asked - POLL_SECONDS)  # a file server that stood still is no silence
            if alive is False:
                say(f"takes over from {_named(content)}, which has died")
                return content
            if content != seen or alive:
                seen, since = content, time.monotonic()
            elif time.monotonic() - since > DEAD_SECONDS:
                say(f"takes over from {_named(content)}, of which nothing was heard for {DEAD_SECONDS:.0f} s")
                return content
            if not said:
                say(f"waits for {_named(content)}, which works on the same")
                said = True
            time.sleep(POLL_SECONDS)


def numbers(folder: Path) -> list[int]:
    """Of all leases in a folder, of the living and the dead."""
    found = [re.fullmatch(r"lease-(\d+)", path.name) for path in folder.glob("lease-*")]
    return [int(match[1]) for match in found if match]


def _content(lease: Lease) -> bytes | None:
    with contextlib.suppress(FileNotFoundError):
        return lease.file.read_bytes()
    return None


def _take(folder: Path, say: Callable[[str], None]) -> tuple[Lease, int, dict[str, Any]]:
    """A new lease, its locked file, and what that says."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        dead = {number: Lease(folder, number).wait(say) for number in sorted(numbers(folder))}
        if None in dead.values():  # one has let go: whoever has come since comes first
            continue
        token = uuid.uuid4().hex
        lease = Lease(folder, max(dead, default=0) + 1, token)
        try:
            file = os.open(lease.file, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except (FileExistsError, FileNotFoundError):  # another one was faster; or has just removed the empty folder
            time.sleep(POLL_SECONDS / 10)
            continue
        try:
            said = _claimed(lease, file, dead)
        except BaseException:  # a full disk, a signal: the next one must not find a lease of nobody
            _let_go(lease, file)
            raise
        if said:
            return lease, file, said
        _let_go(lease, file)  # this one stood still between looking and making, and the work was taken meanwhile
        time.sleep(POLL_SECONDS)


def _claimed(lease: Lease, file: int, dead: dict[int, bytes | None]) -> dict[str, Any] | None:
    """Lock and write a lease that was just made, and remove those of the dead; None where there is another one."""
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_SH)
    said = {
        "host": socket.gethostname(), "pid": os.getpid(), "kernel": _kernel(), "token": lease.token,
        "job": os.environ.get("SLURM_JOB_ID"), "since": time.strftime("%Y-%m-%d %H:%M"), "beat": 0,
    }  # fmt: skip
    _beat(file, said)
    others = [Lease(lease.folder, number) for number in numbers(lease.folder) if number != lease.number]
    if any(_content(other) not in (dead.get(other.number), None) for other in others):
        return None
    for other in others:
        other.file.unlink(missing_ok=True)
    return said


def _let_go(lease: Lease, file: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(file), os.stat(lease.file)):  # not one of the same number made since
            lease.file.unlink()
    os.close(file)
    with contextlib.suppress(OSError):  # where there is a state, or another one waits
        lease.folder.rmdir()


def _beat(file: int, said: dict[str, Any]) -> None:
    os.pwrite(file, f"{json.dumps(said)}\n".encode(), 0)  # in place: another file would be another lock
    os.fsync(file)


@contextlib.contextmanager
def held(folder: Path, say: Callable[[str], None]) -> Iterator[Lease]:
    """Hold the lease of a folder. say: gets one line when there is somebody to wait for, or to take over from.

    Raises LeaseError when SIGTERM comes while waiting.
    """
    waits_for = ""

    def heard(text: str) -> None:
        nonlocal waits_for
        waits_for = text
        say(text)

    def terminated(number: int, frame: Any) -> None:
        raise LeaseError(f"terminated before its turn; {waits_for}" if waits_for else "terminated")

    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, terminated) if in_main else None
    try:
        lease, file, said = _take(folder, heard)
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, before)
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            said["beat"] += 1
            with contextlib.suppress(OSError):  # the next one may get through
                _beat(file, said)

    beating = threading.Thread(target=beat, name="lease", daemon=True)
    beating.start()
    try:
        yield lease
    finally:
        ended.set()
        beating.join()
        _let_go(lease, file)
