"""Generated word problems: the embedded task, seeded, of any size, with worked solutions for the warm start.

A problem is a start (2 to 20 things) and one to three steps: plus or minus 2 to 9, or times 2 or 3; amounts stay
positive. The split is a hash of the problem's text, so train, validation and test have no text in common, whatever the
seeds. Texts are plain words and numbers with a space between any two tokens, and no number ever follows another number
directly: a tokenizer with single digits can join digits again without ambiguity.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from workflow_scripts.benchmarks import ProblemSet

SETS = tuple(
    ProblemSet(name=f"word_problems_{split}", benchmark="word_problems", split=split, grader="exact_answer", size=size)
    for split, size in (("train", None), ("validation", 1000), ("test", 1000))
)

_FIXED_SEEDS = {"validation": 1, "test": 2}
_TENTHS = {"test": range(1), "validation": range(1, 2), "train": range(2, 10)}  # of the hash: 10, 10 and 80 %
_NAMES = ("Tom", "Ben", "Sam", "Max", "Leo")
_THINGS = ("apples", "pens", "cards", "books", "eggs", "coins")
_VERBS = {"buys": "+", "finds": "+", "loses": "-", "sells": "-", "doubles": "*", "triples": "*"}
_FACTORS = {"doubles": 2, "triples": 3}


@dataclass(frozen=True)
class Step:
    """One sentence: what he does, and with how many (a factor for doubles and triples)."""

    verb: str
    operand: int

    @property
    def operator(self) -> str:
        return _VERBS[self.verb]


@dataclass(frozen=True)
class Problem:
    """A word problem with its structure."""

    name: str
    thing: str
    start: int
    steps: tuple[Step, ...]

    @property
    def question(self) -> str:
        sentences = [f"{self.name} has {self.start} {self.thing} ."]
        for position, step in enumerate(self.steps):
            what = f"{step.verb} them" if step.verb in _FACTORS else f"{step.verb} {step.operand}"
            sentences.append(f"He {'then ' if position else ''}{what} .")
        return " ".join([*sentences, f"How many {self.thing} does he have ?"])

    @property
    def answer(self) -> int:
        value = self.start
        for step in self.steps:
            value = _compute(value, step.operator, step.operand)
        return value


def _compute(value: int, operator: str, operand: int) -> int:
    if operator == "*":
        return value * operand
    return value + operand if operator == "+" else value - operand


def _draw(rng: Random) -> Problem:
    name, thing, start = rng.choice(_NAMES), rng.choice(_THINGS), rng.randint(2, 20)
    value, steps = start, []
    for _ in range(rng.randint(1, 3)):
        verbs = [verb for verb, operator in _VERBS.items() if operator != "-" or value > 2]
        verb = rng.choice(verbs)
        most = min(9, value - 1) if _VERBS[verb] == "-" else 9
        step = Step(verb, _FACTORS.get(verb) or rng.randint(2, most))
        value = _compute(value, step.operator, step.operand)
        steps.append(step)
    return Problem(name, thing, start, tuple(steps))


def _tenth(question: str) -> int:
    return int.from_bytes(hashlib.sha256(question.encode()).digest()[:4], "big") % 10


def problems(split: str, rows: int | None = None, seed: int | None = None) -> list[Problem]:
    """Distinct problems of a split; fewer rows of the same seed are a prefix of more.

    split: train, validation or test. rows, seed: required for train; by default 1000 of a fixed seed otherwise. Some
    million problems exist, about 20 thousand of them with a single step.
    """
    rows = {entry.split: entry.size for entry in SETS}[split] if rows is None else rows
    seed = _FIXED_SEEDS.get(split) if seed is None else seed
    if rows is None or seed is None:
        raise ValueError(f"word_problems, split {split}: rows and seed are needed")
    rng, found = Random(f"word_problems {split} {seed}"), dict[str, Problem]()
    while len(found) < rows:
        problem = _draw(rng)
        if _tenth(problem.question) in _TENTHS[split]:
            found.setdefault(problem.question, problem)
    return list(found.values())


def generate(split: str, rows: int | None = None, seed: int | None = None) -> list[dict[str, Any]]:
    """Rows of a split as any other benchmark has them; difficulty is the number of steps."""
    return [
        {"question": problem.question, "answer": str(problem.answer), "difficulty": len(problem.steps)}
        for problem in problems(split, rows, seed)
    ]


def _misreadings(value: int, step: Step) -> Iterator[tuple[str, int]]:
    """Other operations a careless reader might take the step for; amounts stay positive."""
    if step.operator == "*":
        yield "*", 5 - step.operand
        yield "+", step.operand
    else:
        yield "*", 2
        if step.operator == "-" or value > step.operand:
            yield {"+": "-", "-": "+"}[step.operator], step.operand


def demonstration(
    problem: Problem, rng: Random | None = None, *, slip: float = 0.0, misread: float = 0.0, unmarked: float = 0.0
) -> str:
    """A worked solution: "12 + 5 = 17 . 17 * 2 = 34 . #### 34".

    slip: probability that one result is off by 1 or 2; misread: that one operation is taken for another; both errors
    are carried on. unmarked: probability that no "####" stands before the answer. rng: needed if any of them is not 0.
    """
    noise = rng or Random(0)
    slipped = noise.randrange(len(problem.steps)) if noise.random() < slip else None
    misread_at = noise.randrange(len(problem.steps)) if noise.random() < misread else None
    value, parts = problem.start, []
    for position, step in enumerate(problem.steps):
        operator, operand = step.operator, step.operand
        if position == misread_at:
            operator, operand = noise.choice(list(_misreadings(value, step)))
        elif operator == "-" and operand >= value:  # only after an earlier error
            operator, operand = "+", operand
        result = _compute(value, operator, operand)
        if position == slipped:
            result += noise.choice([error for error in (-2, -1, 1, 2) if result + error > 0])
        parts.append(f"{value} {operator} {operand} = {result} .")
        value = result
    marker = "" if noise.random() < unmarked else "#### "
    return " ".join([*parts, f"{marker}{value}"])


def vocabulary() -> tuple[str, ...]:
    """Every token of questions and demonstrations, digits one by one: what a tokenizer must know."""
    words = ("He", "he", "has", "then", "them", "How", "many", "does", "have")
    return (*"0123456789", *"+-*=.?", "####", *words, *_NAMES, *_THINGS, *_VERBS)
