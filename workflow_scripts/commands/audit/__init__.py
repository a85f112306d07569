"""`armslength audit`: could the clip of a TRL run bind, and did it? Read from its log (trainer_state.json)."""

import argparse
import os
import sys
import textwrap
from collections.abc import Mapping

from workflow_scripts.analysis.clipping import MOSTLY_NOISE, RARE
from workflow_scripts.commands.audit.clip_verdict import flat_shares, verdict
from workflow_scripts.commands.audit.trainer_log import CLIPS, FLAT, LOWER, RATIO, TRUNCATED, UPPER, Log, LogError, read
from workflow_scripts.commands.audit.update_rhythm import updates_per_batch
from workflow_scripts.figures.words import columns, percent

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
    "clip at first updates": "clip share at the first update on new rollouts, where the ratio is 1 and everything "
    f"that fires is numerical noise; at {MOSTLY_NOISE:g} of the later share or more, the bounds lie inside noise",
    "importance ratio": "lowest and highest mean ratio, where the log has it (AsyncGRPOTrainer)",
    "flat groups": f"groups whose rewards are all equal ({FLAT}): mean and peak; without it, steps whose reward_std "
    "is 0. They have no advantage and nothing to clip",
    "entropy": f"mean over the first and the last tenth; collapsed below {COLLAPSED:g} of the first",
    "reward": "the same of the reward",
    "truncated completions": f"{TRUNCATED}: mean and peak",
    "left out": "entries of evaluation, without a step, or of a step logged again, and values that are no number",
    "clip could bind": "no if the ratio is always 1 or no group has an advantage",
    "clip did bind": f"whether it fired beyond noise; rarely means on a share of tokens below {RARE:g}",
}


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


def _flat(log: Log) -> str:
    if log.get(FLAT) or not log.get("reward_std"):
        return _peak(flat_shares(log), "peak")
    spread = log.get("reward_std").values()
    return f"reward_std 0 in {sum(value == 0 for value in spread)} of {len(spread)} steps"


def column(log: Log) -> list[str]:
    """The cells of one run, in the order of ROWS, and its verdict."""
    updates = updates_per_batch(log)
    could, did, _ = verdict(log, updates)
    clip = log.clip if log.shows_clip else {}
    first = {step: share for step, share in clip.items() if step in updates.starts and updates.pure}
    at_first = f"{_count(first)}, mean {percent(sum(first.values()) / len(first))}" if first else "-"
    steps = log.steps
    return [
        f"{len(steps)} ({steps[0]} to {steps[-1]})",
        f"{log.interval} step{'s' if log.interval > 1 else ''}",
        ", ".join(name.removeprefix("clip_ratio/") for name in CLIPS if log.get(name)) or "-",
        *(_count(values) for values in (clip, log.get(LOWER), log.get(UPPER))),
        *(_peak(values, "largest") for values in (clip, log.get(LOWER), log.get(UPPER))),
        updates.said,
        at_first,
        f"{min(ratios):.6g} to {max(ratios):.6g}" if (ratios := log.get(RATIO).values()) else "-",
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
