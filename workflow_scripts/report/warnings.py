"""What a reader must know before the first number."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from workflow_scripts.figures.words import number, percent
from workflow_scripts.report.findings import CHECK_NAMES, GATES, known, primary
from workflow_scripts.statistics.effects import Verdict

NAMED = 10  # runs named in one warning

Row = dict[str, Any]


def _arms(rows: list[Row]) -> str:
    return ", ".join(dict.fromkeys(row["arm"] for row in rows))


def _range(rows: list[Row]) -> str:
    low, high = min(row["value"] for row in rows), max(row["value"] for row in rows)
    return percent(high) if percent(low) == percent(high) else f"{percent(low)} to {percent(high)}"


def _listed(runs: list[Row]) -> str:
    """By reason and arm, each said once: "gapo seeds 0, 1, fixed seed 2 (no checkpoints.parquet)"."""
    by_reason: dict[str, dict[str, list[int]]] = {}
    for row in runs[:NAMED]:
        by_reason.setdefault(row["reason"], {}).setdefault(row["arm"], []).append(row["seed"])
    said = [
        ", ".join(f"{arm} seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}" for arm, seeds in arms.items())
        + f" ({reason})"
        for reason, arms in by_reason.items()
    ]
    return "; ".join(said) + (f" and {len(runs) - NAMED} more" if len(runs) > NAMED else "")


def _reward_warnings(checks: list[Row]) -> list[str]:
    changed = [row for row in checks if row["check"] == "reward" and row["verdict"] == "warn"]
    found = []
    for again in dict.fromkeys(row["again"] for row in changed):
        rows = [row for row in changed if row["again"] == again]
        found.append(
            f"The runs were trained on other verdicts than they are judged by: the code's grader would give "
            f"{_range(rows)} of stored rollouts another reward ({_arms(rows)}); {again}."
        )
    return found


def _run_warnings(runs: list[Row]) -> list[str]:
    counted = [row for row in runs if row["status"] == "diverged" and known(row["steps"])]
    missing = [row for row in runs if row["status"] != "done" and row not in counted]
    seeds = Counter(row["arm"] for row in runs if row not in missing)
    single = [arm for arm, count in seeds.items() if count == 1]
    found = []
    if missing:
        found.append(f"{len(missing)} of {len(runs)} runs are missing: {_listed(missing)}.")
    if counted:
        found.append(f"Diverged, and counted with the scores of the last checkpoint: {_listed(counted)}.")
    diverged = [f"{row['arm']} seed {row['seed']}" for row in missing if row["status"] == "diverged"]
    if diverged:
        found.append(
            f"Diverged, and not among the scores: {', '.join(diverged)}. The scores of an arm without its failures are "
            "those of its survivors."
        )
    if single:
        found.append(
            f"One seed only: {', '.join(single)}. One run says nothing about training again; no interval is given."
        )
    return found


def _record_warnings(reachability: list[Row]) -> list[str]:
    flat = [r for r in reachability if r["check"] == "flat_groups" and r["verdict"] in ("warn", "fail")]
    cut = [r for r in reachability if r["check"] == "truncation" and r["verdict"] in ("warn", "fail")]
    found = [
        f"{r['arm']} {r['message']}. A run that collapsed counts, with the scores of its last checkpoint."
        for r in reachability
        if r["check"] == "collapse" and r["verdict"] == "warn"
    ]
    if flat:
        found.append(
            f"Most groups are flat: in {_range(flat)} of them all rollouts got the same reward and taught nothing "
            f"({_arms(flat)}). Training had little to work with."
        )
    if cut:
        found.append(
            f"Answers are cut off in training: {_range(cut)} of rollouts hit the token limit ({_arms(cut)}). "
            "A change of score may be a change of length."
        )
    return found


_NAMED = (  # checks whose message says enough
    "gold audit",
    "copied answers",
    "train prompts",
    "evaluation noise",
    "engines",
    "hardware",
    "contamination",
)


def warnings(
    effects: list[Row], runs: list[Row], reachability: list[Row], checks: list[Row], plan: Sequence[str] = ()
) -> list[str]:
    """What a reader must know before the first number, gravest first.

    checks: all other checks (controls, evaluation, contamination, audit) as rows check, arm, verdict, message.
    plan: what was changed after the study was put on record, and decides verdicts.
    """
    found = []
    for row in checks:
        if row["check"] != "sensitivity" or row["verdict"] != "fail":
            continue
        if row["outcome"] == Verdict.BETTER:
            found.append(
                f"{row['arm']}, an arm made to lose, was judged better than the baseline: what was to harm it does "
                "not, and nothing shows that this study can see a loss."
            )
        else:
            found.append(
                f"The study does not see the loss of {row['arm']}, an arm made to lose (verdict: {row['message']}). "
                "A study that cannot tell it from the baseline cannot tell anything."
            )
    found += [*plan, *_run_warnings(runs), *_reward_warnings(checks), *_record_warnings(reachability)]
    cut = [row for row in checks if row["check"] == "truncation in evaluation" and row["verdict"] == "warn"]
    if cut:
        found.append(f"Answers are cut off at the token limit in the evaluation: up to {_range(cut)} ({_arms(cut)}).")
    for gate in GATES:
        failed = [row for row in reachability if row["check"] == gate and row["verdict"] == "fail"]
        if failed:
            said = "; ".join(dict.fromkeys(row["message"] for row in failed))
            found.append(f"Failed: {CHECK_NAMES[gate]} ({_arms(failed)}): {said}.")
    for row in checks:
        if row["check"] == "contamination" and row["verdict"] == "fail":
            found.append(f"The contamination check cannot be trusted: {row['message']}.")
        elif row["check"] == "placebo" and row["verdict"] == "warn":
            found.append(f"The placebo {row['arm']} was judged {row['message']}: here the study errs, or was unlucky.")
        elif row["check"] in _NAMED and row["verdict"] == "warn":
            found.append(f"{row['check'].capitalize()}: {row['message']}.")
    looks = {row["look"] for row in primary(effects).values() if row["planned_look"] is False}
    unplanned = sorted(looks - {1})  # one seed has no verdict
    if unplanned:
        seeds = ", ".join(number(look, 0) for look in unplanned)
        found.append(f"A look at {seeds} seeds was not planned: its verdicts are exploratory.")
    return found
