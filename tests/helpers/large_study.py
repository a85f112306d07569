"""Tables of a study of any size, for the tests of what a page and its figures make of many arms, or of few."""

from typing import Any

import numpy as np
import report_study
from report_study import BENCHMARK, NO_DIFFERENCE

from workflow_scripts import stage_settings
from workflow_scripts.study import load

LONG = "gapo_" + "w" * 190 + "_last"  # 200 characters without a place to break
UNICODE = "Größe-Ω-漢字-🙂-عربي"
Rows = dict[str, list[dict[str, Any]]]


def arms_of(count: int) -> list[str]:
    """So many names, the baseline first, one of them very long and one in other scripts."""
    special = ["gspo_asym", LONG, UNICODE]
    return [*special, *(f"arm_{n:02d}" for n in range(3, count))][:count]


def roles_of(arms: list[str]) -> dict[str, str]:
    """All comparisons."""
    return dict.fromkeys(arms, "comparison")


def settings(arms: list[str], seeds: int) -> dict[str, Any]:
    """Of the report."""
    of_arms = {"arms": arms, "roles": roles_of(arms), "runs": {arm: list(range(seeds)) for arm in arms}}
    return report_study.ANALYSIS | of_arms | {"looks": [seeds], "compared": _compared(arms)}


def _compared(arms: list[str]) -> dict[str, Any]:
    """What a study of these arms says was compared, the baseline first; names that no study allows are put in after."""
    ppo, gapo = {"preset": "gspo_asym", "eps_low": 3e-3, "eps_high": 5e-3}, {"preset": "gapo_seq"}
    study = load({
        "study": "large", "model": {"source": "embedded"}, "baseline": "arm-0",
        "data": {"train": {"benchmark": "word_problems_train", "rows": 4000, "seed": 7}},
        "rollout": {"max_completion": 32}, "training": {"steps": 48, "learning_rate": 3e-4},
        "arms": {f"arm-{n}": gapo | {"eps_high_max": 5e-3 + n / 1000} if n else ppo for n in range(len(arms))},
        "evaluation": {"benchmarks": [BENCHMARK], "problems": 400, "max_completion": 32},
    })  # fmt: skip
    found = stage_settings.report(study)["compared"]
    return found | {"arms": dict(zip(arms, found["arms"].values(), strict=True))}


def _effects(arms: list[str], seeds: int, random: np.random.Generator) -> list[dict]:
    rows = []
    for arm in arms[1:]:
        delta, half = random.normal(0, 0.02), 0.02
        low, high = (delta - half, delta + half) if seeds > 1 else (None, None)
        verdict = "not assessable" if seeds < 2 else "better" if low > 0 else "worse" if high < 0 else NO_DIFFERENCE
        row = report_study.effect(arm, delta, low, high, verdict, mde80=0.03, seeds_needed=4)
        row |= {"seeds": seeds, "baseline_seeds": seeds, "look": seeds, "p": 0.2, "level": 0.99}
        rows += [row, row | {"pass_at": 8, "primary": False}]
    return rows


def _scores(arms: list[str], seeds: int, random: np.random.Generator) -> list[dict]:
    base = [row for row in report_study.scores() if row["arm"] == "base"]
    beside = {key: base[0][key] for key in ("problems", "samples", "truncated_share", "unparsed_share", "benchmark",
                                            "metric", "mean_completion_tokens")}  # fmt: skip
    rows = list(base)
    for arm in arms:
        for k, top in ((1, 0.6), (8, 0.9)):
            for step in (24, 48):
                values = np.clip(top + step / 1000 + random.normal(0, 0.02, seeds), 0, 1).tolist()
                shared = {"arm": arm, "step": step, "pass_at": k, **beside}
                rows.append({"level": "arm", "score": sum(values) / seeds, "seeds": seeds, **shared})
                rows += [{"level": "run", "seed": s, "score": v, "seeds": 1, **shared} for s, v in enumerate(values)]
    return rows


def _examples(arms: list[str], problems: int, characters: int) -> list[dict]:
    text = ("so we have 3 apples and \u00bd of them are red; " * (1 + characters // 40))[:characters]
    return [
        {"benchmark": BENCHMARK, "problem_id": f"p{n}", "picked": "difference" if n % 5 else "random", "runs": 3,
         "question": f"Problem {n}: {text[:200]}", "answer": "4", "arm": arm, "samples": 24, "seed": 0, "step": 48,
         "correct": (n * 7 + len(arm)) % 25, "sample": sample, "completion": f"{sample} {arm[:20]} {n} {text}",
         "status": "correct" if sample < 2 else "wrong", "characters": 4000}
        for n in range(problems) for arm in ("base", *arms) for sample in range(4)
    ]  # fmt: skip


def large(arms: list[str], seeds: int, *, problems: int = 50, characters: int = 850) -> Rows:
    """Rows of every table that the report reads. problems, characters: of the completions shown."""
    random = np.random.default_rng(7)
    small = report_study.contents()
    done = small["runs"][0]
    update = {key: value for key, value in small["dynamics"][0].items() if key not in ("arm", "seed", "step")}
    checks = {row["check"]: row for row in small["reachability"]}
    runs = [(arm, seed) for arm in arms for seed in range(seeds)]
    asked = small["policies"][1] | {"group_correct": None}
    return small | {
        "effects": _effects(arms, seeds, random),
        "scores": _scores(arms, seeds, random),
        "runs": [done | {"arm": arm, "seed": seed, "role": "comparison", "sample_seconds": 9.0} for arm, seed in runs],
        "rewards": [small["rewards"][0] | {"arm": arm, "seed": seed} for arm, seed in runs],
        "dynamics": [{"arm": arm, "seed": seed, "step": 2 + 4 * n, **update} for arm, seed in runs for n in range(12)],
        "policies": [asked | {"arm": arm, "seed": seed, "policy": policy, "own": policy == arm}
                     for arm, seed in runs for policy in arms],
        "reachability": [row | {"arm": arm} for arm in arms for row in checks.values()],
        "coverage": [small["coverage"][0] | {"arm": arm} for arm in arms],
        "difficulty": [small["difficulty"][0] | {"arm": arm, "place": place, "bin": str(place)}
                       for arm in arms[1:] for place in range(4)],
        "noise_floors": [small["noise_floors"][0], *(small["noise_floors"][1] | {"arm": arm, "runs": seeds, "step": 48}
                                                     for arm in arms if seeds > 1)],
        "examples": _examples(arms, problems, characters),
        "power": [row | ({} if seeds > 1 else dict.fromkeys(("run_sd", "mde80_one", "mde80_family", "resolves_margin")))
                  for row in small["power"]],
    }  # fmt: skip
