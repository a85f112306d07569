"""`armslength audit FILE`: could the clip of a TRL run bind, and did it? Read from the log that the run left."""

import argparse
import math
import os
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from workflow_scripts.commands import columns
from workflow_scripts.commands.trainer_log import CLIPS, FLAT, LOWER, TRUNCATED, UPPER, Log, LogError, read
from workflow_scripts.figures.words import percent

NOISE = 0.1  # what fires on new rollouts, whose ratio is 1, is numerical noise; it may be this part of the rest
REGULAR = 0.9  # part of the rollout batches that must have the same number of updates; a resumed run has odd ones
ROUNDING = 1e-6  # a standard deviation of rewards below this part of their mean is none
CHANCE = 0.01  # of a pattern in the clip that is none
MULTIPLE = 10.0  # log-likelihood by which a period must explain the clip better than one that divides it
LONGEST = 64  # updates per rollout batch that are looked for in the clip's pattern
COLLAPSED = 0.1  # entropy of the last tenth over that of the first

ROWS = {
    "steps logged": "entries of training in the log, and the first and last step; the last of equal steps counts",
    "logged every": "logging_steps; above 1, values are means over so many steps",
    "clip metrics": "which of " + ", ".join(CLIPS) + " the log has",
    "steps with a clip": "entries with a clip share above 0: either bound, the lower (A < 0), the upper (A > 0)",
    "  lower bound": "",
    "  upper bound": "",
    "clip share": "tokens (rollouts, with a sequence-level ratio) outside a bound: mean and largest entry",
    "  lower, share": "",
    "  upper, share": "",
    "updates per batch": "optimizer updates per rollout batch: TRL logs a reward only where rollouts are new; where "
    "each step has one, the period of the clip, which cannot fire on the first update after a rollout batch",
    "clip at first updates": "the same share where rollouts are new, the ratio is 1, and all that fires is numerical "
    f"noise; above {NOISE:g} of the rest the bounds lie inside it",
    "flat groups": f"groups whose rewards are all equal ({FLAT}): mean and peak; without it, steps whose reward_std "
    "is 0. They have no advantage and nothing to clip",
    "entropy": f"mean over the first and the last tenth; collapsed below {COLLAPSED:g} of the first",
    "reward": "the same of the reward",
    "truncated completions": f"{TRUNCATED}: mean and peak",
    "left out": "entries of evaluation, without a step, or of a step logged again, and values that are no number",
    "clip could bind": "no where the ratio is always 1 or no group has an advantage; unknown where the log cannot tell",
    "clip did bind": "whether it fired beyond noise",
}


@dataclass(frozen=True)
class Updates:
    """Optimizer updates per rollout batch.

    several: whether there is an update on rollouts that another update came before, None if not known; starts: steps
    whose rollouts are new, where those are known.
    """

    said: str
    several: bool | None
    starts: frozenset[int] = frozenset()


def _log_binomial(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def period(fires: Mapping[int, bool]) -> tuple[int, frozenset[int]] | None:
    """Updates per rollout batch as the period of the clip, and the steps of the silent phase if there is but one.

    fires: step -> did the clip fire. Of the periods with a phase that never fires, the one that explains the pattern
    best (BIC, one rate of firing per phase), and only where so much silence by chance is rarer than CHANCE
    (hypergeometric). None if there is no such period.
    """
    total, fired = len(fires), sum(fires.values())
    best: tuple[float, int, list[int], int] | None = None
    for length in range(2, min(LONGEST, total // 3) + 1):
        steps = Counter(step % length for step in fires)
        hits = Counter(step % length for step, fire in fires.items() if fire)
        silent = [phase for phase in steps if phase not in hits]
        if not silent or not hits:
            continue
        rates = [(hits[phase], hits[phase] / n, n) for phase, n in steps.items() if 0 < hits[phase] < n]
        fit = sum(k * math.log(rate) + (n - k) * math.log1p(-rate) for k, rate, n in rates)
        score = fit - length / 2 * math.log(total)
        multiple = best is not None and length % best[1] == 0
        if best is None or score > best[0] + (MULTIPLE if multiple else 0.0):
            best = score, length, silent, sum(steps[phase] for phase in silent)
    if best is None:
        return None
    _, length, silent, quiet = best
    chance = _log_binomial(total - quiet, fired) - _log_binomial(total, fired) + _log_binomial(length, len(silent))
    if chance > math.log(CHANCE):
        return None
    return length, frozenset(step for step in fires if step % length == silent[0] and len(silent) == 1)


def _from_clip(log: Log) -> Updates | None:
    """By the clip's pattern: exactly silent on new rollouts, or, in bfloat16, down to a tenth of the rest."""
    positive = [share for share in log.clip.values() if share > 0]
    if not positive or log.interval != 1:
        return None
    for limit in (0.0, NOISE * sum(positive) / len(positive)):
        found = period({step: share > limit for step, share in log.clip.items()})
        if found:
            return Updates(f"{found[0]}, by the clip's pattern", True, found[1])
    return None


def updates_per_batch(log: Log) -> Updates:
    """From the steps that logged a reward, since TRL does so only where it drew rollouts; else from the clip."""
    marks, every, fired = sorted(log.rewarded), log.interval, any(log.clip.values())
    if marks and len(marks) < len(log.steps):
        if len(marks) == 1:
            least = max(log.steps[-1] - marks[0] + 1, marks[0] - log.steps[0])
            starts = frozenset(marks) if every == 1 else frozenset()
            return Updates(f"at least {least}: one rollout batch", True, starts)
        gaps = Counter(b - a for a, b in pairwise(marks))
        usual, count = gaps.most_common(1)[0]
        if count < REGULAR * gaps.total():
            mean = (marks[-1] - marks[0]) / (len(marks) - 1)
            return Updates(f"about {mean:.1f}, uneven: {min(gaps)} to {max(gaps)}", True)
        odd = gaps.total() - count
        said = f"{usual}" + (f", but for {odd} of {gaps.total()} batches" if odd else "")
        return Updates(said, True, frozenset(marks) if every == 1 else frozenset())
    if len(log.steps) < 2:
        return Updates("not to be told: one step logged", None)
    if every > 1:
        most = f"; at most {every}" if marks else ""
        return Updates(f"not to be told: logged every {every} steps{most}", None)
    if by_clip := _from_clip(log):
        return by_clip
    if not fired:
        said = "1" if marks else "not to be told: no clip fired and no rewards are logged"
        return Updates(said, False if marks else None)
    return Updates("not to be told: " + ("fires as on old rollouts" if marks else "no period in the clip"), None)


def _means(log: Log, updates: Updates) -> tuple[float | None, float | None]:
    """Mean clip share on new rollouts and on all others."""
    parts = ([v for s, v in log.clip.items() if (s in updates.starts) is new] for new in (True, False))
    first, later = (sum(part) / len(part) if part else None for part in parts)
    return first, later


def verdict(log: Log, updates: Updates) -> tuple[str, str, str]:
    """Could the clip bind, did it, and why so."""
    fired = sum(share > 0 for share in log.clip.values())
    first, later = _means(log, updates)
    flat = _flat_shares(log).values()
    if not fired:
        if flat and min(flat) == 1:
            return "no", "no", "every group is flat: there is no advantage and nothing to clip"
        if updates.several is False:
            more = "raise num_iterations, or steps_per_generation above gradient_accumulation_steps"
            return "no", "no", f"one update per rollout batch: the ratio is always 1; {more}"
        could = "yes" if updates.several else "unknown"
        return could, "no", "the clip never fired: no bound as wide as this run's or wider can have changed it"
    if first and first > NOISE * (later or 0.0):
        return "yes", "no", "it fires on new rollouts too, where the ratio is 1: bounds inside numerical noise"
    if updates.several is None and log.rewarded and len(log.steps) > 1:
        why = "each step has new rollouts, yet it fires: numerical noise, or rollouts older than the policy"
        if log.interval > 1:
            why = (
                f"it fires, but a mean over {log.interval} steps does not tell clipping from noise; use logging_steps=1"
            )
        return "unknown", "unknown", why
    able = [share for step, share in log.clip.items() if step not in updates.starts]
    unit = "steps that could clip" if log.interval == 1 else "entries"
    beyond = sum(share > 0 for share in able)
    return "yes", "yes", f"it fired in {beyond} of {len(able)} {unit}, mean share {percent(later or 0.0)}"


def _count(values: Mapping[int, float]) -> str:
    fired = sum(value > 0 for value in values.values())
    return f"{fired} of {len(values)} ({percent(fired / len(values))})" if values else "-"


def _peak(values: Mapping[int, float], word: str) -> str:
    if not values:
        return "-"
    step = max(values, key=lambda s: values[s])
    at = f" at step {step}" if values[step] > 0 else ""
    return f"mean {percent(sum(values.values()) / len(values))}, {word} {percent(values[step])}{at}"


def _tenths(values: Mapping[int, float]) -> tuple[float, float] | None:
    """Mean over the first and over the last tenth of the entries."""
    numbers = [values[step] for step in sorted(values)]
    size = max(len(numbers) // 10, 1)
    return (sum(numbers[:size]) / size, sum(numbers[-size:]) / size) if numbers else None


def _course(values: Mapping[int, float], fallen: str = "") -> str:
    ends = _tenths(values)
    if ends is None:
        return "-"
    sunk = fallen if fallen and ends[0] > 0 and ends[1] < COLLAPSED * ends[0] else ""
    return f"{ends[0]:.3g} -> {ends[1]:.3g}{sunk}"


def _flat_shares(log: Log) -> dict[int, float]:
    """Share of flat groups by step. TRL compares a group's standard deviation with 0: in float32 that of eight times
    0.3 is 3e-8, and the group does not count."""
    rewards, spread = log.get("reward"), log.get("reward_std")
    equal = {step for step, value in spread.items() if step in rewards and value <= ROUNDING * abs(rewards[step])}
    return {step: 1.0 if step in equal else share for step, share in log.get(FLAT).items()}


def _flat(log: Log) -> str:
    if log.get(FLAT) or not log.get("reward_std"):
        return _peak(_flat_shares(log), "peak")
    spread = log.get("reward_std").values()
    return f"reward_std 0 in {sum(value == 0 for value in spread)} of {len(spread)} steps"


def column(log: Log) -> list[str]:
    """The cells of one run, in the order of ROWS, and its verdict."""
    updates = updates_per_batch(log)
    could, did, _ = verdict(log, updates)
    first = {step: share for step, share in log.clip.items() if step in updates.starts}
    at_first = f"{_count(first)}, mean {percent(sum(first.values()) / len(first))}" if first else "-"
    steps = log.steps
    return [
        f"{len(steps)} ({steps[0]} to {steps[-1]})",
        f"{log.interval} step{'s' if log.interval > 1 else ''}",
        ", ".join(name.removeprefix("clip_ratio/") for name in CLIPS if log.get(name)),
        *(_count(values) for values in (log.clip, log.get(LOWER), log.get(UPPER))),
        *(_peak(values, "largest") for values in (log.clip, log.get(LOWER), log.get(UPPER))),
        updates.said,
        at_first,
        _flat(log),
        _course(log.get("entropy"), ", collapsed"),
        _course(log.get("reward")),
        _peak(log.get(TRUNCATED), "peak"),
        ", ".join(f"{count} {what}" for what, count in log.left_out.items()) or "-",
        could,
        did,
    ]


def _names(logs: list[Log]) -> list[str]:
    """Heads of the columns: the paths, of several without what they share, fit to be printed."""
    paths = [log.name for log in logs]
    if len(set(paths)) > 1:
        shared = os.path.commonpath([os.path.abspath(path) for path in paths])
        paths = [os.path.relpath(path, shared) for path in paths]
    return ["".join(letter if letter.isprintable() else "?" for letter in path) for path in paths]


def main(arguments: list[str]) -> int:
    """Could the clip of a TRL run bind, and did it? A column for each FILE; 1 if one of them could not be read."""
    shown = "\n".join(
        textwrap.fill(text, 110, initial_indent=f"  {row:<24}", subsequent_indent=" " * 26)
        for row, text in ROWS.items()
        if text
    )
    parser = argparse.ArgumentParser(
        prog="armslength audit",
        description=main.__doc__,
        epilog=f"rows:\n{shown}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="trainer_state.json, a folder with one, or a trainer_log.parquet"
    )
    logs, code = [], 0
    for file in parser.parse_args(arguments).files:
        try:
            logs.append(read(file))
        except LogError as error:
            line = "".join(letter if letter.isprintable() else "?" for letter in str(error))
            print(f"armslength audit: {line}", file=sys.stderr)
            code = 1
    if logs:
        names = _names(logs)
        print(columns([["", *names], *map(list, zip(ROWS, *map(column, logs), strict=True))]))
        print()
        for name, log in zip(names, logs, strict=True):
            could, did, why = verdict(log, updates_per_batch(log))
            print(f"{name}: could bind: {could}; did: {did}: {why}")
    return code
