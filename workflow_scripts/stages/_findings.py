"""What the report says in words: a sentence per arm, the checks, and the warnings that stand before any result."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from workflow_scripts.figures.words import interval, number, percent, points
from workflow_scripts.stages._deviations import Plan
from workflow_scripts.stages._records import OFTEN_TRUNCATED
from workflow_scripts.statistics.effects import NO_DIFFERENCE

MANY_DROPPED = 0.02  # share of reference answers that fail their own audit, above which the set deserves a look

CHECK_NAMES = {
    "noise_control": "clip fires only when it should",
    "clip_live": "upper clip is live",
    "decisive_tokens": "decisive tokens",
    "premise": "premise: drift grows with advantage",
    "flat_groups": "flat groups",
    "truncation": "truncation in training",
    "collapse": "collapse of entropy or reward",
    "frozen_weights": "frozen weights",
    "initial_weights": "same initial weights",
}
GATES = ("noise_control", "clip_live", "decisive_tokens", "frozen_weights")  # failed, they make the effects void
MANY_LONG = 0.02  # share of train problems whose prompts are too long, above which it is another train set
NAMED = 10  # runs named in one warning
DECIDED = ("better", "worse")
GRAVITY = ("fail", "warn", "pass", None)  # worst first; None: does not apply

Row = dict[str, Any]


def known(value: Any) -> bool:
    """Neither null nor nan."""
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def primary(effects: list[Row]) -> dict[str, Row]:
    """arm -> its one primary row."""
    return {row["arm"]: row for row in effects if row["primary"] and row["estimand"] == "benchmark"}


def verdict_parts(row: Row) -> tuple[str, str, str]:
    """One arm's name, its verdict, and the numbers, in points, that follow it."""
    because = f"; {row['reason']}" if row["reason"] else ""
    if not known(row["ci_low"]):
        measured = f"; measured {points(row['delta'])}, without an interval" if known(row["delta"]) else ""
        return row["arm"], row["verdict"], because + measured
    verdict = row["verdict"] + (f" than {row['baseline']}" if row["verdict"] in DECIDED else "")
    numbers = f"{points(row['delta'])} {interval(row['ci_low'], row['ci_high'])}"
    return row["arm"], verdict, f": {numbers}, margin {100 * row['margin']:g}{because}"


def verdict_sentence(row: Row) -> str:
    """The same as one sentence: "gapo: worse than grpo: −9.4 points [−12.1, −7.0], margin 5"."""
    arm, verdict, numbers = verdict_parts(row)
    return f"{arm}: {verdict}{numbers}"


def verdict_kind(verdict: str) -> str:
    """decided (better, worse), nothing (no difference), open (inconclusive) or unknown: how the page marks it."""
    if verdict in DECIDED:
        return "decided"
    return "nothing" if verdict == NO_DIFFERENCE else "open" if verdict.startswith("inconclusive") else "unknown"


def endpoint_note(comparisons: list[Row], controls: list[Row], baseline: str, looks: int) -> str:
    """What the verdicts are of, and at which level. looks: planned ones. comparisons, controls: their primary rows."""
    first = next(iter([*comparisons, *controls]), None)
    if first is None:
        return ""

    def levels(rows: list[Row]) -> str:
        return ", ".join(sorted({f"{100 * row['level']:.4g} %" for row in rows}))

    plural = "s" if looks != 1 else ""
    parts = [f"Primary endpoint: pass@{first['pass_at']} on {first['benchmark']}, difference from {baseline} in points "
             "(hundredths)."]  # fmt: skip
    if comparisons:
        arms = f"{len(comparisons)} compared arm{'s' if len(comparisons) != 1 else ''}"
        parts.append(f"Intervals and verdicts are over re-trainings, at {levels(comparisons)}: corrected for {arms} "
                     f"and {looks} planned look{plural}.")  # fmt: skip
    if controls:
        parts.append(f"Those of controls are at {levels(controls)}: each is judged alone, over {looks} look{plural}.")
    parts.append(f"The margin of {100 * first['margin']:g} points is the study's.")
    if any(row["verdict"] == NO_DIFFERENCE for row in [*comparisons, *controls]):
        parts.append("“No difference beyond the margin” comes from two one-sided tests at the same level; the interval "
                     "shown is two-sided and may reach a little past the margin.")  # fmt: skip
    return " ".join(parts)


def control_checks(effects: list[Row]) -> list[Row]:
    """Placebo and sensitivity arms: what the study says of nothing, and whether it sees a real loss."""
    rows = []
    for arm, row in primary(effects).items():
        verdict, differs = row["verdict"], row["verdict"] in ("better", "worse")
        if row["role"] == "placebo":
            state = None if verdict == "not assessable" else "warn" if differs else "pass"
            text = f"{verdict}, of an arm that is the baseline under other seeds"
            rows.append({"check": "placebo", "arm": arm, "verdict": state, "message": text})
        elif row["role"] == "sensitivity":
            state = None if verdict == "not assessable" else "pass" if verdict == "worse" else "fail"
            text = f"{verdict}, of an arm that should lose"
            rows.append({"check": "sensitivity", "arm": arm, "verdict": state, "message": text})
    return rows


def evaluation_checks(scores: list[Row], noise_floors: list[Row], endpoint: tuple[str, int]) -> list[Row]:
    """Answers cut off in the evaluation, by arm; and whether repeated evaluations of the base spread as they should.

    endpoint: benchmark and k of the primary one. It alone warns: of many spreads, each at 5 %, some always stand out.
    """
    rows: list[Row] = []
    states = {"as expected": "pass", "not assessable": None}
    shares: dict[str, float] = {}
    for row in scores:
        if row["level"] == "arm" and known(row["truncated_share"]):
            shares[row["arm"]] = max(shares.get(row["arm"], 0.0), row["truncated_share"])
    for arm, share in shares.items():
        text = f"at most {percent(share)} of answers cut off at the token limit, over checkpoints and benchmarks"
        verdict = "warn" if share > OFTEN_TRUNCATED else "pass"
        rows.append(
            {"check": "truncation in evaluation", "arm": arm, "verdict": verdict, "message": text, "value": share}
        )
    for row in noise_floors:
        if row["kind"] == "evaluation":
            text = f"{row['benchmark']}, pass@{row['pass_at']}: spread {row['verdict']}"
            text += f" ({row['reason']})" if row["reason"] else ""
            state = states.get(row["verdict"], "warn" if (row["benchmark"], row["pass_at"]) == endpoint else None)
            rows.append({"check": "evaluation noise", "arm": row["arm"], "verdict": state, "message": text})
    return rows


def contamination_checks(contamination: list[Row]) -> list[Row]:
    """Per benchmark: did the search find what was planted, and what did it find that was not."""
    rows = []
    for benchmark in sorted({row["benchmark"] for row in contamination}):
        here = [row for row in contamination if row["benchmark"] == benchmark]
        planted = [row["caught"] for row in here if row["caught"] is not None]
        real = [row for row in here if row["caught"] is None]
        removed = len({row["other_problem_id"] for row in real if row["removed"]})
        kept = {(row["kind"], row["holdout_problem_id"]) for row in real if not row["removed"]}
        kinds = Counter(kind for kind, _ in kept)
        listed = ", ".join(f"{kind.replace('_', ' ')} ({count} problems)" for kind, count in sorted(kinds.items()))
        control = f"{sum(planted)} of {len(planted)} planted copies found" if planted else "no positive control was run"
        text = f"{benchmark}: {control}; {removed} train rows matched and removed; listed and kept: {listed or 'none'}"
        state = "pass" if planted and all(planted) else "fail"
        rows.append({"check": "contamination", "arm": "", "verdict": state, "message": text})
    return rows


def audit_checks(audits: list[list[Row]]) -> list[Row]:
    """Per problem set: reference answers that do not grade themselves correct."""
    rows = []
    for audit in audits:
        if not audit:
            continue
        reasons = Counter(row["reason"] or row["status"] for row in audit if row["dropped"])
        dropped = sum(reasons.values())
        why = ": " + ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(3)) if dropped else ""
        state = "warn" if dropped > MANY_DROPPED * len(audit) else "pass"
        text = f"{audit[0]['benchmark']}: {dropped} of {len(audit)} reference answers left out{why}"
        rows.append({"check": "gold audit", "arm": "", "verdict": state, "message": text})
    return rows


def engine_checks(runs: list[Row]) -> list[Row]:
    """Rollouts, and completions, of all runs by one engine, and training on one kind of hardware: two do not round
    alike."""
    said = {
        "rollout_engine": "rollouts drawn by", "sampling_engine": "completions drawn by", "hardware": "runs trained on",
    }  # fmt: skip
    rows = []
    for column, what in said.items():
        names = sorted({row[column] for row in runs if row[column]})
        if names:
            check = "hardware" if column == "hardware" else "engines"
            text = f"{what} {'; '.join(names)}"
            rows.append({"check": check, "arm": "", "verdict": "warn" if len(names) > 1 else "pass",
                         "message": text})  # fmt: skip
    return rows


def prompt_checks(runs: list[Row], max_prompt: int | None) -> list[Row]:
    """Train problems left out because their prompts are too long: of all runs the same."""
    counts = sorted({(row["long_prompts"], row["train_problems"]) for row in runs if known(row["long_prompts"])})
    return [
        {"check": "train prompts", "arm": "", "verdict": "warn" if long > MANY_LONG * problems else "pass",
         "message": f"{long} of {problems} train problems have prompts above rollout.max_prompt, {max_prompt} tokens, "
         "and are left out"}
        for long, problems in counts
    ]  # fmt: skip


def _reward_check(arm: str, runs: list[Row]) -> Row:
    graded = [row for row in runs if row["regraded"]]
    whys = dict.fromkeys(row["reason"] for row in runs if row["reason"])
    row: Row = {"check": "reward", "arm": arm, "verdict": None, "message": f"not known: {'; '.join(whys)}"}
    if not graded:
        return row
    total, changed, right, wrong = (
        sum(run[name] for run in graded) for name in ("regraded", "changed", "to_correct", "to_wrong")
    )
    held, own = graded[0]["reward_version"], graded[0]["code_reward_version"]
    text = f"all {total} stored rewards are what the code's grader gives"
    if changed:
        text = f"{percent(changed / total)} of {total} stored rewards would be others under "
        text += f"reward version {own} (held to {held})" if own != held else f"the code's grader, of version {own} too"
        text += f": {right} would be 1, {wrong} would be 0"
    elif own != held:
        text += f", which is of reward version {own}: what was trained under {held} stays valid"
    text += f"; of {len(runs) - len(graded)} of {len(runs)} runs not known: {'; '.join(whys)}" if whys else ""
    again = (
        "--config retrain_on_reward_change=true trains again"
        if own != held
        else "its REWARD_VERSION does not say so: raise it, or nothing can train again"
    )
    return row | {
        "verdict": "warn" if changed else "pass", "value": changed / total, "message": text, "again": again,
    }  # fmt: skip


def reward_checks(rewards: list[Row]) -> list[Row]:
    """By arm: would the stored rollouts of its runs get the same rewards from the grader of this code?"""
    arms = dict.fromkeys(row["arm"] for row in rewards)
    return [_reward_check(arm, [row for row in rewards if row["arm"] == arm]) for arm in arms]


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


def by_check(reachability: list[Row], others: list[Row], arms: list[str]) -> dict[str, list[Row]]:
    """All checks by what is checked, those of the table `reachability` first; arms in the study's order."""
    places = {arm: place for place, arm in enumerate(arms)}
    grouped: dict[str, list[Row]] = {name: [] for name in CHECK_NAMES.values()}
    for row in reachability:
        grouped[CHECK_NAMES[row["check"]]].append(row)
    for row in others:
        grouped.setdefault(row["check"], []).append(row)
    return {name: sorted(rows, key=lambda row: places.get(row["arm"], -1)) for name, rows in grouped.items() if rows}


def plan_checks(plan: Plan | None) -> list[Row]:
    """Was what decides verdicts put on record before training, and left as it was?"""
    if plan is None:
        return [{"check": "plan", "arm": "", "verdict": None, "message": "no plan is on record"}]
    state, count = "warn", len(plan.warnings) - (plan.before_training is False)
    said = f"{count} change{'s' if count != 1 else ''} of what decides verdicts"
    if plan.before_training is False:
        text = f"recorded on {plan.recorded}, after training had begun" + (f"; {said} since" if count else "")
    elif count:
        text = f"{said} since {plan.recorded}"
    else:
        state, text = "pass", f"as recorded on {plan.recorded}: nothing that decides verdicts is other now"
        text += f" (other changes: {len(plan.changes)}, listed under Provenance)" if plan.changes else ""
    return [{"check": "plan", "arm": "", "verdict": state, "message": text}]


def worst_first(checks: dict[str, list[Row]]) -> list[Row]:
    """The checks as the page folds them: name, verdict (the worst of its rows), rows, a line that stands for all."""
    found = []
    for name, rows in checks.items():
        verdict = min((row["verdict"] for row in rows), key=GRAVITY.index)
        told = [row for row in rows if row["verdict"] == verdict]
        by_arm = any(row["arm"] for row in rows)
        line = (f"{told[0]['arm']}: " if by_arm and told[0]["arm"] else "") + told[0]["message"]
        line += f"; and {len(rows) - 1} more" if len(rows) > 1 else ""
        found.append({"name": name, "verdict": verdict, "rows": rows, "by_arm": by_arm, "line": line})
    return sorted(found, key=lambda group: GRAVITY.index(group["verdict"]))


def _arms(rows: list[Row]) -> str:
    return ", ".join(dict.fromkeys(row["arm"] for row in rows))


def _range(rows: list[Row]) -> str:
    low, high = min(row["value"] for row in rows), max(row["value"] for row in rows)
    return percent(high) if percent(low) == percent(high) else f"{percent(low)} to {percent(high)}"


def _listed(runs: list[Row]) -> str:
    names = ", ".join(f"{row['arm']} seed {row['seed']} ({row['reason']})" for row in runs[:NAMED])
    return names + (f" and {len(runs) - NAMED} more" if len(runs) > NAMED else "")


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
        if row["message"].startswith("better"):
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
        elif (
            row["check"] in ("gold audit", "train prompts", "evaluation noise", "engines", "hardware")
            and row["verdict"] == "warn"
        ):
            found.append(f"{row['check'].capitalize()}: {row['message']}.")
    looks = {row["look"] for row in primary(effects).values() if row["planned_look"] is False}
    unplanned = sorted(looks - {1})  # one seed has no verdict
    if unplanned:
        seeds = ", ".join(number(look, 0) for look in unplanned)
        found.append(f"A look at {seeds} seeds was not planned: its verdicts are exploratory.")
    return found
