"""Platforms: what is refused, and macOS as far as Linux can play it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from copies import copied, environment

from workflow_scripts import platforms

ROOT = Path(__file__).parents[2]
STUDY = yaml.safe_load("""
study: small
model: {source: embedded}
data: {train: {benchmark: word_problems, split: train, rows: 100, seed: 7}}
rollout: {prompts: 4, group_size: 4, max_completion: 16}
training: {steps: 4, learning_rate: 3.0e-4}
arms:
  fixed: {preset: gspo_asym, eps_low: 3.0e-3, eps_high: 5.0e-3}
  gapo: {preset: gapo_seq, eps_low: 3.0e-3, eps_high_max: 5.0e-3}
baseline: fixed
seeds: 2
evaluation:
  {benchmarks: [word_problems_test], problems: 10, samples: 2, pass_at: [1], max_completion: 16, base_repeats: 2}
""")
# What Python has on macOS with Apple silicon and not on Linux, and the other way round; in every process, as Python
# imports it at its start. sys.platform stays, since the libraries installed here choose their own files by it.
MACOS = """
import builtins, io, multiprocessing, os, pathlib, platform, resource, sys

if hasattr(os, "sched_getaffinity"):
    del os.sched_getaffinity, os.sched_setaffinity
for name in ("posix_fadvise", "posix_fallocate", "memfd_create", "pidfd_open", "eventfd", "copy_file_range", "splice"):
    if hasattr(os, name):
        delattr(os, name)

set_limit, read = resource.setrlimit, io.open


def setrlimit(kind, limits):
    if kind == resource.RLIMIT_AS:
        raise ValueError("current limit exceeds maximum limit")
    set_limit(kind, limits)


def open_(file, *arguments, **named):
    caller = sys._getframe(1).f_globals.get("__name__", "")
    if str(file).startswith(("/proc/", "/sys/")) and not caller.startswith("psutil"):
        raise FileNotFoundError(2, "No such file or directory", str(file))
    return read(file, *arguments, **named)


resource.setrlimit = setrlimit
builtins.open = io.open = open_

for name, value in (("system", "Darwin"), ("machine", "arm64"), ("mac_ver", ("14.5", ("", "", ""), "arm64"))):

    def said(value=value, known=getattr(platform, name)):  # torch would look for its libraries of macOS
        ours = sys._getframe(1).f_globals.get("__name__", "").startswith("workflow_scripts")
        return value if ours else known()

    setattr(platform, name, said)
multiprocessing.set_start_method("spawn", force=True)
"""


@pytest.fixture
def macos(tmp_path: Path) -> dict[str, str]:
    """Environment variables under which every Python takes itself for one on macOS."""
    (tmp_path / "macos").mkdir()
    (tmp_path / "macos" / "sitecustomize.py").write_text(MACOS, encoding="utf-8")
    return {"PYTHONPATH": str(tmp_path / "macos")}


def python(code: str, variables: dict[str, str]) -> str:
    """What a program of this package prints, in another Python."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


# ---- What is refused ------------------------------------------------------------------------------------------------


def fault(
    monkeypatch: pytest.MonkeyPatch,
    system: str = "Linux",
    machine: str = "x86_64",
    version: tuple[int, int] = (3, 11),
    glibc: str = "glibc 2.36",
    macos: str = "",
    implementation: str = "CPython",
) -> str:
    names = {"Linux": "linux", "Darwin": "darwin", "Windows": "win32", "FreeBSD": "freebsd14"}
    monkeypatch.setattr(sys, "platform", names[system])
    monkeypatch.setattr(sys, "version_info", (*version, 1, "final", 0))
    monkeypatch.setattr(platforms.platform, "system", lambda: system)
    monkeypatch.setattr(platforms.platform, "machine", lambda: machine)
    monkeypatch.setattr(platforms.platform, "mac_ver", lambda: (macos, ("", "", ""), machine))
    monkeypatch.setattr(platforms.platform, "python_implementation", lambda: implementation)
    monkeypatch.setattr(os, "confstr", lambda name: glibc)
    said = platforms.fault()
    monkeypatch.undo()
    return said


@pytest.mark.parametrize(
    "here",
    [
        {},
        {"machine": "aarch64"},
        {"version": (3, 12)},
        {"version": (3, 13)},
        {"glibc": "glibc 2.28"},
        {"system": "Darwin", "machine": "arm64", "macos": "14.0"},
        {"system": "Darwin", "machine": "arm64", "macos": "26.1", "version": (3, 13)},
    ],
    ids=str,
)
def test_supported(monkeypatch: pytest.MonkeyPatch, here: dict) -> None:
    assert fault(monkeypatch, **here) == ""


@pytest.mark.parametrize(
    ("here", "words"),
    [
        ({"system": "Windows", "machine": "AMD64"}, "Windows is not supported. Use WSL"),
        ({"system": "Darwin", "machine": "x86_64", "macos": "15.1"}, "macOS on x86_64 is not supported"),
        ({"system": "Darwin", "machine": "arm64", "macos": "13.6"}, "macOS 13 is not supported"),
        ({"system": "FreeBSD"}, "FreeBSD is not supported"),
        ({"machine": "ppc64le"}, "Linux on ppc64le is not supported"),
        ({"machine": "armv7l"}, "Linux on armv7l is not supported"),
        ({"glibc": "glibc 2.17"}, "Linux with glibc 2.17 is not supported"),
        ({"glibc": ""}, "Linux with a C library other than glibc is not supported"),
        ({"version": (3, 10)}, "Python 3.10 is not supported. Choose another with make PYTHON="),
        ({"version": (3, 14)}, "Python 3.14 is not supported. Choose another with make PYTHON="),
        ({"version": (3, 14), "system": "Darwin", "machine": "arm64", "macos": "15.0"}, "Python 3.14 is not supported"),
        ({"implementation": "PyPy"}, "PyPy 3.11 is not supported"),
    ],
    ids=str,
)
def test_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, here: dict, words: str) -> None:
    said = fault(monkeypatch, **here)
    assert said.startswith(words) and said.endswith(f"Supported: {platforms.SUPPORTED}.") and "\n" not in said


INTEL = 'import platform; platform.system, platform.machine = lambda: "Darwin", lambda: "x86_64"'


@pytest.mark.parametrize("command", [["-m", "workflow_scripts", "plan"], ["-m", "snakemake", "-n", "--cores", "1"]])
def test_commands_and_the_snakefile_refuse_in_one_line(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTEL)
    known = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=known, capture_output=True, text=True)
    assert done.returncode == 1
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("armslength: macOS on x86_64 is not supported") and "Traceback" not in done.stderr


def test_old_pythons_can_read_what_refuses_them() -> None:
    """Syntax of Python 3.6 alone, as far as this Python's parser can tell."""
    import ast

    for file in ("__init__", "platforms"):
        text = (ROOT / "workflow_scripts" / f"{file}.py").read_text(encoding="utf-8")
        tree = ast.parse(text, feature_version=(3, 6))
        annotations = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AnnAssign))]
        assert not [n for n in annotations if isinstance(getattr(n, "returns", None), (ast.Subscript, ast.BinOp))]


# ---- macOS ----------------------------------------------------------------------------------------------------------


def test_cores_and_memory_without_an_affinity(macos: dict[str, str]) -> None:
    code = (
        "import os; from workflow_scripts import platforms; from workflow_scripts.sampling import memory;"
        "assert not hasattr(os, 'sched_getaffinity') and platforms.fault() == '';"
        "print(platforms.cores(), memory._control_group_limit(), memory.machine_bytes(1))"
    )
    cores, group, share = map(int, python(code, macos).split())
    assert cores == os.cpu_count() and group == 0
    assert share == psutil.virtual_memory().total // cores


def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert platforms.cores() == len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2, 5})
    assert platforms.cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert platforms.cores() == 1


def test_nothing_asks_for_cores_in_another_way() -> None:
    for file in [*(ROOT / "workflow_scripts").rglob("*.py"), *(ROOT / "rules").glob("*.smk")]:
        text = file.read_text(encoding="utf-8")
        assert file.name == "platforms.py" or not any(
            name in text for name in ("sched_getaffinity", "cpu_count", "posix_fadvise", "prctl")
        ), file


def test_answers_are_graded_within_limits_where_the_address_space_has_none(macos: dict[str, str]) -> None:
    """The pool ends a worker that holds too much memory, long before its processor time is over."""
    code = (
        "from workflow_scripts.grading import _pool, _server\n"
        "client = _pool._Client(_server.Limits(cpu_seconds=60.0, wall_seconds=60.0, memory_bytes=400 << 20))\n"
        r"pairs = [('\\frac{1}{2}', '0.5'), ('\\lfloor 2^{2^{34}}\\rfloor+\\sqrt{2}', '7'), ('x', 'y')]"
        "\nprint([status for status, value in client.ask(pairs)])\n"
        "client.close()"
    )
    start = time.monotonic()
    assert python(code, macos) == "['correct', 'timeout', 'wrong']"
    assert time.monotonic() - start < 30


def test_a_lower_limit_of_the_user_stays(tmp_path: Path) -> None:
    """Under `ulimit -v`, whose hard limit no process but root's may raise."""
    code = (
        "import resource; from workflow_scripts.grading import _server;"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30));"
        "_server._limit(resource.RLIMIT_AS, 2 << 30); print(resource.getrlimit(resource.RLIMIT_AS))"
    )
    assert python(code, {}) == str((1 << 30, 1 << 30))


def test_one_writer_at_a_time_where_nothing_names_the_kernel(macos: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from workflow_scripts.training import lease\n"
        "lease.POLL_SECONDS = 0.05\n"
        "assert lease._kernel() == lease.socket.gethostname()\n"
        "with lease.held(Path('run'), print) as held:\n"
        "    held.check(); print('has', held.number, flush=True); sys.stdin.readline()\n"
    )
    command, known = [sys.executable, "-c", code], os.environ | macos | {"PYTHONPATH": f"{macos['PYTHONPATH']}:{ROOT}"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": tmp_path, "env": known}
    with subprocess.Popen(command, **pipes) as first, subprocess.Popen(command, **pipes) as second:  # type: ignore[call-overload]
        lines = {}
        while len(lines) < 2:
            for process in (first, second):
                lines.setdefault(process, process.stdout.readline())
        holder, waiter = sorted((first, second), key=lambda process: not lines[process].startswith("has"))
        assert lines[holder] == "has 1\n" and lines[waiter].startswith("waits for process")
        holder.kill()  # the kernel takes its lock
        assert waiter.stdout.readline().startswith("takes over from process")
        assert waiter.stdout.readline() == "has 2\n"
        waiter.communicate("\n")
        assert waiter.returncode == 0


@pytest.mark.slow
def test_a_study_runs_on_macos_as_far_as_linux_can_play_it(macos: dict[str, str], tmp_path: Path) -> None:
    """All stages: a model is made, trained in two processes, sampled, graded and reported."""
    copy = copied(tmp_path / "copy")
    study = STUDY | {"compute": {"processes": 2}}
    (copy.root / "config.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--quiet", "all"]
    done = subprocess.run(command, cwd=copy.root, env=environment() | macos, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (copy.root / "results" / "small" / "report.html").is_file()
