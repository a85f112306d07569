"""Compares math_answer with math-verify: right answers paid, wrong ones refused, processor time. Run by hand.

    python tests/benchmarks/compare_graders.py data_dir [pairs.jsonl]

Mutants are every sixth reference answer of the sets in data_dir with one change that makes another value of them: a
digit, a sign, an exponent, a letter, a bracket, a part of a list. None should be paid. Pairs have a reference answer
(gold), a completion and the right verdict (want: 1, 0, or null where it is debatable).
"""

import json
import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from time_grading import timed

sys.path.insert(0, str(Path(__file__).parents[2]))

from workflow_scripts import grading
from workflow_scripts.benchmarks.boxes import last_box

SETS = ("math500.jsonl", "aime24.jsonl", "aime25.jsonl", "amc23.jsonl", "minerva_math.jsonl", "olympiadbench.jsonl",
        "deepscaler_aime_train.json", "deepscaler_math_train.json")  # fmt: skip
Row = tuple[str, str, bool]


def references(folder: Path) -> list[str]:
    found: set[str] = set()
    for name in SETS:
        text = (folder / name).read_text(encoding="utf-8")
        rows = json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]
        for row in rows:
            if name.startswith("olympiad"):
                found.add(", ".join(row["final_answer"]))
            elif name.startswith("minerva"):
                found.add(last_box(row["solution"]) or "")
            else:
                found.add(str(row["answer"] or ""))
    return sorted(found - {""})


def _digit(text: str, draw: random.Random) -> str | None:
    """Another digit; not in a word, a subscript or the base of a number."""
    places = [m.start() for m in re.finditer(r"(?<![_A-Za-z])(?<!_\{)\d", text)]
    if not places:
        return None
    at = draw.choice(places)
    other = draw.choice([d for d in "123456789" if d != text[at]])
    return text[:at] + other + text[at + 1 :]


def _sign(text: str, draw: random.Random) -> str | None:
    return None if "\\pm" in text or not re.match(r"\d|\\frac|\\sqrt", text) else f"-{text}"


def _exponent(text: str, draw: random.Random) -> str | None:
    return re.sub(r"(?<=[\w)}])\^\{?(\d)\}?", lambda m: f"^{{{int(m[1]) + 1}}}", text, count=1) if "^" in text else None


def _letter(text: str, draw: random.Random) -> str | None:
    return re.sub(r"(?<![A-Za-z\\])[a-z](?![A-Za-z])", "w", text, count=1)


def _root(text: str, draw: random.Random) -> str | None:
    return re.sub(r"\\sqrt\s*\{(\d+)\}", r"\1", text, count=1)


def _bracket(text: str, draw: random.Random) -> str | None:
    swapped = {"[": "(", "]": ")"}
    return re.sub(r"^(?:\\left)?\[|\]$", lambda m: swapped[m[0][-1]], text, count=1) if "\\begin" not in text else None


def _part(text: str, draw: random.Random) -> str | None:
    parts = text.split(", ")
    return ", ".join(parts[:-1]) if len(parts) > 1 and "(" not in text and "\\text" not in text else None


def _upside_down(text: str, draw: random.Random) -> str | None:
    return re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"\\frac{\2}{\1}", text, count=1)


def _more(text: str, draw: random.Random) -> str | None:
    return f"{text} + 1" if re.fullmatch(r"[\w\\{}^ +\-*/().]+", text) and "text" not in text else None


MUTATIONS: tuple[Callable[[str, random.Random], str | None], ...] = (
    _digit, _digit, _sign, _exponent, _letter, _root, _bracket, _part, _upside_down, _more,
)  # fmt: skip
HEDGES = ("\\boxed{{{0}}} or \\boxed{{{1}}}", "\\boxed{{{0} \\text{{ or }} {1}}}", "The answer is {0} or {1}")


def mutants(golds: list[str]) -> list[Row]:
    draw = random.Random(0)
    found: dict[Row, None] = {}
    for gold in golds:
        for mutate in MUTATIONS:
            other = mutate(gold, draw)
            if other is not None and other.replace(" ", "") != gold.replace(" ", ""):
                found[f"Thus \\boxed{{{other}}}.", gold, False] = None
    return list(found)


def by_math_verify(rows: list[Row]) -> list[bool]:
    from math_verify import parse, verify

    return [verify(parse(f"${gold}$"), parse(completion)) for completion, gold, _ in rows]


def main() -> None:
    golds = references(Path(sys.argv[1]))[::6]
    changed = mutants(golds)
    draw = random.Random(1)
    several = [(draw.choice(HEDGES).format(gold, f"{gold} + 1"), gold, False) for gold in golds if "," not in gold]
    same = [(f"Thus \\boxed{{{gold}}}.", gold, False) for gold in golds]
    tables: list[tuple[str, list[Row]]] = [("reference answers", same), ("mutants", changed), ("hedges", several)]
    if len(sys.argv) > 2:
        pairs = [json.loads(line) for line in Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()]
        for want in (1, 0):
            rows = [(row["completion"], row["gold"], row["truncated"]) for row in pairs if row["want"] == want]
            tables.append((f"pairs with want {want}", rows))
    timed(same[:1])
    for name, rows in tables:
        _, processor, statuses = timed(rows)
        print(f"{name}: {len(rows)}, math_answer pays {statuses.get('correct', 0)}; {processor:.1f} s CPU, {statuses}")
        if name in ("mutants", "hedges") and "--list" in sys.argv:
            for row, verdict in zip(rows, grading.grade_many("math_answer", rows), strict=True):
                if verdict.status == "correct":
                    print("   ", row[0], "for", row[1])
    for name, rows in tables:
        rows = rows[:: max(1, len(rows) // 600)]
        used = time.process_time()
        paid = sum(by_math_verify(rows))
        used = time.process_time() - used
        fresh = timed(rows)
        print(f"{name}: {len(rows)}, math-verify pays {paid}; {used:.1f} s CPU, math_answer pays "
              f"{fresh[2].get('correct', 0)}; {fresh[1]:.1f} s CPU")  # fmt: skip


if __name__ == "__main__":
    main()
