"""Times grading stored rollouts again (stages/reward_again.py) and its peak memory. Run by hand.

    python tests/benchmarks/time_rewards.py [--grader exact_answer --runs 50 --rollouts 20000 --characters 25]

Made-up runs: groups of 8, half of the answers right, boxed at the end of a text that is no other's.
"""

import argparse
import random
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2]))

from workflow_scripts import tables
from workflow_scripts.job import Job
from workflow_scripts.stages import reward_again

GROUP, PROBLEMS = 8, 8000


def write(root: Path, runs: int, rollouts: int, characters: int) -> None:
    draw = random.Random(0)
    answers = {f"p{row}": str(draw.randint(1, 999)) for row in range(PROBLEMS)}
    rows = [{"problem_id": problem, "answer": answer} for problem, answer in answers.items()]
    tables.write(root / "train.parquet", tables.PROBLEMS, rows, {})
    filling = " so \\frac{1}{2} of {x+1} is more," * (characters // 30)
    for seed in range(runs):
        problems = [problem for problem in draw.choices([*answers], k=rollouts // GROUP) for _ in range(GROUP)]
        said = [answers[p] if draw.random() < 0.5 else str(draw.randint(1, 999)) for p in problems]
        right = ["correct" if answers[p] == a else "wrong" for p, a in zip(problems, said, strict=True)]
        size = len(said)
        columns = {
            "batch": pa.array(range(size)), "problem_id": pa.array(problems), "status": pa.array(right),
            "completion": pa.array([f"{draw.random()}{filling} \\boxed{{{answer}}}" for answer in said]),
            "prompt_position": pa.repeat(0, size), "rollout": pa.repeat(0, size), "truncated": pa.repeat(False, size),
        }  # fmt: skip
        empty = {name: pa.nulls(size, kind) for name, kind in tables.ROLLOUTS.columns.items() if name not in columns}
        tables.write(root / f"runs/arm/seed-{seed}/rollouts.parquet", tables.ROLLOUTS, columns | empty, {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grader", default="exact_answer")
    for name, default in (("runs", 50), ("rollouts", 20_000), ("characters", 25)):
        parser.add_argument(f"--{name}", type=int, default=default)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with ProcessPoolExecutor(1, get_context("spawn")) as other:  # so that the peak here is the stage's
            other.submit(write, root, a.runs, a.rollouts, a.characters).result()
        settings = {"runs": {"arm": list(range(a.runs))}, "rewards": {"arm": a.grader}, "reward_version": 1,
                    "allow_missing": False}  # fmt: skip
        files = {"train": [str(root / "train.parquet")]}, {"rewards": [str(root / "rewards.parquet")]}
        start, used = time.perf_counter(), time.process_time()
        reward_again.main(Job(settings, {}, "code", root, *files, ()))
        wall, cpu = time.perf_counter() - start, time.process_time() - used
        changed = sum(tables.read(root / "rewards.parquet", tables.REWARDS)["changed"].to_pylist())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{a.runs} runs of {a.rollouts}, {a.grader}: {wall:.1f} s wall, {cpu:.1f} s CPU, peak {peak:.0f} MiB, "
          f"{changed} changed")  # fmt: skip


if __name__ == "__main__":
    main()
