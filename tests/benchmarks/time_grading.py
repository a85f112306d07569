"""Times the grader math_answer: a training step, ten thousand mixed answers, a hundred hostile ones. Run by hand.

    python tests/benchmarks/time_grading.py [data_dir]

Mixed answers are the reference answers of the sets in data_dir, each as it is, in other spellings and wrong; without
data_dir those of tests/golden/math_answers.toml. Figures are wall seconds, and processor seconds of all processes.
"""

import itertools
import json
import os
import random
import statistics
import sys
import time
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from workflow_scripts import grading
from workflow_scripts.grading import _pool, math_answer

GOLDEN = Path(__file__).parents[1] / "golden" / "math_answers.toml"
HOSTILE = (
    "x^{9^{9^{9}}}", "\\log_{2}(9^{9^{9}})", "\\lfloor 10^{10^{9}}\\pi\\rfloor", "(((9!)!)!)!", "e^{e^{e^{e^{e}}}}",
    "\\sum_{k=1}^{10^{9}} k^k", "x<9^{9^9}", "\\sin(9^{9^{9}})+1", "2^{2^{2^{2^{2^{2}}}}}+x", "\\sqrt{(10^{8})!}",
)  # fmt: skip


def references(folder: Path) -> list[str]:
    found = []
    for name in ("math500.jsonl", "deepscaler_math_train.json", "amc23.jsonl", "deepscaler_aime_train.json"):
        text = (folder / name).read_text(encoding="utf-8")
        rows = json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]
        found += [str(row["answer"]) for row in rows if row["answer"]]
    return found


def mixed(golds: list[str], count: int) -> list[grading.Row]:
    draw = random.Random(0)
    spelled = [
        lambda gold: gold,
        lambda gold: gold.replace("\\frac", "\\dfrac").replace(",", ", "),
        lambda gold: f"x = {gold}",
        lambda gold: f"{gold} + 1",
        lambda gold: draw.choice(golds),
    ]
    rows = [
        (f"Thus \\boxed{{{how(gold)}}}.", gold, False)
        for gold, how in itertools.islice(itertools.product(draw.sample(golds, len(golds)), spelled), count)
    ]
    return rows * (count // len(rows)) + rows[: count % len(rows)]


def processor_seconds() -> float:
    """Of this process and the grading server with its workers, those that ended too."""
    own = sum(os.times()[:4])
    server = _pool._client.server
    if server is None:
        return own
    family = [server.pid, *map(int, Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split())]
    ticks = 0
    for process in family:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15] if process == server.pid else fields[11:13]))
    return own + ticks / os.sysconf("SC_CLK_TCK")


def timed(rows: list[grading.Row]) -> tuple[float, float, dict[str, int]]:
    math_answer._known.clear()
    start, used = time.perf_counter(), processor_seconds()
    verdicts = grading.grade_many("math_answer", rows)
    wall = time.perf_counter() - start
    statuses = [verdict.status for verdict in verdicts]
    return wall, processor_seconds() - used, {status: statuses.count(status) for status in sorted(set(statuses))}


def main() -> None:
    golden = tomllib.loads(GOLDEN.read_text(encoding="utf-8"))["boxed"]
    golds = [case[0] for kind in golden if kind not in ("unreadable", "tolerance") for case in golden[kind]]
    if len(sys.argv) > 1:
        golds = references(Path(sys.argv[1]))
    print(f"{len(golds)} reference answers, {_pool._client.workers} workers")
    print(
        "first answer, with the start of the server: {:.2f} s wall, {:.2f} s CPU {}".format(
            *timed([("\\boxed{x}", "y", False)])
        )
    )

    plain = [gold for gold in golds if gold.isdigit()]
    other = [gold for gold in golds if not gold.isdigit()]
    steps = []
    for step in range(11):  # 32 prompts of 8 rollouts, 24 of them with a plain number as reference answer
        draw = random.Random(step)
        asked = draw.choices(plain, k=24) + draw.choices(other, k=8)
        steps.append(
            [
                (f"\\boxed{{{draw.choice([gold, gold, str(draw.randint(0, 999))])}}}" if gold in plain
                 else mixed([gold, *draw.sample(other, 3)], 5)[draw.randrange(5)][0], gold, False)
                for gold in asked
                for _ in range(8)
            ]
        )  # fmt: skip
    walls = [timed(step)[:2] for step in steps]
    median, processor = (statistics.median(column) for column in zip(*walls, strict=True))
    print(f"256 answers of a step: median {median:.3f} s wall, {processor:.3f} s CPU; longest {max(walls)[0]:.3f} s")
    print("10000 mixed answers: {:.1f} s wall, {:.1f} s CPU {}".format(*timed(mixed(golds, 10_000))))
    hostile = [(f"\\boxed{{{text}+{n}}}", "\\sqrt{2}", False) for n in range(10) for text in HOSTILE]
    print("100 hostile answers: {:.1f} s wall, {:.1f} s CPU {}".format(*timed(hostile)))


if __name__ == "__main__":
    main()
