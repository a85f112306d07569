"""Where this project runs: which platforms it supports, and how many cores a process has there.

Imports nothing but the standard library and keeps to syntax that Python 3.6 reads, so that a Python or a platform that
is not supported is refused in one line: `python -m workflow_scripts.platforms`, which the Makefile asks before set-up.
"""

import os
import platform
import sys
import sysconfig

SUPPORTED = (
    "CPython 3.11, 3.12 or 3.13 on Linux (x86_64 or aarch64, glibc 2.28 or newer) or on macOS 14 or newer with Apple "
    "silicon"
)
_FIRST, _LAST = (3, 11), (3, 13)
_GLIBC = (2, 28)
_MACOS = 14


def fault() -> str:
    """One line that says why this project cannot run here, or nothing."""
    systems = {sys.platform.lower(), platform.system().lower()}
    machine = platform.machine().lower()
    said = ""
    if any(name.startswith(("win", "cygwin", "msys", "mingw")) for name in systems):
        said = "Windows is not supported. Use WSL, the Windows Subsystem for Linux"
    elif "darwin" in systems:
        release = platform.mac_ver()[0].partition(".")[0]
        if machine != "arm64":
            said = (
                f"macOS on {machine} is not supported, because PyTorch no longer supports Intel Macs. "
                "On Apple silicon, use a Python built for arm64"
            )
        elif release.isdigit() and int(release) < _MACOS:
            said = f"macOS {release} is not supported"
    elif systems != {"linux"}:
        said = f"{platform.system()} is not supported"
    elif machine not in ("x86_64", "amd64", "aarch64", "arm64"):
        said = f"Linux on {machine} is not supported"
    elif _glibc() < _GLIBC:
        has = "glibc " + ".".join(map(str, _glibc())) if any(_glibc()) else "a C library other than glibc"
        said = f"Linux with {has} is not supported"
    if not said:
        said = _python_fault()
    return f"{said}. Supported: {SUPPORTED}." if said else ""


def _python_fault() -> str:
    version = ".".join(map(str, sys.version_info[:2]))
    choose = "Choose another with make PYTHON=/path/to/python3.11"
    if platform.python_implementation() != "CPython":
        return f"{platform.python_implementation()} {version} is not supported. {choose}"
    if not _FIRST <= tuple(sys.version_info[:2]) <= _LAST:
        return f"Python {version} is not supported. {choose}"
    if sys.maxsize < 2**32:
        return f"A Python {version} of 32 bits is not supported. {choose}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return f"The free-threaded build of Python {version} is not supported. {choose}"
    return ""


def _glibc() -> tuple:  # Python 3.8 cannot read tuple[int, int]
    """Version of the C library if it is glibc, else (0, 0)."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):
        return (0, 0)
    numbers = version.split(".")[:2]
    return tuple(map(int, numbers)) if name == "glibc" and all(part.isdigit() for part in numbers) else (0, 0)


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux, not macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if __name__ == "__main__":
    sys.exit("armslength: " + fault() if fault() else 0)
