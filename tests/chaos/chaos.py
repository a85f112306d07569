"""A study while its own processes are killed at random, against the same study left alone.

    python tests/chaos/chaos.py [--study config.yaml] [--kills 20] [--seed 0] [--cores 2] [--reference RESULTS] FOLDER

In a fresh copy of the repository below FOLDER the study runs as `make run` runs it. At random moments SIGKILL goes to
one of its processes: Snakemake, the shell of a job, the Python of a stage, or a process that one of these started. Each
time Snakemake has ended, both commands of `make run` follow, as a user would give them. Then the hash of every table is
compared with that in RESULTS (results/STUDY of an undisturbed run; without it, one is made below FOLDER first).
Ends with 1 and the names of what differs, or of what is missing.
"""

import argparse
import contextlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import yaml

sys.path[:0] = [str(Path(__file__).resolve().parents[up] / part) for up, part in ((1, "helpers"), (2, ""))]
from copies import REPOSITORY, Copy, copied, environment  # noqa: E402

from workflow_scripts import tables  # noqa: E402

# Measured times, the only content that differs between two undisturbed runs of one commit on one machine.
SECONDS = {"runs": {"train_seconds", "sample_seconds"}, "power": {"seconds_per_run", "extra_seconds"}}
OTHER_COMMIT = {"code_digest"}  # and what a run of other code may differ in as well
APART = ("plan.parquet", "state/")  # says when it was recorded; belongs to runs, not to results
POLL_SECONDS = 0.2
SHELL = "shell of a job"
RESTARTS_ALONE = 3  # without a kill in between: the study then fails by itself


@dataclass
class Course:
    """What happened in one run of a study."""

    seconds: float = 0.0
    hit: list[str] = field(default_factory=list)  # one line per kill
    restarts: int = 0
    starts: Counter[str] = field(default_factory=Counter)  # stage and first output -> processes seen

    @property
    def again(self) -> Counter[str]:
        """Stage and first output -> how often it was begun again."""
        return +Counter({job: times - 1 for job, times in self.starts.items()})


def started(copy: Copy, cores: int) -> subprocess.Popen[bytes]:
    """`make run`: its two commands, the second one left running; all it says goes to chaos.log."""
    copy.command("workflow_scripts", "unlock")
    command = [sys.executable, "-m", "snakemake", "--cores", str(cores), "--quiet", "rules", "host"]
    with open(copy.root / "chaos.log", "ab") as log:
        return subprocess.Popen(command, cwd=copy.root, env=environment(), stdout=log, stderr=log)


def job(process: psutil.Process) -> str | None:
    """Stage and first output of a stage's process; None of any other."""
    words = process.cmdline()
    stage = next((word.rpartition(".")[2] for word in words if word.startswith("workflow_scripts.stages.")), None)
    if stage is None or "bash" in Path(words[0]).name:
        return None
    return f"{stage} {words[words.index('--output') + 1].partition('=')[2]}" if "--output" in words else stage


def kinds(snakemake: psutil.Process) -> dict[str, list[tuple[psutil.Process, str]]]:
    """What runs now, by kind, each with words for it."""
    found: dict[str, list[tuple[psutil.Process, str]]] = {"Snakemake": [(snakemake, "Snakemake")]}
    for process in snakemake.children(recursive=True):
        try:
            named, parent, name = job(process), process.parent(), process.name()
            of = job(parent) if parent else None
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            if named and named != of:
                kind, text = "stage", named
            elif named or of:
                kind, text = "child of a stage", f"{name}, child of {of or named}"
            else:
                kind, text = ("shell", SHELL) if name in ("bash", "sh") else ("other", name)
        except psutil.Error:  # it has just ended
            continue
        found.setdefault(kind, []).append((process, text))
    return found


class Chance:
    """When the next kill is due, and whom it hits: spread at random over what the study makes, not over time, of which
    a job that begins anew each time would take the most."""

    def __init__(self, seed: int, kills: int, files: list[Path], mean: float) -> None:
        self._random, self._files, self._mean = random.Random(seed), files, mean
        self.shares = sorted(self._random.uniform(0, 0.8) for _ in range(kills))
        self._wait()

    def _wait(self) -> None:
        self._since, self._seconds = time.monotonic(), self._random.uniform(0, 2 * self._mean)

    def due(self) -> bool:
        """Some seconds have gone by, and the next one's share of all files is there."""
        if not self.shares or time.monotonic() - self._since < self._seconds:
            return False
        return sum(path.exists() for path in self._files) >= self.shares[0] * len(self._files)

    def kill(self, found: dict[str, list[tuple[psutil.Process, str]]]) -> str | None:
        """SIGKILL to one process of what runs, of each kind as often; words for it, None if it has just ended."""
        victim, text = self._random.choice(found[self._random.choice(sorted(found))])
        try:
            victim.kill()
        except psutil.Error:
            return None
        del self.shares[0]
        self._wait()
        return text


def run(copy: Copy, cores: int, chance: Chance | None = None) -> Course:
    """Run a study to its end. Raises RuntimeError when it fails by itself, again and again."""
    course, seen, alone = Course(), set(), 0
    begun = time.monotonic()
    process = started(copy, cores)
    try:
        while (code := process.poll()) != 0:
            if code is not None:
                course.restarts += 1
                alone += 1
                if alone > (RESTARTS_ALONE if chance else 0):
                    raise RuntimeError((copy.root / "chaos.log").read_text(encoding="utf-8")[-3000:])
                process = started(copy, cores)
            now = kinds(psutil.Process(process.pid))
            for found, text in now.get("stage", []):
                if (found.pid, found.create_time()) not in seen:
                    seen.add((found.pid, found.create_time()))
                    course.starts[text] += 1
            if chance and chance.due() and (hit := chance.kill(now)):
                alone = 0
                course.hit.append(hit)
                print(f"{time.monotonic() - begun:6.0f} s  kill {len(course.hit)}: {hit}", flush=True)
            time.sleep(POLL_SECONDS)
    finally:
        if process.poll() is None:  # this script is being ended
            for left in (psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    left.kill()
    course.seconds = time.monotonic() - begun
    return course


def hashes(results: Path, left_out: dict[str, set[str]]) -> dict[str, str]:
    """File below a folder of results -> digest of its rows, for some tables without some columns; the files of
    checkpoints too."""
    found = {}
    for path in sorted(results.rglob("*.parquet")):
        name = path.relative_to(results).as_posix()
        if name.startswith(APART) or path.name.startswith("."):
            continue
        timed = left_out.get(path.stem, set()) if path.parent.name == "tables" else set()
        if timed:
            rows = pq.read_table(path)
            found[name] = tables.text_digest(repr(rows.drop_columns(sorted(timed)).to_pylist()))
        else:
            found[name] = tables.provenance(path)["content"]
        if path.name == "checkpoints.parquet":
            for row in tables.read(path, tables.CHECKPOINTS).to_pylist():
                file = path.parent / row["file"]
                found[file.relative_to(results).as_posix()] = tables.file_sha256(file) if file.is_file() else "missing"
    return found


def left_behind(results: Path) -> list[str]:
    """Temporary files that nobody will put in place any more."""
    paths = [p.relative_to(results).as_posix() for p in results.rglob("*")]
    return sorted(p for p in paths if p.endswith(".tmp") or "/saving-" in p or "/.saving-" in p or "/lease-" in p)


def differences(mine: dict[str, str], theirs: dict[str, str]) -> list[str]:
    """One line for each file that differs."""
    lines = [f"{name}: only undisturbed" for name in sorted(theirs.keys() - mine.keys())]
    lines += [f"{name}: only after the kills" for name in sorted(mine.keys() - theirs.keys())]
    return lines + [
        f"{name}: another content" for name in sorted(mine.keys() & theirs.keys()) if mine[name] != theirs[name]
    ]


def prepared(folder: Path, study: Path) -> tuple[Copy, Path]:
    """A copy of the repository with the study, and where its results will be."""
    copy = copied(folder)
    text = study.read_text(encoding="utf-8")
    (copy.root / "config.yaml").write_text(text, encoding="utf-8")
    return copy, copy.root / "results" / yaml.safe_load(text)["study"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="must not exist")
    parser.add_argument("--study", type=Path, default=REPOSITORY / "config.yaml")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--reference", type=Path, help="results/STUDY of an undisturbed run; contents are compared")
    parser.add_argument("--seconds", type=float, default=450, help="what the undisturbed run of --reference took")
    a = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    whole, reference, left_out = a.seconds, a.reference, SECONDS
    copy, results = prepared(a.folder / "chaos", a.study)
    if reference is None:
        alone, reference = prepared(a.folder / "undisturbed", a.study)  # both of the same files
        whole = run(alone, a.cores).seconds
        print(f"undisturbed: {whole:.0f} s", flush=True)
    else:
        left_out = {**SECONDS, "runs": SECONDS["runs"] | OTHER_COMMIT}
    theirs = hashes(reference, left_out)
    if not theirs:
        parser.error(f"--reference {reference}: no table there")
    tables_made = [results / name for name in theirs if name.endswith(".parquet")]
    course = run(copy, a.cores, Chance(a.seed, a.kills, tables_made, 0.5 * whole / max(a.kills, 1)))
    mine = hashes(results, left_out)
    lines = differences(mine, theirs)
    hit = Counter(text if text == SHELL else " ".join(text.split()[:-1]) or text for text in course.hit)
    again = Counter(job.partition(" ")[0] for job in course.again.elements())
    print(f"{len(course.hit)} of {a.kills} kills: {', '.join(f'{n} {h}' for h, n in sorted(hit.items()))}")
    print(f"{course.restarts} restarts; {len(course.starts)} jobs; begun again: "
          + ", ".join(f"{name} {times} times" for name, times in sorted(again.items())))  # fmt: skip
    print(f"{course.seconds:.0f} s, undisturbed {whole:.0f} s")
    print(*(f"left behind: {name}" for name in left_behind(results)), sep="\n")
    print(*(f"differs: {line}" for line in lines), f"{len(mine)} files compared, {len(lines)} differ", sep="\n")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
