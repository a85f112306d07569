"""CPU seconds and memory of making and decontaminating problems, by hand: python tests/benchmarks/time_data.py

Real text needs the real files (ARMSLENGTH_DATA, as in the tests): 3,000 holdout items of eight benchmarks against
39,000 and 390,000 train rows: every train problem there, then first and second halves of different ones joined. What
is timed is the stage, from reading its tables to writing the pairs, as a process of its own.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from problem_files import REAL  # noqa: E402

from workflow_scripts import tables  # noqa: E402
from workflow_scripts.benchmarks import sources, word_problems  # noqa: E402

HOLDOUTS = ("math500", "aime24", "aime25", "amc23", "minerva_math", "olympiadbench", "gsm8k_test", "svamp")
TRAIN = ("gsm8k_train", "deepscaler_math_train", "deepscaler_aime_train", "mawps_singleop", "mawps_addsub")
HELD, ROWS = 3000, 39_000

# the kernel's own peak of this program; resource.getrusage would give that of the parent, if it is larger
_MEASURED = """
import runpy, time
from pathlib import Path
runpy.run_module("workflow_scripts.stages.check_contamination", run_name="__main__", alter_sys=True)
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(f"{time.process_time():.1f} {int(peak.split()[1]) / 1024:.0f}")
"""


def real_questions(names: tuple[str, ...]) -> list[str]:
    return [row["question"] for name in names for row in sources.fetch({"name": name, "source": "local"}, str(REAL))[0]]


def mixed(texts: list[str], rows: int) -> list[str]:
    """The texts, then joined halves of two of them, until there are so many."""
    rng, made = Random(0), list(texts)
    while len(made) < rows:
        first, second = rng.choice(texts).split(" "), rng.choice(texts).split(" ")
        made.append(" ".join(first[: len(first) // 2] + second[len(second) // 2 :]))
    return made[:rows]


def time_stage(train: list[str], held: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, questions in (("train", train), ("holdout", held)):
            columns = {"benchmark": name, "answer": "1", "difficulty": None}
            rows = [
                {**columns, "problem_id": f"{i:016x}", "row": i, "question": question}
                for i, question in enumerate(questions)
            ]
            tables.write(Path(folder) / f"{name}.parquet", tables.PROBLEMS, rows, {})
        arguments = ["--code", "none", "--settings", '{"benchmark": "held"}', "--root", folder]
        arguments += ["--input", f"train={folder}/train.parquet", f"holdout={folder}/holdout.parquet"]
        arguments += ["--output", f"contamination={folder}/contamination.parquet"]
        command, env = [sys.executable, "-c", _MEASURED, *arguments], os.environ | {"OMP_NUM_THREADS": "1"}
        used = subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, text=True).stdout
        pairs = tables.provenance(Path(folder) / "contamination.parquet")["pairs"]
    seconds, memory = used.split()
    print(f"{len(train)} train rows against {len(held)} items: {seconds} s, peak {memory} MB, {pairs}", flush=True)


start = time.process_time()
for problem in word_problems.problems("train", 20_000, 8):
    word_problems.demonstration(problem)
print(f"20000 demonstrations: {time.process_time() - start:.2f} s")
made, held = ([row["question"] for row in word_problems.generate(*part)] for part in (("train", 4000, 7), ("test",)))
time_stage(made, held)
if REAL.is_dir():
    start = time.process_time()
    held, texts = real_questions(HOLDOUTS)[:HELD], real_questions(TRAIN)
    print(f"the real files fetched: {time.process_time() - start:.2f} s")
    for rows in (ROWS, 10 * ROWS):
        time_stage(mixed(texts, rows), held)
