"""Platforms, set-up and homes: what is refused, what heals by itself, and macOS as far as Linux can play it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import yaml
from copies import Copy, copied, environment, instant

from workflow_scripts import home, platforms

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


# ---- The virtual environment ----------------------------------------------------------------------------------------

MAKE = shutil.which("make")
FILES = 1000  # of the one package in the lock


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What the Makefile reads, with a lock of one package, a wheel in a folder beside it."""
    if MAKE is None:
        pytest.skip("make is not installed here")
    root = tmp_path / "project"
    (root / "envs").mkdir(parents=True)
    shutil.copytree(ROOT / "workflow_scripts", root / "workflow_scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    write_wheel(tmp_path)
    (root / "envs" / "requirements.lock").write_text(f"--no-index\n--find-links {tmp_path}\nstub==1.0\n")
    # the package itself is installed in place, which asks an index for setuptools
    (root / "pip.sh").write_text('case "$*" in *--editable*) ;; *) exec .venv/bin/python -m pip "$@" ;; esac\n')
    return root


def write_wheel(folder: Path) -> None:
    info = "stub-1.0.dist-info"
    files = {  # metadata first: a package that is only half there already looks installed
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: stub\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **{f"stub/part{number}.py": f"number = {number}\n" for number in range(FILES)},
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / "stub-1.0-py3-none-any.whl", "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)


def set_up(project: Path, **variables: str) -> subprocess.Popen[str]:
    """`make .venv/installed`, with the Python of these tests as python3."""
    command = [str(MAKE), "PIP=sh pip.sh --disable-pip-version-check --quiet --no-cache-dir", ".venv/installed"]
    known = {name: value for name, value in environment().items() if not name.startswith("MAKE")}
    return subprocess.Popen(
        command, cwd=project, env=known | variables, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore SIGINT
    )  # fmt: skip


def packages(project: Path) -> Path:
    (folder,) = (project / ".venv" / "lib").glob("python*/site-packages")
    return folder


def makes_whole(project: Path) -> None:
    """The next `make` sets up what the last one left, and the one after that has nothing to do."""
    process = set_up(project)
    _, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    subprocess.run([project / ".venv/bin/python", "-m", "pip", "--version"], check=True, capture_output=True)
    assert (project / ".venv/bin/activate").is_file()
    assert len(list((packages(project) / "stub").glob("part*.py"))) == FILES
    assert (packages(project) / "stub-1.0.dist-info" / "INSTALLER").is_file()
    assert "up to date" in set_up(project).communicate()[0]


def interrupt(project: Path, moment: Callable[[float], bool], number: signal.Signals) -> None:
    """Start the set-up and send all its processes a signal, as Ctrl-C would; moment: is it time, after so many
    seconds?"""
    start = time.monotonic()
    process = set_up(project)
    while process.poll() is None and not moment(time.monotonic() - start):
        time.sleep(0.01)
    assert process.poll() is None, "the set-up has ended before it could be interrupted"
    os.killpg(process.pid, number)
    process.communicate()
    assert not (project / ".venv" / "installed").exists()


SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)


@pytest.mark.slow
@SIGNALS
@pytest.mark.parametrize("seconds", [0.3, 1.0, 2.0])
def test_an_interrupted_set_up_heals(project: Path, seconds: float, number: signal.Signals) -> None:
    interrupt(project, lambda since: since > seconds, number)
    makes_whole(project)


@pytest.mark.slow
@SIGNALS
@pytest.mark.parametrize("begun", ["pip/_vendor", "stub/part1*"])
def test_a_package_that_is_only_half_there_is_installed_again(
    project: Path, begun: str, number: signal.Signals
) -> None:
    interrupt(project, lambda since: any(project.glob(f".venv/lib/python*/site-packages/{begun}")), number)
    makes_whole(project)


@pytest.mark.slow
def test_a_damaged_environment_heals(project: Path) -> None:
    (project / ".venv").mkdir()
    makes_whole(project)
    (project / ".venv" / "installed").unlink()  # a Ctrl-C under an older Makefile: Python without pip
    for path in packages(project).glob("pip*"):
        shutil.rmtree(path)
    makes_whole(project)
    (project / ".venv" / "installed").unlink()  # a Ctrl-C while it was cleared
    (project / ".venv" / "pyvenv.cfg").unlink()
    shutil.rmtree(project / ".venv" / "lib")
    makes_whole(project)
    for link in (project / ".venv" / "bin").glob("python*"):  # its Python was removed from the machine
        link.unlink()
        link.symlink_to("/nowhere/python3")
    makes_whole(project)


def test_an_unsupported_python_is_refused_before_set_up(project: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTEL)
    process = set_up(project, PYTHONPATH=str(tmp_path))
    said, errors = process.communicate()
    assert process.returncode and errors.startswith("armslength: macOS on x86_64 is not supported")
    assert "Setting up" not in said and not (project / ".venv").exists()


# ---- The home directory ---------------------------------------------------------------------------------------------


def variables(monkeypatch: pytest.MonkeyPatch, folder: Path, **known: str) -> dict[str, str]:
    """What is to be set in a folder, with these variables alone."""
    monkeypatch.chdir(folder)
    for name in ("HOME", "XDG_CACHE_HOME", "HF_HOME", "TRITON_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    return home.variables()


def test_a_home_that_serves_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert variables(monkeypatch, tmp_path, HOME=str(tmp_path)) == {}
    assert (tmp_path / ".cache").is_dir() and not (tmp_path / ".snakemake").exists()
    assert variables(monkeypatch, tmp_path, HOME="/dev/null", XDG_CACHE_HOME=str(tmp_path / "mine")) == {}


@pytest.mark.parametrize("place", ["/dev/null", "/proc/nonexistent", "/dev/null/x", "relative"])
def test_caches_of_our_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str) -> None:
    ours = tmp_path / ".snakemake" / "home"
    wanted = {"HOME": str(ours), "TRITON_HOME": str(ours), "XDG_CACHE_HOME": str(ours / ".cache")}
    assert variables(monkeypatch, tmp_path, HOME=place) == wanted
    assert variables(monkeypatch, tmp_path, HOME=str(tmp_path), XDG_CACHE_HOME=place).keys() == {
        "TRITON_HOME",
        "XDG_CACHE_HOME",
    }
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)
    assert home.variables() == {}  # in a job that Snakemake has started


def test_models_in_a_home_that_can_only_be_read_stay_in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    models = tmp_path / "home" / ".cache" / "huggingface"
    models.mkdir(parents=True)
    monkeypatch.setattr(home, "_can_be_written", lambda folder: False)
    known = {"HOME": str(tmp_path / "home"), "TRITON_HOME": "/scratch"}
    assert variables(monkeypatch, tmp_path, **known) == {
        "HF_HOME": str(models),
        "XDG_CACHE_HOME": str(tmp_path / ".snakemake" / "home" / ".cache"),
    }


def test_the_shell_is_told_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "it's here").mkdir()
    command = f'eval "$({sys.executable} -m workflow_scripts.home)"; echo "$HOME"'
    known = os.environ | {"HOME": "/dev/null", "PYTHONPATH": str(ROOT)}
    known.pop("XDG_CACHE_HOME", None)
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path / "it's here", env=known, capture_output=True, text=True)
    assert done.stdout.strip() == str(tmp_path / "it's here" / ".snakemake" / "home"), done.stderr


STRANGER = 54321  # a user without a name and a home, as a container may have one
# the Python of this machine may lie in a folder that only root can read
AS_STRANGER = (
    *("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)


@pytest.fixture
def homeless(tmp_path: Path) -> Copy:
    """A copy of the repository with instant stages."""
    return instant(tmp_path / "copy")


def starts(copy: Copy, place: str | None, *, by_make: bool, user: tuple[str, ...] = ()) -> None:
    """Snakemake makes a table with this HOME, started as `make run` starts it or by itself."""
    table = copy.root / "results" / "tiny" / "data" / "candidates.parquet"
    table.unlink(missing_ok=True)
    command = f"{sys.executable} -m snakemake --cores 1 --quiet rules host -- {table.relative_to(copy.root)}"
    if by_make:
        command = f'eval "$({sys.executable} -m workflow_scripts.home)"; {command}'
    lost = ("HOME", "USER", "LOGNAME", "XDG_CACHE_HOME")
    known = {name: value for name, value in environment().items() if name not in lost}
    known |= {} if place is None else {"HOME": place}
    done = subprocess.run([*user, "sh", "-c", command], cwd=copy.root, env=known, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert table.is_file() and not (copy.root / "~").exists()


@pytest.mark.parametrize("place", ["/dev/null", pytest.param("/proc/nonexistent", marks=pytest.mark.slow)])
def test_snakemake_starts_without_a_home(homeless: Copy, place: str) -> None:
    starts(homeless, place, by_make=True)
    starts(homeless, place, by_make=False)


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="only root can start another user's")
def test_snakemake_starts_for_a_user_without_a_name() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # pytest's own folders are for root's eyes
        copy = instant(Path(folder) / "copy")
        for path in (Path(folder), copy.root, *copy.root.rglob("*")):
            os.chown(path, STRANGER, STRANGER)
        starts(copy, None, by_make=True, user=AS_STRANGER)  # by itself, Snakemake's parser ends without a home
        starts(copy, "/", by_make=False, user=AS_STRANGER)


def test_make_run_asks_for_a_home_before_it_starts_snakemake() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert 'eval "$$($(BIN)/python -m workflow_scripts.home)"; $(BIN)/python -m snakemake' in recipe
