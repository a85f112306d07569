"""Time and peak memory of the analysis stages, from counts to all tables: each a process, as in the workflow.

    python tests/benchmarks/time_analysis.py [--arms 20 --seeds 10 --steps 10 --benchmarks 7 --problems 1500]

Two stages run side by side, as on two cores. The counts are made up: binomial, with a random effect per run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

from workflow_scripts import tables

STAGES = {
    "estimate_scores": "scores", "estimate_effects": "effects", "measure_noise_floors": "noise_floors",
    "estimate_power": "power", "summarise_difficulty": "difficulty", "summarise_coverage": "coverage",
}  # fmt: skip
SAMPLES, REPEATS = 16, 3


def counts(path: Path, arms: int, seeds: int, steps: int, benchmarks: int, problems: int) -> int:
    """Write made-up counts in the order in which `count` writes them; how many rows."""
    rng = np.random.default_rng(0)
    easiness = rng.normal(0, 1.5, problems)
    of_benchmark = np.sort(np.arange(problems) % benchmarks)
    runs = [(f"arm{a:02}", s, 10 * (t + 1)) for a in range(arms) for s in range(seeds) for t in range(steps)]
    runs += [("base", repeat, 0) for repeat in range(REPEATS)]
    rate = 1 / (1 + np.exp(-easiness - rng.normal(0, 0.2, (len(runs), 1))))
    size = len(runs) * problems
    texts = {
        "arm": np.repeat([run[0] for run in runs], problems),
        "benchmark": np.tile([f"bench{b}" for b in of_benchmark], len(runs)),
        "problem_id": np.tile([f"{i:016x}" for i in range(problems)], len(runs)),
    }
    data = {name: pa.array(values) for name, values in texts.items()}
    data |= {name: pa.array(np.repeat([run[i] for run in runs], problems)) for i, name in ((1, "seed"), (2, "step"))}
    data |= {"samples": pa.array(np.full(size, SAMPLES)), "correct": pa.array(rng.binomial(SAMPLES, rate).ravel())}
    data |= dict.fromkeys(("truncated", "unparsed", "timeout"), pa.array(np.zeros(size, dtype=np.int64)))
    data |= {"completion_tokens": pa.array(np.full(size, 900)), "excluded": pa.nulls(size, pa.string())}
    tables.write(path, tables.COUNTS, pa.table(data).select(list(tables.COUNTS.columns)), {})
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("arms", 20), ("seeds", 10), ("steps", 10), ("benchmarks", 7), ("problems", 1500)):
        parser.add_argument(f"--{name}", type=int, default=default)
    size = vars(parser.parse_args())
    arms = [f"arm{a:02}" for a in range(size["arms"])]
    settings = {
        "baseline": arms[0], "roles": dict.fromkeys(arms[1:], "comparison"), "margin": 0.02, "alpha": 0.05,
        "runs": {arm: list(range(size["seeds"])) for arm in arms}, "base_repeats": list(range(REPEATS)),
        "benchmarks": [f"bench{b}" for b in range(size["benchmarks"])], "pass_at": [1, 8], "looks": [size["seeds"]],
        "endpoint": {"pass_at": 1, "checkpoint": "last"}, "last_steps": dict.fromkeys(arms, 10 * size["steps"]),
        "allow_missing": False,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with ProcessPoolExecutor(
            1
        ) as pool:  # so that this process stays small: its memory would count as the children's
            rows = pool.submit(counts, root / "tables/counts.parquet", **size).result()
        tables.write(root / "tables/runs.parquet", tables.RUNS, [], {})

        def measured(stage: str) -> tuple[str, float, float, int]:
            command = [sys.executable, "-m", f"workflow_scripts.stages.{stage}", "--settings", json.dumps(settings)]
            command += ["--code", "0", "--root", str(root), "--input", f"counts={root}/tables/counts.parquet"]
            command += [f"runs={root}/tables/runs.parquet"] if stage == "estimate_power" else []
            command += ["--output", f"{STAGES[stage]}={root}/tables/{STAGES[stage]}.parquet"]
            started = time.perf_counter()
            process = subprocess.Popen(command)
            _, status, usage = os.wait4(process.pid, 0)
            if status:
                sys.exit(f"{stage} failed")
            return stage, time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss

        started = time.perf_counter()
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(measured, STAGES))
        wall = time.perf_counter() - started
    print(f"{rows:,} rows of counts; all tables in {wall:.1f} s, two stages side by side")
    for stage, seconds, cpu, memory in found:
        print(f"{stage:<24}{seconds:6.1f} s  {cpu:6.1f} s CPU  {memory / 1024:7.0f} MB")


if __name__ == "__main__":
    main()
