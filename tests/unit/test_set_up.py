"""Set-up and homes: an interrupted set-up heals by itself, and Snakemake starts without a home."""

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

import pytest
from copies import Copy, environment, instant

from workflow_scripts import home

ROOT = Path(__file__).parents[2]
INTEL = 'import platform; platform.system, platform.machine = lambda: "Darwin", lambda: "x86_64"'


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
