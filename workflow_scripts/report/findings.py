"""What the report says in words: a sentence per arm, the checks, and the warnings that stand before any result."""

import math
from collections import Counter
from collections.abc import Collection
from typing import Any

from workflow_scripts.analysis.records import OFTEN_TRUNCATED
from workflow_scripts.figures.words import interval, number, percent, points
from workflow_scripts.report.deviations import Plan
from workflow_scripts.statistics.effects import Verdict
from workflow_scripts.statistics.noise_floor import NoiseVerdict

MANY_DROPPED = 0.02  # share of reference answers that fail their own audit, above which the set deserves a look
MANY_COPIED = 0.05  # share of problems that pay for an expression of their question: what copying alone may score

CHECK_NAMES = {
    "noise_control": "clip fires only when it should",
    "clip_live": "the clip acts",
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
VOID = "void"  # in place of a verdict, where the change cannot have reached the loss
GRAVITY = ("fail", "warn", "pass", None)  # worst first; None: does not apply

Row = dict[str, Any]


def known(value: Any) -> bool:
    """Neither null nor nan."""
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def primary(effects: list[Row]) -> dict[str, Row]:
    """arm -> its one primary row."""
    return {row["arm"]: row for row in effects if row["primary"] and row["estimand"] == "benchmark"}


def void(reachability: list[Row]) -> dict[str, str]:
    """arm -> why its effect says nothing of its change, whatever the number of seeds: a gate that it has failed.

    The gates of clipping count for arms that differ from the baseline in their bounds alone.
    """
    in_bounds = {row["arm"] for row in reachability if row["check"] == "decisive_tokens" and row["verdict"]}
    found: dict[str, str] = {}
    for row in reachability:
        concerned = row["check"] == "frozen_weights" or row["arm"] in in_bounds
        if row["check"] in GATES and row["verdict"] == "fail" and concerned:
            found.setdefault(row["arm"], f"{CHECK_NAMES[row['check']]}: {row['message']}")
    return found


def verdict_parts(row: Row) -> tuple[str, str, str]:
    """One arm's name, its verdict, and the numbers, in points, that follow it. void: see `void`, if the arm is."""
    if row.get("void"):
        measured = f"; measured {points(row['delta'])}" if known(row["delta"]) else ""
        return row["arm"], VOID, f": {row['void']}{measured}"
    because = f"; {row['reason']}" if row["reason"] else ""
    if not known(row["ci_low"]):
        measured = f"; measured {points(row['delta'])}, without an interval" if known(row["delta"]) else ""
        return row["arm"], row["verdict"], because + measured
    verdict = row["verdict"] + (f" than {row['baseline']}" if Verdict(row["verdict"]).decided else "")
    numbers = f"{points(row['delta'])} {interval(row['ci_low'], row['ci_high'])}"
    return row["arm"], verdict, f": {numbers}, margin {100 * row['margin']:g}{because}"


def verdict_sentence(row: Row) -> str:
    """The same as one sentence: "gapo: worse than grpo: −9.4 points [−12.1, −7.0], margin 5"."""
    arm, verdict, numbers = verdict_parts(row)
    return f"{arm}: {verdict}{numbers}"


def verdict_kind(verdict: str) -> str:
    """decided (better, worse), nothing (no difference), open (inconclusive) or unknown: how the page marks it."""
    known_verdict = Verdict(verdict)
    if known_verdict.decided:
        return "decided"
    return "nothing" if verdict == Verdict.NO_DIFFERENCE else "open" if known_verdict.inconclusive else "unknown"


def endpoint_note(comparisons: list[Row], controls: list[Row], baseline: str, looks: int) -> str:
    """What the verdicts are of, and at which level. looks: planned ones. comparisons, controls: their primary rows."""
    first = next(iter([*comparisons, *controls]), None)
    if first is None:
        return ""

    def levels(rows: list[Row]) -> str:
        return ", ".join(sorted({f"{100 * row['level']:.4g} %" if row["level"] < 0.999 else percent(row["level"])
                                 for row in rows}))  # fmt: skip

    plural = "s" if looks != 1 else ""
    parts = [f"Primary endpoint: pass@{first['pass_at']} on {first['benchmark']}, difference from {baseline} in points "
             "(hundredths)."]  # fmt: skip
    if any(known(row["ci_low"]) for row in comparisons):
        arms = f"{len(comparisons)} compared arm{'s' if len(comparisons) != 1 else ''}"
        parts.append(f"Intervals and verdicts are over re-trainings, at {levels(comparisons)}: corrected for {arms} "
                     f"and {looks} planned look{plural}.")  # fmt: skip
    if any(known(row["ci_low"]) for row in controls):
        parts.append(f"Those of controls are at {levels(controls)}: each is judged alone, over {looks} look{plural}.")
    parts.append(f"The margin of {100 * first['margin']:g} points is the study's.")
    if any(row["verdict"] == Verdict.NO_DIFFERENCE for row in [*comparisons, *controls]):
        parts.append("“No difference beyond the margin” comes from two one-sided tests at the same level; the interval "
                     "shown is two-sided and may reach a little past the margin.")  # fmt: skip
    return " ".join(parts)


def _measured(row: Row) -> str:
    if not known(row["ci_low"]):
        return ""
    return f" ({points(row['delta'])} {interval(row['ci_low'], row['ci_high'])})"


def run_checks(runs: list[Row], effects: list[Row]) -> list[Row]:
    """Are all declared runs there, and was this look at them planned?"""
    done = sum(row["status"] == "done" for row in runs)
    text = f"{done} of {len(runs)} runs trained and evaluated"
    rows: list[Row] = [
        {"check": "runs", "arm": "", "verdict": "pass" if done == len(runs) else "warn", "message": text}
    ] if runs else []  # fmt: skip
    seen = {(row["look"], row["planned_look"]) for row in primary(effects).values() if known(row["look"])}
    for look, planned in sorted(seen, key=str):
        text = f"a look at {look} seed{'s' * (look != 1)} was {'' if planned else 'not '}planned"
        state = None if planned is None else "pass" if planned else "warn"
        rows.append({"check": "planned look", "arm": "", "verdict": state, "message": text})
    return rows


def control_checks(effects: list[Row]) -> list[Row]:
    """Placebo and sensitivity arms: what the study says of nothing, and whether it sees a real loss."""
    rows = []
    for arm, row in primary(effects).items():
        verdict = Verdict(row["verdict"])
        if row["role"] == "placebo":
            state = None if verdict == Verdict.NOT_ASSESSABLE else "warn" if verdict.decided else "pass"
            text = f"{verdict}{_measured(row)}, of an arm that is the baseline under other seeds"
            rows.append({"check": "placebo", "arm": arm, "verdict": state, "message": text})
        elif row["role"] == "sensitivity":
            state = "pass" if verdict == Verdict.WORSE else "fail"
            state = None if verdict == Verdict.NOT_ASSESSABLE else state
            text = f"{verdict}{_measured(row)}, of an arm that should lose"
            rows.append({"check": "sensitivity", "arm": arm, "verdict": state, "message": text, "outcome": verdict})
    return rows


def evaluation_checks(scores: list[Row], noise_floors: list[Row], endpoint: tuple[str, int]) -> list[Row]:
    """Answers cut off in the evaluation, by arm; and whether repeated evaluations of the base spread as they should.

    endpoint: benchmark and k of the primary one. It alone warns: of many spreads, each at 5 %, some always stand out.
    """
    rows: list[Row] = []
    states = {NoiseVerdict.AS_EXPECTED: "pass", NoiseVerdict.NOT_ASSESSABLE: None}
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
            if known(row["sd"]) and known(row["expected_sd"]):
                text += f": SD {number(100 * row['sd'])} points, expected {number(100 * row['expected_sd'])}"
            text += f" ({row['reason']})" if row["reason"] else ""
            state = states.get(row["verdict"], "warn" if (row["benchmark"], row["pass_at"]) == endpoint else None)
            rows.append({"check": "evaluation noise", "arm": row["arm"], "verdict": state, "message": text})
    return rows


_NO_CONTROL = "no positive control was run"
_EDITS = {  # copies that a study may miss some of
    "control_sentence": "with the first sentence moved",
    "control_numbers": "with numbers in words",
}
_FEW_MISSED = 0.05


def _missed(planted: list[Row]) -> list[Row]:
    return [row for row in planted if not row["caught"]]


def contamination_checks(
    contamination: list[Row], problems: dict[str, int], without_rows: Collection[str] = ()
) -> list[Row]:
    """Per benchmark: did the search find what was planted, and what did it find that was not.

    problems: how many each benchmark has, as far as that is known. without_rows: benchmarks in which nothing could be
    planted or found.
    """
    rows = []
    for benchmark in sorted({*without_rows, *(row["benchmark"] for row in contamination)}):
        here = [row for row in contamination if row["benchmark"] == benchmark]
        if not here:
            text = f"{benchmark}: no problem has words or numbers by which copies in the train set could be found"
            rows.append({"check": "contamination", "arm": "", "verdict": "warn", "message": text})
            continue
        planted = [row for row in here if row["caught"] is not None]
        missed, forms = (Counter(row["kind"] for row in rows) for rows in (_missed(planted), planted))
        lost = ", ".join(f"{missed[kind]} of {forms[kind]} {form}" for kind, form in _EDITS.items() if missed[kind])
        compared = {row["holdout_problem_id"] for row in planted if row["kind"] == "control_spacing"}
        blank = max(0, problems.get(benchmark, len(compared)) - len(compared))
        real = [row for row in here if row["caught"] is None]
        removed = len({row["other_problem_id"] for row in real if row["removed"]})
        kept = {(row["kind"], row["holdout_problem_id"]) for row in real if not row["removed"]}
        kinds = Counter(kind for kind, _ in kept)
        listed = ", ".join(f"{kind.replace('_', ' ')} ({count})" for kind, count in sorted(kinds.items()))
        control = f"{len(planted) - missed.total()} of {len(planted)} planted copies found" if planted else _NO_CONTROL
        control += f" (not found: {lost})" if lost else ""
        control += f"; {blank} problems without words and numbers were looked for only as they stand" if blank else ""
        of = f" of {problems[benchmark]} problems" if benchmark in problems else ""
        text = f"{benchmark}: {control}; {removed} train rows matched and removed; listed and kept{of}: "
        text += listed or "none"
        few = all(missed[kind] <= _FEW_MISSED * forms[kind] for kind in missed)
        state = "pass" if few and not blank else "warn"
        state = state if planted and missed.keys() <= _EDITS.keys() else "fail"
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
        rows += _copy_check(audit)
    return rows


def _copy_check(audit: list[Row]) -> list[Row]:
    """Of one problem set: problems whose question shows an expression that equals the reference answer; [] if none."""
    copies = [row for row in audit if row["copy"] is not None and not row["dropped"]]
    paid = sum(row["copy_paid"] for row in copies)
    if not copies:
        return []
    text = (
        f"{audit[0]['benchmark']}: {paid} of {len(audit)} problems ({percent(paid / len(audit))}) pay an answer that "
        f"copies an expression of the question"
    )
    if paid < len(copies):
        text += f"; grading.copied: refuse leaves {len(copies) - paid} more unpaid"
    state = "warn" if paid > MANY_COPIED * len(audit) else "pass"
    return [{"check": "copied answers", "arm": "", "verdict": state, "message": text}]


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


def worst_first(checks: dict[str, list[Row]], compared: Collection[str]) -> list[Row]:
    """The checks as the page folds them: name, verdict (the worst of its rows), rows, a line that stands for all.

    compared: arms that answer the question, and the baseline. What passes for none of them is no pass of the study.
    """
    found = []
    for name, rows in checks.items():
        verdict = min((row["verdict"] for row in rows), key=GRAVITY.index)
        ours = {row["verdict"] for row in rows if row["arm"] in compared} if name in CHECK_NAMES.values() else set()
        if verdict == "pass" and ours == {None}:
            verdict = None
        told = [row for row in rows if row["verdict"] == verdict]
        by_arm = any(row["arm"] for row in rows)
        line = (f"{told[0]['arm']}: " if by_arm and told[0]["arm"] else "") + told[0]["message"]
        line += f"; and {len(rows) - 1} more" if len(rows) > 1 else ""
        found.append({"name": name, "verdict": verdict, "rows": rows, "by_arm": by_arm, "line": line})
    return sorted(found, key=lambda group: GRAVITY.index(group["verdict"]))
