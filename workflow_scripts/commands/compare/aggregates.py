"""Tables that hold a row per benchmark, or per subject of one, where pass@k needs a row per problem.

pass@1 is a mean, so counts summed over problems give it as well. pass@k with k > 1 is not a mean. For 480 problems with
one sample each, 293 of them solved, the 480 would count as samples of one problem, and the result would be 100 %.
"""

import re

import pandas as pd

from workflow_scripts import benchmarks
from workflow_scripts.commands.compare.counts_table import InputError, Part

# Names of a whole set in the column problem, beside the benchmarks that this package knows; without marks and case.
SETS = {
    "all", "aime", "amc", "arc", "arceasy", "arcchallenge", "average", "avg", "bbh", "benchmark", "combined", "gpqa",
    "gpqadiamond", "gsm", "gsm8k", "hellaswag", "hendrycksmath", "hendrycksmath500", "hmmt", "humaneval",
    "humanevalplus", "ifeval", "livecodebench", "macro", "math", "math500", "mathqa", "mbpp", "mbppplus", "mean",
    "minerva", "minervamath", "mmlu", "mmlupro", "olympiadbench", "overall", "test", "total", "train", "truthfulqa",
    "validation",
}  # fmt: skip
_EDITION = re.compile(r"(?:20\d\d|feb|nov|test|train|val|validation|main|cot|\d*shot|zeroshot)+$")  # after such a name
FEWEST = 20  # samples; from here on an n that differs by problem is the size of a set, not a sign of lost samples


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.lower())


def _named_sets(problems: list[str], benchmark: str) -> bool:
    """Whether most problems have the name of a set."""
    known = SETS | {_plain(name) for name in (*benchmarks.names(), benchmark)}
    plain = [_plain(name) for name in problems]
    return sum(name in known or _EDITION.sub("", name) in known for name in plain) > len(problems) / 2


def _sizes_of_sets(rows: pd.DataFrame) -> bool:
    """Whether n is like the size of a set: large, equal in all runs, and different for most problems."""
    sizes = rows.groupby("problem")["n"].agg(["min", "max"])
    fixed = bool((sizes["min"] == sizes["max"]).all())
    return fixed and int(sizes["min"].min()) >= FEWEST and sizes["min"].nunique() > len(sizes) / 2


def check_rows(parts: list[Part], pass_at: int) -> None:
    """Raises InputError if pass_at is above 1 and the rows of a table are not single problems.

    This is the case if a benchmark has only one problem, if most problems have the name of a set, or if n is like the
    sizes of sets. Logs and a study's counts are known to have a row for each problem.
    """
    found = [part for part in parts if not part.by_problem]
    if pass_at < 2 or not found:
        return
    rows = pd.concat([part.rows.to_pandas().assign(file=part.file) for part in found])
    for benchmark, own in rows.groupby("benchmark"):
        problems = own["problem"].unique().tolist()
        if len(problems) == 1 or _named_sets(problems, str(benchmark)) or _sizes_of_sets(own):
            row = own.iloc[0]
            raise InputError(
                f"{row['file']}: pass@{pass_at} needs a row for each problem, and n = {row['n']} of problem "
                f"{row['problem']} (arm {row['arm']}, seed {row['seed']}) looks like the total of a whole set; give a "
                "row for each problem, or use --pass-at 1 to compare mean scores"
            )
