"""Copies of the repository that a test may run and change, as they are or with instant stages (fake_job.py)."""

import atexit
import multiprocessing
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
COPIED = ("Snakefile", "config.yaml", "rules", "workflow_scripts", "profiles", "slurm", "studies", "envs")
STUDY = yaml.safe_load("""
study: tiny
question: Does the matrix hold?
model: {source: embedded}
data:
  train: {benchmark: word_problems, split: train, rows: 40, seed: 7}
  decontaminate_against: [word_problems_test]
rollout: {prompts: 4, group_size: 4, max_completion: 32}
training: {steps: 8, checkpoints: [4, 8], learning_rate: 3.0e-4}
arms:
  fixed: {preset: gspo_asym, eps_low: 3.0e-3, eps_high: 5.0e-3}
  gapo: {preset: gapo_seq, eps_low: 3.0e-3, eps_high_max: 5.0e-3}
  late: {preset: gapo_seq, eps_low: 3.0e-3, eps_high_max: 5.0e-3, branch_from: {arm: fixed, step: 4}}
baseline: fixed
seeds: 2
evaluation:
  {benchmarks: [word_problems_test], problems: 6, samples: 4, pass_at: [1, 4], max_completion: 32, base_repeats: 2}
analysis: {looks: [2], policies: {dual: {bounds: dual_clip, eps_low: 3.0e-3, eps_high: 5.0e-3, dual_clip_bound: 1.1}}}
""")


# Programs are forked from a process that has imported the libraries of Snakemake and of the study, more than half of a
# dry run's time; nothing of this repository, of which a copy has its own.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "snakemake.cli", "snakemake.linting.rules", "snakemake.report.html_reporter", "snakemake.storage", "smart_open",
        "snakemake_executor_plugin_slurm", "yte", "dpath", "pandas", "pyarrow.parquet", "jinja2",
    ]
)  # fmt: skip


def _program(module: str, arguments: tuple[str, ...], root: str, env: dict[str, str], output: str) -> None:
    """In the fork: `python -m module arguments` in the folder `root`, its output and errors into the file `output`."""
    file = os.open(output, os.O_WRONLY)
    os.dup2(file, 1), os.dup2(file, 2)
    os.chdir(root)
    os.environ.clear()
    os.environ.update(env)
    ours = {"", *(str(REPOSITORY / part) for part in (".", "tests", "tests/unit", "tests/helpers"))}
    sys.path[:] = [root, *(path for path in sys.path if path not in ours)]
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # a forked process of multiprocessing calls none


@dataclass
class Copy:
    """A working copy of the repository with its results."""

    root: Path

    def snakemake(
        self, *arguments: str, check: bool = True, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run Snakemake here, as a user would."""
        return self.command("snakemake", *arguments, check=check, env=env)

    def command(
        self, module: str, *arguments: str, check: bool = True, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a module here, with more in its environment; output and errors in one text."""
        with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace") as output:
            known = environment() | (env or {})
            process = _FORKS.Process(target=_program, args=(module, arguments, str(self.root), known, output.name))
            process.start()
            process.join()
            said = output.read()
        assert not check or process.exitcode == 0, said[-3000:]
        return subprocess.CompletedProcess([module, *arguments], process.exitcode or 0, said)

    def would_run(self, *arguments: str) -> set[str]:
        """Jobs of a dry run, as "rule" or "rule wildcard value …": train gapo 0, grade gapo 0 word_problems_test."""
        return jobs(self.snakemake("-n", "--cores", "1", *arguments).stdout)

    def ran(self) -> Counter[str]:
        """How often each job's first output was written."""
        return Counter((self.root / "ran.txt").read_text().split())

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace a text that must be there."""
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} no longer holds {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def study(self, change: Callable[[dict], object]) -> None:
        """Change the study."""
        path = self.root / "config.yaml"
        study = yaml.safe_load(path.read_text(encoding="utf-8"))
        change(study)
        path.write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")


def environment() -> dict[str, str]:
    """This interpreter first, nothing of this repository on the path."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "SNAKEMAKE_PROFILE")}
    return {**kept, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "SLURM_CONF": "/dev/null"}


def jobs(text: str) -> set[str]:
    """The jobs that a dry run lists, without `all`."""
    found = set()
    for block in re.split(r"\n\s*\n|\n(?=\[)", text):
        rule = re.search(r"^(?:local)?rule (\w+):", block, re.MULTILINE)
        if rule and rule[1] != "all":
            wildcards = re.search(r"^ +wildcards: (.*)$", block, re.MULTILINE)
            values = [pair.partition("=")[2] for pair in wildcards[1].split(", ")] if wildcards else []
            found.add(" ".join([rule[1], *values[1:]]))  # the first wildcard is the study
    return found


def copied(target: Path) -> Copy:
    """A copy of the repository without results."""
    target.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=ignore)
        else:
            shutil.copy2(source, target / name)
    return Copy(target)


def instant(target: Path) -> Copy:
    """A copy of the repository with the small study and instant stages, nothing run."""
    copy = copied(target)
    fake = Path(__file__).with_name("fake_job.py")
    shutil.copy(fake, target / "workflow_scripts" / "job.py")
    for rules in (target / "rules").glob("*.smk"):
        text = rules.read_text(encoding="utf-8")
        rules.write_text(text.replace('" --root results/', '" --rule-input {input} --root results/'), encoding="utf-8")
    (target / "config.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False), encoding="utf-8")
    return copy
