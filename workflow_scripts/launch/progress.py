"""Where the runs of a study stand, read from files alone, and the line that says so while Snakemake works."""

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import psutil

from workflow_scripts.figures.words import percent

DEVICES = Path("/dev")
EXPECTED = Path("state") / "expected_end.json"
FRESH = 60.0  # seconds for which what `follow` left counts as said by a running study
FULL = 1 << 20  # bytes: with less, jobs cannot even say in their logs why they failed
SHOWN = 4  # runs that one line names; a cluster has hundreds going


def gpus_here() -> int:
    """GPUs that jobs on this machine may use (no torch: the Snakefile asks)."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    return len(list(DEVICES.glob("nvidia[0-9]*")))


@dataclass(frozen=True)
class RunProgress:
    """One arm with one seed: how far its training is, and what of its evaluation is there."""

    arm: str
    seed: int
    steps: int
    step: int
    reward: float | None
    clipped: float | None  # mean share of clipped tokens, where something can clip
    trained: bool
    evaluated: int
    benchmarks: int
    last_sign: float | None  # unix time of the trainer's last word
    entropy: float | None = None  # nat, of the last update that says one
    began: tuple[int, float] | None = None  # step and unix time at which this job of the training started or went on

    @property
    def end(self) -> float | None:
        """Unix time at which the training ends at its pace so far; None before there is one."""
        if self.trained or not self.began or not self.last_sign or self.step <= self.began[0]:
            return None
        pace = (self.last_sign - self.began[1]) / (self.step - self.began[0])
        return self.last_sign + (self.steps - self.step) * pace

    @property
    def state(self) -> str:
        """waiting, step n of N, trained, or evaluated."""
        if self.trained:
            return "evaluated" if self.evaluated == self.benchmarks else "trained"
        return f"step {self.step} of {self.steps}" if self.last_sign else "waiting"

    @property
    def signs(self) -> str:
        """What the training says of itself, in brackets: last reward, how many tokens its clip stops, entropy."""
        signs = [] if self.reward is None else [f"reward {self.reward:.2f}"]
        signs += [] if self.clipped is None else [f"{percent(self.clipped)} clipped"]
        signs += [] if self.entropy is None else [f"entropy {self.entropy:.2f}"]
        return f" ({', '.join(signs)})" if signs else ""


def read_run(
    root: Path, arm: str, seed: int, steps: int, benchmarks: Sequence[str], missing: frozenset[Path] = frozenset()
) -> RunProgress:
    """State of one run from its outputs and from the progress.json that its trainer writes.

    missing: folders in which a declared result is missing, so that the run has to be trained or sampled again.
    """
    run, evals = root / "runs" / arm / f"seed-{seed}", root / "evals" / arm / f"seed-{seed}"
    trained = (run / "checkpoints.parquet").exists() and run not in missing
    evaluated = sum((evals / b / "samples.parquet").exists() and evals / b not in missing for b in benchmarks)
    try:
        said = json.loads((root / "state" / arm / f"seed-{seed}" / "progress.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):  # not begun, finished, or just being written
        said = {}
    return RunProgress(
        arm=arm,
        seed=seed,
        steps=steps,
        step=steps if trained else int(said.get("step", 0)),
        reward=None if trained else said.get("reward"),
        clipped=None if trained else said.get("clipped"),
        trained=trained,
        evaluated=evaluated,
        benchmarks=len(benchmarks),
        last_sign=None if trained else said.get("time"),
        entropy=None if trained else said.get("entropy"),
        began=_began(said.get("began")),
    )


def _began(said: Any) -> tuple[int, float] | None:
    """Step and time of `began` in a progress.json; None where it is not said, or not so."""
    match said:
        case {"step": int(step), "time": int() | float() as moment}:
            return step, float(moment)
    return None


def read_runs(
    root: Path,
    runs: Mapping[str, Sequence[int]],
    steps: Mapping[str, int],
    benchmarks: Sequence[str],
    missing: Iterable[str] = (),
) -> list[RunProgress]:
    """State of all runs, in the order of the study. missing: paths of declared results that are missing."""
    folders = frozenset(
        folder.parent if folder.name == "branch_states" else folder for folder in {Path(p).parent for p in missing}
    )
    return [read_run(root, arm, seed, steps[arm], benchmarks, folders) for arm, seeds in runs.items() for seed in seeds]


def job_seconds(path: Path) -> float | None:
    """Wall time of a finished job, from Snakemake's benchmark file; None if there is none, or not yet a whole one."""
    try:
        return float(path.read_text(encoding="utf-8").splitlines()[1].split("\t")[0])
    except (OSError, IndexError, ValueError):
        return None


def _mean_seconds(folder: Path) -> float | None:
    """Mean wall time of the finished jobs of a rule."""
    seconds = [s for path in folder.glob("*.tsv") if (s := job_seconds(path)) is not None]
    return sum(seconds) / len(seconds) if seconds else None


def remaining_seconds(
    root: Path, runs: Sequence[RunProgress], begun: Sequence[RunProgress], elapsed: float
) -> float | None:
    """Expected seconds until the last run is sampled, at the pace since `begun`; None while there is no pace yet.

    Work is counted in optimizer steps; sampling a run on one benchmark counts as the steps that take as long, once a
    job of each kind has been timed, and as nothing before that.
    """
    train, sample = (_mean_seconds(root / "benchmarks" / rule) for rule in ("train", "sample_checkpoints"))
    mean_steps = sum(run.steps for run in runs) / max(len(runs), 1)
    sampling = mean_steps * sample / train if train and sample else 0.0

    def done(state: Sequence[RunProgress]) -> float:
        return sum(run.step + sampling * run.evaluated for run in state)

    gained = done(runs) - done(begun)
    if gained <= 0:
        return None
    total = sum(run.steps + sampling * run.benchmarks for run in runs)
    return (total - done(runs)) * elapsed / gained


def say_end(root: Path, now: float, left: float | None) -> None:
    """Leave word for `status`, which runs beside: when the runs are expected to end, as far as that is known."""
    file = root / EXPECTED
    text = json.dumps({"time": now, "end": now + left if left else None})
    with suppress(OSError):  # a full disk is for the jobs to tell
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.tmp")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, file)


def expected(root: Path, now: float) -> tuple[bool, float | None]:
    """Whether the study is running, by the age of what `follow` left; and the unix time at which its runs end."""
    try:
        said = json.loads((root / EXPECTED).read_text(encoding="utf-8"))
        moment, end = float(said["time"]), said["end"]
    except (OSError, ValueError, KeyError, TypeError):
        return False, None
    return (True, end) if abs(now - moment) < FRESH else (False, None)


def line(root: Path, runs: Sequence[RunProgress], begun: Sequence[RunProgress], elapsed: float, now: float) -> str:
    """One line: runs done, which are going, how far and how, expected end."""
    going = [run for run in runs if run.last_sign and run.last_sign > now - elapsed]  # not one that died before
    text = f"{sum(run.trained for run in runs)} of {len(runs)} runs trained"
    text += f", {sum(run.state == 'evaluated' for run in runs)} evaluated"
    if going:
        named = [f"{run.arm} seed {run.seed} {run.state}{run.signs}" for run in going[:SHOWN]]
        text += "; going: " + ", ".join(named)
        text += f" and {len(going) - SHOWN} more" if len(going) > SHOWN else ""
    left = remaining_seconds(root, runs, begun, elapsed)
    if left:
        end = time.strftime("%H:%M", time.localtime(now + left))
        text += f"; runs end about {end}, in {max(1, round(left / 60))} min"
    return text


def follow(
    root: str | Path,
    runs: Mapping[str, Sequence[int]],
    steps: Mapping[str, int],
    benchmarks: Sequence[str],
    *,
    seconds: float = 15.0,
    stream: TextIO = sys.stderr,
) -> threading.Thread:
    """Print `line` every so many seconds when it has changed, from a daemon thread that ends with the process.

    runs: arm → seeds; steps: arm → optimizer updates. Called by the Snakefile's onstart, in the main process only.
    """
    root = Path(root)
    begun, start = read_runs(root, runs, steps, benchmarks), time.time()

    def loop() -> None:
        last = ""
        while True:
            time.sleep(seconds)
            now, seen = time.time(), read_runs(root, runs, steps, benchmarks)
            text = line(root, seen, begun, now - start, now)
            say_end(root, now, remaining_seconds(root, seen, begun, now - start))
            if text != last:
                print(f"[{time.strftime('%H:%M:%S')}] {text}", file=stream, flush=True)
            last = text

    thread = threading.Thread(target=loop, name="armslength-progress", daemon=True)
    thread.start()
    return thread


def failures(root: str | Path) -> list[str]:
    """A line for each job that failed since this process started: its log and the last cause in it."""
    full = Path(root).exists() and shutil.disk_usage(root).free < FULL
    lines = [f"{root}: no space left on the disk; free some and start again"] if full else []
    for path in sorted((Path(root) / "logs").rglob("*.log")):
        if path.stat().st_mtime < psutil.Process().create_time():
            continue
        text = path.read_text(encoding="utf-8", errors="replace").strip()
        last = text.splitlines()[-1] if text else ""
        if not text and full:
            continue  # it could not say so
        if last == "KeyboardInterrupt":
            continue  # the user's own Ctrl-C
        if last.startswith("armslength: ") or "Traceback (most recent call last)" in text:
            lines.append(f"{path}: {last.removeprefix('armslength: ')}")
    return lines
