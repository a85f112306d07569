"""Parsing and DAG of a large study against a bare Snakefile with as many jobs: python tests/benchmarks/time_scale.py

20 arms x 10 seeds x 10 checkpoints x 7 benchmarks. The floor is written from the rules themselves: the same names,
wildcards, files, logs, threads and resources, params as constants of equal length, no conda and no Python of ours; the
files of a list input come from one JSON file. Dry run of an empty folder and a run that finds nothing to do, the two
alternating, each a process of its own; medians. Beside them `plan`, `status` and what a real run does at its start.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from copies import Copy, copied, environment  # noqa: E402

# What the rules come to, written by the workflow itself: patterns, lists of files, and the length of each param.
_DUMP = r"""
def _dump(arm, benchmark):
    import json, re
    from types import SimpleNamespace

    def plain(pattern):  # Snakemake has put the constraints into the patterns
        return re.sub("{(\\w+),[^{}]*}", "{\\1}", str(pattern))

    given = SimpleNamespace(study=STUDY.study, arm=arm, seed="0", repeat="0", benchmark=benchmark)

    def items(found):
        pairs = [(n, [v] if isinstance(v, str) or callable(v) else list(v)) for n, v in found._allitems()]
        pairs = [(n, v[0](given) if v and callable(v[0]) else v) for n, v in pairs]
        return [(n, [*map(plain, [v] if isinstance(v, str) else v)]) for n, v in pairs]

    def rule(one):
        own = {n: r for n, r in one.resources.items() if n[0] != "_" and n != "tmpdir"}
        resources = {n: r if isinstance(r, int) else 1 for n, r in own.items()}
        return {
            "input": items(one.input), "output": items(one.output), "log": items(one.log),
            "benchmark": plain(one.benchmark) if one.benchmark else None, "resources": resources,
            "params": [(n, len(f(given) if callable(f) else str(f))) for n, f in one.params._allitems()],
            "shell": one.shellcmd or "", "local": one.name in workflow._localrules,
        }

    rules = {one.name: rule(one) for one in workflow.rules}
    told = {"rules": rules, "constraints": dict(workflow.modifier.wildcard_constraints)}
    print(json.dumps(told), file=open("rules.json", "w"))
"""


# --touch puts every job on record; Snakemake waits 0.1 s for each.
_TOUCH = """
import sys
from snakemake.cli import main
from snakemake.executors.touch import Executor
Executor.SLEEPING_TIME = 0
sys.argv[1:] = ["--touch", "--forceall", "--cores", "2"]
main()
"""


def study(arms: int, seeds: int, checkpoints: int, benchmarks: int) -> dict[str, Any]:
    """Clip widths of GAPO against a baseline; benchmarks are local files."""
    kinds = {"source": "local", "fields": {"question": "q", "answer": "a"}, "grader": "exact_answer"}
    names = [f"benchmark_{n}" for n in range(benchmarks)]
    gapo = {"preset": "gapo_seq", "eps_low": 3e-3}
    widths = {f"gapo_{n}": gapo | {"eps_high_max": n * 1e-4 + 4e-3} for n in range(arms - 1)}
    train_set = {"benchmark": "word_problems", "split": "train", "rows": 4000, "seed": 7}
    steps = [8 * n + 8 for n in range(checkpoints)]
    return {
        "study": "scale",
        "question": "What does a study of this size cost before its first job?",
        "data_dir": "data",
        "model": {"source": "embedded"},
        "data": {"train": train_set, "decontaminate_against": names},
        "sets": {name: kinds | {"path": f"{name}.jsonl"} for name in names},
        "rollout": {"prompts": 32, "group_size": 8, "minibatches": 2, "epochs": 2, "max_completion": 32},
        "training": {"steps": steps[-1], "checkpoints": steps, "learning_rate": 3e-4},
        "arms": {"fixed": {"preset": "gspo_asym", "eps_low": 3e-3, "eps_high": 5e-3}} | widths,
        "baseline": "fixed",
        "seeds": seeds,
        "evaluation": {"benchmarks": names, "samples": 8, "pass_at": [1, 8], "max_completion": 32, "base_repeats": 3},
    }  # fmt: skip


def floor(rules: dict[str, Any], constraints: dict[str, str]) -> tuple[str, dict[str, list[str]]]:
    """The bare Snakefile of these rules, and the lists of files that it reads."""
    files: dict[str, list[str]] = {}

    def named(rule: str, found: list[tuple[str, list[str]]]) -> str:
        lines = []
        for name, paths in found:
            key, many = f"{rule}.{name}", len(paths) != 1
            if many:
                files[key] = paths
            lines.append(f"        {f'{name}=' if name else ''}{f'FILES[{key!r}]' if many else repr(paths[0])},\n")
        return "".join(lines)

    text = "import json\n\nFILES = json.load(open('files.json'))\n\nwildcard_constraints:\n"
    text += "".join(f"    {name}={pattern!r},\n" for name, pattern in constraints.items())
    text += "localrules: " + ", ".join(name for name, rule in rules.items() if rule["local"]) + "\n"
    for name, rule in sorted(rules.items(), key=lambda pair: pair[0] != "all"):
        text += f"\nrule {name}:\n"
        for kind in ("input", "output", "log"):
            text += f"    {kind}:\n{named(name, rule[kind])}" if rule[kind] else ""
        text += f"    benchmark: {rule['benchmark']!r}\n" if rule["benchmark"] else ""
        text += "    threads: 1\n" if rule["log"] else ""
        resources = "".join(f"        {key}={value},\n" for key, value in rule["resources"].items())
        text += f"    resources:\n{resources}" if resources else ""
        params = "".join(f"        {key}={'x' * length!r},\n" for key, length in rule["params"])
        text += f"    params:\n{params}" if params else ""
        text += f"    shell: {rule['shell']!r}\n" if rule["shell"] else ""
    return text, files


def outputs(rules: dict[str, Any], values: dict[str, list[str]]) -> set[str]:
    """Every file that the rules make of these wildcards."""
    found = set()
    for rule in rules.values():
        patterns = [path for _, paths in rule["output"] for path in paths]
        names = sorted(set(re.findall(r"{(\w+)}", "".join(patterns))))
        for given in product(*(values[name] for name in names)):
            found |= {path.format(**dict(zip(names, given, strict=True))) for path in patterns}
    return found


def run(copy: Copy, *arguments: str) -> tuple[str, float, float, float]:
    """What a Python process said, its wall seconds, its seconds of processor, and MB at its peak."""
    command, said = [sys.executable, *arguments], copy.root / "said.txt"
    begun = time.perf_counter()
    out = [
        (os.POSIX_SPAWN_OPEN, 1, str(said), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    program = os.posix_spawn(
        "/bin/sh", ["sh", "-c", 'cd "$0" && exec "$@"', str(copy.root), *command], environment(), file_actions=out
    )
    _, status, used = os.wait4(program, 0)
    wall, text = time.perf_counter() - begun, said.read_text(encoding="utf-8")
    assert status == 0, text[-3000:]
    return text, wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def compare(what: str, ours: Copy, bare: Copy, rounds: int, arguments: list[str], said: str) -> None:
    """Medians of the two, alternating, and their ratio; both must say `said`."""
    taken: dict[Path, list[tuple[float, float, float]]] = {ours.root: [], bare.root: []}
    for _ in range(rounds):
        for copy in (ours, bare):
            text, *measured = run(copy, "-m", "snakemake", *arguments)
            assert said in text, f"{copy.root}: no {said!r} in {text[-500:]}"
            taken[copy.root].append((measured[0], measured[1], measured[2]))
    mine, theirs = ([statistics.median(column) for column in zip(*rows, strict=True)] for rows in taken.values())
    print(
        f"{what}: {mine[0]:.1f} s, bare {theirs[0]:.1f} s, ratio {mine[0] / theirs[0]:.2f}; of processor"
        f" {mine[1]:.1f} and {theirs[1]:.1f} s, {mine[1] / theirs[1]:.2f}; {mine[2]:.0f} and {theirs[2]:.0f} MB",
        flush=True,
    )


def prepare(folder: Path, declared: dict[str, Any]) -> tuple[Copy, Copy, set[str]]:
    """The study in a copy of the repository, the bare Snakefile in a folder of its own, and all their outputs."""
    ours, bare = copied(folder / "ours"), Copy(folder / "bare")
    (ours.root / "config.yaml").write_text(yaml.safe_dump(declared, sort_keys=False), encoding="utf-8")
    for copy in (ours, bare):
        (copy.root / "data").mkdir(parents=True)
    for name in declared["sets"]:
        row = json.dumps({"q": f"What is one of {name}?", "a": "1"})
        (ours.root / "data" / f"{name}.jsonl").write_text(row + "\n", encoding="utf-8")
    snakefile = ours.root / "Snakefile"
    plain = snakefile.read_text(encoding="utf-8")
    snakefile.write_text(f"{plain}\n{_DUMP}\n_dump('fixed', 'benchmark_0')\n", encoding="utf-8")
    ours.snakemake("-n", "--quiet")
    snakefile.write_text(plain, encoding="utf-8")
    told = json.loads((ours.root / "rules.json").read_text(encoding="utf-8"))
    text, files = floor(told["rules"], told["constraints"])
    (bare.root / "Snakefile").write_text(text, encoding="utf-8")
    (bare.root / "files.json").write_text(json.dumps(files), encoding="utf-8")
    shutil.copytree(ours.root / "profiles", bare.root / "profiles")
    values = {
        "study": [declared["study"]],
        "arm": list(declared["arms"]),
        "seed": [str(seed) for seed in range(declared["seeds"])],
        "repeat": [str(repeat) for repeat in range(declared["evaluation"]["base_repeats"])],
        "benchmark": list(declared["sets"]),
    }
    return ours, bare, outputs(told["rules"], values)


def jobs(copy: Copy) -> int:
    """Jobs of a dry run."""
    found = re.search(r"^total +(\d+)", copy.snakemake("-n").stdout, re.MULTILINE)
    assert found, "no job statistics"
    return int(found[1])


def beside(copy: Copy, files: str) -> None:
    """Seconds of the commands, and of what a real run does before its first job."""
    for command in ("plan", "status"):
        _, wall, used, memory = run(copy, "-m", "workflow_scripts", command)
        print(f"armslength {command}, {files}: {wall:.1f} s, of processor {used:.1f} s, {memory:.0f} MB")
    snakefile = copy.root / "Snakefile"
    plain = snakefile.read_text(encoding="utf-8")
    timed = (
        "    import time\n\n    was = time.perf_counter()\n    begin()\n    print('BEGAN', time.perf_counter() - was)\n"
    )
    assert plain.count("    begin()\n") == 1
    snakefile.write_text(plain.replace("    begin()\n", timed), encoding="utf-8")
    target = "results/scale/holdouts/benchmark_0.parquet"
    text, *_ = run(copy, "-m", "snakemake", "--cores", "1", "--force", target)
    print(f"onstart, {files}: {float(text.partition('BEGAN ')[2].split()[0]):.2f} s", flush=True)
    snakefile.write_text(plain, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"arms": 20, "seeds": 10, "checkpoints": 10, "benchmarks": 7}
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="time_scale-") as folder:
        ours, bare, files = prepare(Path(folder), study(**{name: getattr(options, name) for name in sizes}))
        counts = [jobs(copy) for copy in (ours, bare)]
        print(f"jobs: {counts[0]}, bare {counts[1]}")
        assert abs(counts[0] - counts[1]) <= counts[0] / 100
        compare("dry run", ours, bare, options.rounds, ["-n", "--quiet"], "")
        beside(ours, "nothing there")
        for copy in (ours, bare):
            for file in files:
                (copy.root / file).parent.mkdir(parents=True, exist_ok=True)
                (copy.root / file).touch()
            run(copy, "-c", _TOUCH)
        compare("no-op", ours, bare, options.rounds, ["--cores", "2"], "Nothing to be done")
        beside(ours, "all there")


if __name__ == "__main__":
    main()
