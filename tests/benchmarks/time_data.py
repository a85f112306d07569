"""CPU seconds of generating and decontaminating the embedded problems, by hand: python tests/benchmarks/time_data.py"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from workflow_scripts.benchmarks import word_problems
from workflow_scripts.decontamination import overlap

start = time.process_time()
train = word_problems.generate("train", 4000, 7)
for problem in word_problems.problems("train", 20_000, 8):
    word_problems.demonstration(problem)
print(f"4000 rows and 20000 demonstrations: {time.process_time() - start:.2f} s")

start = time.process_time()
held = [row["question"] for row in word_problems.generate("test")]
overlap.Holdout(held).pairs([row["question"] for row in train])
print(f"4000 train rows against 1000 holdout items: {time.process_time() - start:.2f} s")
