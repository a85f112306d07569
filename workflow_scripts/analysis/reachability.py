"""Could this comparison have shown anything? Clip, premise, groups, truncation, collapse and weights of every arm."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from workflow_scripts import tables
from workflow_scripts.analysis.clipping import NOISE, RARE, Clip, judge
from workflow_scripts.analysis.collapse import Course, collapse, course, entropy_ends
from workflow_scripts.analysis.decisive import Replay, Unanswerable, decisive_tokens
from workflow_scripts.analysis.records import (
    MOSTLY_FLAT,
    OFTEN_TRUNCATED,
    QUADRANTS,
    clipped_by_quadrant,
    old_log_probs,
    run_files,
    run_tables,
)
from workflow_scripts.figures.words import number, percent
from workflow_scripts.job import Job

Row = dict[str, Any]


@dataclass
class Measured:
    """What one run's records say: sums, so that runs pool by adding, and the slope of the premise."""

    clipped_first: int  # clipped tokens at update index 0
    active_first: int  # tokens of rollouts with an advantage at update index 0
    clipped_later: int  # the same at update index 1 and later
    active_later: int
    quadrants_later: dict[int, tuple[int, int]]  # clipped tokens, and tokens with that sign of the advantage
    flat_groups: int
    groups: int
    truncated: int
    rollouts: int
    slope: float | None
    decisive: tuple[int, int] = (0, 0)
    undecided: str | None = None  # why decisive tokens are not known


@dataclass
class RecordedArm:
    """One arm's settings and runs, as the checks see them."""

    name: str
    objective: dict[str, Any]
    updates_per_batch: int
    compared: str | None  # why there are no decisive tokens; None if there are
    runs: list[Measured] = field(default_factory=list)
    weights: dict[int, dict[str, Any]] = field(default_factory=dict)  # seed -> footer of its checkpoints
    courses: dict[int, Course] = field(default_factory=dict)  # by seed
    parent: "RecordedArm | None" = None  # what the arm branches off
    branch_step: int = 0

    def course(self, seed: int) -> Course:
        """A run from the first update on, those of the arm it branches off included."""
        own = self.courses[seed]
        if self.parent is None or seed not in self.parent.courses:
            return own
        return own.after(self.parent.course(seed), self.branch_step)

    def share(self, part: str, whole: str) -> float | None:
        """Pooled over runs; None where nothing was counted."""
        total = sum(getattr(m, whole) for m in self.runs)
        return sum(getattr(m, part) for m in self.runs) / total if total else None


def premise_slope(records: pd.DataFrame, ratio: str) -> float | None:
    """Least-squares slope of |ratio - 1| on the advantage, over positive rollouts at update index >= 1.

    The mechanism of arXiv:2609.00444 (Fig. 1): correct rollouts of rarely solved prompts, whose advantage is large,
    drift fastest. None with fewer than two different advantages. ratio: sequence (|s - 1|) or token (the rollout's mean
    of |r - 1|).
    """
    rows = records[(records["update_index"] >= 1) & (records["advantage"] > 0)]
    advantage = rows["advantage"].to_numpy(dtype=np.float64)
    if len(np.unique(advantage)) < 2:
        return None
    if ratio == "sequence":
        deviation = np.abs(np.expm1(rows["mean_log_ratio"].to_numpy(dtype=np.float64)))
    else:
        deviation = (rows["sum_abs_ratio_deviation"] / rows["completion_tokens"].clip(lower=1)).to_numpy(np.float64)
    return float(stats.linregress(advantage, deviation).slope)


def measure(records: pd.DataFrame, ratio: str) -> Measured:
    """Sums over one run's rollout_updates."""
    first = records["update_index"] == 0
    active = records["advantage"] != 0
    tokens = records["completion_tokens"].astype(np.int64).where(active, 0)
    by_quadrant = pd.DataFrame(clipped_by_quadrant(records)).astype(np.int64)
    clipped, sign = by_quadrant.sum(axis=1), np.sign(records["advantage"])
    rewards = records.groupby(["batch", "prompt_position"])["reward"].agg(["min", "max"])
    return Measured(
        clipped_first=int(clipped[first].sum()),
        active_first=int(tokens[first].sum()),
        clipped_later=int(clipped[~first].sum()),
        active_later=int(tokens[~first].sum()),
        quadrants_later={
            number: (
                int(by_quadrant.loc[~first, f"clipped_quadrant_{number}_tokens"].sum()),
                int(tokens[~first & (sign == of_sign)].sum()),
            )
            for number, (of_sign, _) in QUADRANTS.items()
        },
        flat_groups=int((rewards["min"] == rewards["max"]).sum()),
        groups=len(rewards),
        truncated=int(records["truncated"].sum()),
        rollouts=len(records),
        slope=premise_slope(records, ratio),
    )


def _clip_shares(arm: RecordedArm) -> tuple[float, float] | Row:
    """Shares of tokens clipped at update index 0 and later; a row of the table where there are none to judge."""
    if arm.objective["surrogate"] != "clipped":
        return {"message": f"surrogate {arm.objective['surrogate']} clips nothing"}
    later = arm.share("clipped_later", "active_later")
    if later is None:
        return {"message": "no rollout with an advantage after the first update of its batch"}
    return arm.share("clipped_first", "active_first") or 0.0, later


def noise_control(arm: RecordedArm, baseline: RecordedArm) -> Row:
    """What fires at update index 0 is numerical noise, since the ratio is 1 there."""
    if arm.objective["surrogate"] == "clipped" and arm.updates_per_batch == 1:
        return {"verdict": "fail", "message": "one update per rollout batch: the ratio is always 1, no bound can fire"}
    shares = _clip_shares(arm)
    if isinstance(shares, dict):
        return shares
    first, later = shares
    found = judge(first, later)
    if found is Clip.NEVER:
        return {"verdict": "warn", "value": later, "message": "no bound fired in the whole training"}
    of = "of the tokens with an advantage were clipped at update index 1 and later"
    numbers = f"{percent(later)} {of}, {percent(first)} at update index 0"
    if found is Clip.NOISE:
        return {"verdict": "fail", "value": later, "message": f"{numbers}: these bounds lie inside numerical noise"}
    if first > NOISE * later:
        part = f"{numbers}: up to {percent(first / later)} of what fires may be numerical noise"
        return {"verdict": "warn", "value": later, "message": part}
    return {"verdict": "pass", "value": later, "message": numbers}


def clip_live(arm: RecordedArm, baseline: RecordedArm) -> Row:
    """Do the bounds act often enough to matter, and on which side?"""
    shares = _clip_shares(arm)
    if isinstance(shares, dict):
        return shares
    found, later = judge(*shares), shares[1]
    sides = []
    for quadrant, (sign, side) in QUADRANTS.items():
        clipped, tokens = (sum(m.quadrants_later[quadrant][i] for m in arm.runs) for i in (0, 1))
        if clipped:
            where = "above the upper bound" if side == "upper" else "below the lower bound"
            sides.append(f"{percent(clipped / tokens)} of those with A {'>' if sign > 0 else '<'} 0 {where}")
    text = f"the bounds clipped {percent(later)} of the tokens with an advantage at update index 1 and later"
    text += f": {', '.join(sides)}" if sides else ""
    if found is Clip.RARE:
        text += f"; beyond numerical noise that is less than {percent(RARE)}, too rare to shape training"
    verdict = {Clip.NEVER: "fail", Clip.NOISE: "fail", Clip.RARE: "warn", Clip.ACTS: "pass"}[found]
    return {"verdict": verdict, "value": later, "message": text}


def decisive(arm: RecordedArm, baseline: RecordedArm) -> Row:
    """Tokens whose clipped state differs between this arm's bounds and the baseline's, on this arm's own rollouts."""
    if arm.compared:
        return {"message": arm.compared}
    undecided = next((m.undecided for m in arm.runs if m.undecided), None)
    if undecided:
        return {"message": f"cannot be determined: {undecided}"}
    differing, tokens = (sum(m.decisive[i] for m in arm.runs) for i in (0, 1))
    if not tokens:
        return {"message": "no tokens at update index 1 or later"}
    share = differing / tokens
    text = f"{percent(share)} of tokens at update index 1 and later are clipped under only one of the two bounds"
    if not differing:
        return {"verdict": "fail", "value": 0.0, "message": f"{text}: the comparison could not have shown anything"}
    if share < RARE:
        few = f"{text}: fewer than {percent(RARE)}, so a difference between the arms is unlikely to come from the clip"
        return {"verdict": "warn", "value": share, "message": few}
    return {"verdict": "pass", "value": share, "message": text}


def premise(arm: RecordedArm, baseline: RecordedArm) -> Row:
    """Does |ratio - 1| grow with the advantage? Interval: Student t over the slopes of the runs."""
    slopes = np.array([m.slope for m in arm.runs if m.slope is not None])
    if not len(slopes):
        return {"message": "no two advantages to compare at update index 1 or later"}
    mean = float(slopes.mean())
    unit = "slope of |ratio − 1| on a positive advantage"
    if len(slopes) < 2:
        return {"value": mean, "message": f"{unit} {mean:.2g}; one run gives no interval"}
    half = float(stats.t.ppf(0.975, len(slopes) - 1) * slopes.std(ddof=1) / np.sqrt(len(slopes)))
    low, high = mean - half, mean + half
    found = "present" if low > 0 else "not present here"
    text = f"{found}: {unit} {mean:.2g} [{low:.2g}, {high:.2g}] over {len(slopes)} runs".replace("-", "−")
    return {"verdict": "pass" if low > 0 else "warn", "value": mean, "ci_low": low, "ci_high": high, "message": text}


def flat_groups(arm: RecordedArm, baseline: RecordedArm) -> Row:
    """Groups whose rollouts all got the same reward have no gradient."""
    share = arm.share("flat_groups", "groups")
    if share is None:
        return {"message": "no groups recorded"}
    verdict = "fail" if share == 1 else "warn" if share > MOSTLY_FLAT else "pass"
    message = f"{percent(share)} of groups have equal rewards: no gradient"
    return {"verdict": verdict, "value": share, "message": message}


def truncation(arm: RecordedArm, baseline: RecordedArm) -> Row:
    """Rollouts that hit the token limit."""
    share = arm.share("truncated", "rollouts")
    if share is None:
        return {"message": "no rollouts recorded"}
    verdict = "warn" if share > OFTEN_TRUNCATED else "pass"
    message = f"{percent(share)} of rollouts were cut off at the token limit"
    return {"verdict": verdict, "value": share, "message": message}


def collapsed(arm: RecordedArm, baseline: RecordedArm) -> Row:
    """Runs whose entropy or reward fell to a small part of what it was: no fault of the comparison, so never a fail."""
    runs = {seed: arm.course(seed) for seed in sorted(arm.courses)}
    found = {seed: what for seed, run in runs.items() if (what := collapse(run))}
    if found:
        text = "; ".join(f"seed {seed} collapsed: {what}" for seed, what in found.items())
        return {"verdict": "warn", "value": float(len(found)), "message": text}
    kept = min((late / early for early, late in map(entropy_ends, runs.values()) if early > 0), default=None)
    text = f"; entropy at the end at least {percent(kept)} of that at the beginning" if kept is not None else ""
    return {"verdict": "pass", "value": 0.0, "message": f"no run collapsed{text}"}


def frozen_weights(arm: RecordedArm, baseline: RecordedArm) -> Row:
    """Weights that training should not touch, hashed before and after."""
    drifts = {seed: footer.get("frozen_weights_drift") for seed, footer in arm.weights.items()}
    moved = sorted(seed for seed, drift in drifts.items() if drift)
    if moved:
        seeds = ", ".join(map(str, moved))
        return {"verdict": "fail", "value": float(len(moved)), "message": f"frozen weights moved in seed {seeds}"}
    checked = sum(drift is False for drift in drifts.values())
    if checked:
        runs = "1 run" if checked == 1 else f"{number(checked, 0)} runs"
        return {"verdict": "pass", "value": 0.0, "message": f"frozen weights unchanged in {runs}"}
    return {"message": "nothing is frozen: all weights are trained"}


def _start(seeds: int) -> str:
    return "1 seed starts" if seeds == 1 else f"{number(seeds, 0)} seeds start"


def _branch_weights(arm: RecordedArm, parent: RecordedArm) -> Row:
    """A branch should start from the weights that its parent had at that step, seed by seed."""
    start = f"{parent.name}'s weights at update {arm.branch_step}"
    left = {
        seed: (made.get("checkpoint_weights") or {}).get(str(arm.branch_step)) for seed, made in parent.weights.items()
    }
    pairs = {seed: (made.get("branch_weights"), left.get(seed)) for seed, made in arm.weights.items()}
    known = {seed: mine == theirs for seed, (mine, theirs) in pairs.items() if mine and theirs}
    if not known:
        return {
            "message": f"branches off {parent.name} at update {arm.branch_step}; the weights there are not recorded"
        }
    other = sorted(seed for seed, same in known.items() if not same)
    if other:
        text = f"seed {', '.join(map(str, other))} does not start from {start}"
        return {"verdict": "fail", "value": float(len(other)), "message": text}
    lacking = f"; not recorded for {len(pairs) - len(known)} more" if len(known) < len(pairs) else ""
    return {"verdict": "pass", "value": 0.0, "message": f"{_start(len(known))} from {start}{lacking}"}


def initial_weights(arm: RecordedArm, baseline: RecordedArm) -> Row:
    """Runs of one seed should start from the same weights in every arm, a branch from those of its parent."""
    if arm.parent is not None:
        return _branch_weights(arm, arm.parent)
    if arm.name == baseline.name:
        return {"message": "this is the baseline"}
    if baseline.parent is not None:
        return {"message": f"the baseline {baseline.name} branches off {baseline.parent.name}"}
    common = sorted(set(arm.weights) & set(baseline.weights))
    if not common:
        return {"message": f"no seed in common with {baseline.name}"}
    hashes = [(arm.weights[s].get("initial_weights"), baseline.weights[s].get("initial_weights")) for s in common]
    other = sum(mine != theirs for mine, theirs in hashes)
    if other:
        text = f"{other} of {len(common)} seeds start from other weights than {baseline.name}"
        return {"verdict": "warn", "value": float(other), "message": text}
    text = f"{_start(len(common))} from the same weights as {baseline.name}"
    return {"verdict": "pass", "value": 0.0, "message": text}


CHECKS: dict[str, Callable[[RecordedArm, RecordedArm], Row]] = {
    "noise_control": noise_control,
    "clip_live": clip_live,
    "decisive_tokens": decisive,
    "premise": premise,
    "flat_groups": flat_groups,
    "truncation": truncation,
    "collapse": collapsed,
    "frozen_weights": frozen_weights,
    "initial_weights": initial_weights,
}


def _why_not_compared(arm: str, settings: dict[str, Any]) -> str | None:
    """Why decisive tokens are undefined for this arm; None if they are defined."""
    objective, baseline = settings["objectives"][arm], settings["objectives"].get(settings["baseline"])
    if arm == settings["baseline"]:
        return "this is the baseline"
    if baseline is None:
        return f"the baseline {settings['baseline']} is not part of this analysis"
    if objective == baseline:
        return f"same objective as {settings['baseline']}"
    if arm not in settings["differs_only_in_bounds"] or objective["surrogate"] != "clipped":
        return f"differs from {settings['baseline']} in more than its bounds"
    return None


def check(arms: dict[str, RecordedArm], baseline: str) -> list[Row]:
    """All rows of the table: every check of every arm, in the order of CHECKS."""
    empty = {"verdict": None, "value": None, "ci_low": None, "ci_high": None}
    reference = arms.get(baseline, RecordedArm(baseline, {}, 1, "absent"))
    rows = []
    for arm in arms.values():
        for name, function in CHECKS.items():
            found = function(arm, reference) if arm.runs else {"message": "no run of this arm has finished"}
            rows.append({"arm": arm.name, "check": name, **empty, **found})
    return rows


def _measure_decisive(
    measured: Measured,
    records: pd.DataFrame,
    tail: pd.DataFrame,
    arm: RecordedArm,
    other: RecordedArm,
    rollouts: pd.DataFrame | None = None,
) -> None:
    try:
        measured.decisive = decisive_tokens(records, tail, arm.objective, other.objective, rollouts)
    except Unanswerable as why:
        measured.undecided = str(why)


def _contradiction(records: pd.DataFrame, tail: pd.DataFrame, arm: RecordedArm, rollouts: pd.DataFrame) -> str | None:
    """Why the run's records cannot be asked about another arm's bounds; None if its own give back what it recorded."""
    try:
        return Replay(records, tail, arm.objective["ratio"], rollouts).contradiction(arm.objective)
    except Unanswerable as why:
        return str(why)


def rows(job: Job) -> list[Row]:
    """Every check of every arm, from the records of the runs."""
    settings = job.settings
    arms = {
        name: RecordedArm(name, objective, settings["updates_per_batch"][name], _why_not_compared(name, settings))
        for name, objective in settings["objectives"].items()
        if name in settings["runs"]
    }
    for name, branch in settings.get("branches", {}).items():
        arms[name].parent, arms[name].branch_step = arms.get(branch["arm"]), branch["step"]
    tails, rollouts = run_files(job, tables.TAIL_TOKENS), run_files(job, tables.ROLLOUTS)
    for name, seed, found in run_tables(job, tables.ROLLOUT_UPDATES):
        arm, records = arms[name], found.to_pandas()
        measured = measure(records, arm.objective["ratio"])
        if arm.compared is None:
            tail = tables.read(tails[name, seed], tables.TAIL_TOKENS).to_pandas()
            old = old_log_probs(rollouts[name, seed])
            measured.undecided = _contradiction(records, tail, arm, old)
            if measured.undecided is None:
                _measure_decisive(measured, records, tail, arm, arms[settings["baseline"]], old)
        arm.runs.append(measured)
        arm.courses[seed] = course(records)
    for (name, seed), path in run_files(job, tables.CHECKPOINTS).items():
        arms[name].weights[seed] = tables.provenance(path)
    return check(arms, settings["baseline"])
