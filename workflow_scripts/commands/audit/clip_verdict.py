"""Could the clip of a run bind, and did it? The answer is a set of codes; its sentence is made last."""

import math
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto

from workflow_scripts.analysis import clipping as rule
from workflow_scripts.analysis.clipping import Clip
from workflow_scripts.commands.audit.trainer_log import FLAT, LENGTH, RATE, RATIO, Counted, Log
from workflow_scripts.commands.audit.update_rhythm import Rhythm, Updates
from workflow_scripts.figures.words import percent

ROUNDING = 1e-6  # a standard deviation of rewards below this part of their mean is none
FEWEST = 3  # entries from which on a single one of them does not decide


class Answer(StrEnum):
    """The answer to either question; RARELY answers only whether the clip did bind."""

    YES = "yes"
    RARELY = "rarely"
    NO = "no"
    UNKNOWN = "cannot be determined"


class Cause(Enum):
    """The reason for the answers."""

    ALL_FLAT = auto()
    RATE_ZERO = auto()
    RATIO_ONE = auto()
    ONE_UPDATE = auto()
    NEVER_FIRED = auto()
    NOISE = auto()
    RARE = auto()
    BINDS = auto()
    ONE_FIRST_UPDATE = auto()  # noise by the mean of the first updates, which a single one of them makes
    MIXED = auto()  # entries do not separate first from later updates
    NO_RHYTHM = auto()
    NOT_COUNTED = auto()  # the clip metric, if there is one, does not count what the clip stops


@dataclass(frozen=True)
class Finding:
    """The verdict and its numbers: entries that fired, of those that could, and mean shares."""

    could: Answer
    did: Answer
    cause: Cause
    fired: int = 0
    able: int = 0
    first: float = 0.0  # share at first updates, where those are known
    later: float = 0.0  # share in all other entries


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _equal_rewards(log: Log) -> set[int]:
    """Steps whose rewards have no spread. TRL compares a group's standard deviation with 0: in float32 that of eight
    times 0.3 is 3e-8, and the group does not count as flat."""
    rewards, spread = log.get("reward"), log.get("reward_std")
    return {step for step, value in spread.items() if step in rewards and value <= ROUNDING * abs(rewards[step])}


def flat_shares(log: Log) -> dict[int, float]:
    """Share of flat groups by step."""
    equal = _equal_rewards(log)
    return {step: 1.0 if step in equal else share for step, share in log.get(FLAT).items()}


def _every_group_is_flat(log: Log) -> bool:
    """At every step with a reward; older logs have no share of flat groups, but the spread of the rewards."""
    flat = {step for step, share in flat_shares(log).items() if share == 1} | _equal_rewards(log)
    return bool(flat) and log.rewarded <= flat


def _rate_is_zero(log: Log) -> bool:
    rates = log.get(RATE).values()
    return len(rates) > 1 and not any(rates)


def _moves(log: Log) -> bool:
    """Whether the log shows that weights moved: by a clip that fired, a ratio other than 1, or a learning rate."""
    return any(log.clip.values()) or bool(log.ratio_moved) or any(log.get(RATE).values())


def _could_not(log: Log, updates: Updates) -> Cause | None:
    """Why the clip of a run in which nothing fired could not bind; None if it could, or if the log does not show it."""
    if _every_group_is_flat(log):
        return Cause.ALL_FLAT
    if _rate_is_zero(log):
        return Cause.RATE_ZERO
    if log.ratio_moved is False:
        return Cause.RATIO_ONE
    return Cause.ONE_UPDATE if updates.several is False else None


def _one_decides(first: list[float], later: float) -> bool:
    """Whether the clip counts as noise only because of the largest share among the first updates."""
    return len(first) >= FEWEST and rule.judge(_mean(sorted(first)[:-1]), later) is not Clip.NOISE


def _beyond_noise(log: Log, updates: Updates) -> Finding:
    """The finding for a clip that fired in a run with several updates per batch: first updates against later ones."""
    first = [share for step, share in log.clip.items() if step in updates.starts]
    rest = [share for step, share in log.clip.items() if step not in updates.starts]
    noise, later, fired = _mean(first), _mean(rest), sum(share > 0 for share in rest)

    def finding(did: Answer, cause: Cause) -> Finding:
        return Finding(Answer.YES, did, cause, fired, len(rest), noise, later)

    found = rule.judge(noise, later)
    if not updates.pure:
        # Entries that also hold later updates show more than the noise. They can show that a clip binds, but not that
        # it is noise.
        shares = list(log.clip.values())
        if _mean(shares) < rule.RARE:
            fires = sum(share > 0 for share in shares)
            return Finding(Answer.YES, Answer.RARELY, Cause.RARE, fires, len(shares), later=_mean(shares))
        binds = found is Clip.ACTS and len(rest) >= FEWEST
        return finding(Answer.YES, Cause.BINDS) if binds else finding(Answer.UNKNOWN, Cause.MIXED)
    if found is Clip.NOISE and fired and _one_decides(first, later):
        return finding(Answer.UNKNOWN, Cause.ONE_FIRST_UPDATE)
    return {
        Clip.NOISE: finding(Answer.NO, Cause.NOISE),
        Clip.RARE: finding(Answer.RARELY, Cause.RARE),
        Clip.ACTS: finding(Answer.YES, Cause.BINDS),
    }[found]


def judge(log: Log, updates: Updates) -> Finding:
    """Whether the clip could bind, whether it did, and why."""
    several = bool(updates.several or log.ratio_moved)
    could = Answer.YES if several and _moves(log) else Answer.UNKNOWN
    fired, share = sum(share > 0 for share in log.clip.values()), _mean(list(log.clip.values()))
    if not fired and (cause := _could_not(log, updates)):
        return Finding(Answer.NO, Answer.NO, cause)
    if log.counted is Counted.NOTHING and not log.get(LENGTH):
        return Finding(Answer.UNKNOWN, Answer.UNKNOWN, Cause.NOT_COUNTED)  # perhaps a loss without a clip
    if not log.shows_clip:
        return Finding(could, Answer.UNKNOWN, Cause.NOT_COUNTED)
    if not fired:
        return Finding(could, Answer.NO, Cause.NEVER_FIRED)
    if updates.several:
        found = _beyond_noise(log, updates)
    elif share < rule.RARE:
        found = Finding(could, Answer.RARELY, Cause.RARE, fired, len(log.clip), later=share)
    elif several:
        found = Finding(could, Answer.YES, Cause.BINDS, fired, len(log.clip), later=share)
    else:
        cause = Cause.MIXED if updates.rhythm is Rhythm.MEANS else Cause.NO_RHYTHM
        found = Finding(could, Answer.UNKNOWN, cause, fired, len(log.clip), later=share)
    if log.counted is Counted.EITHER_SIDE and found.did is Answer.YES:
        return replace(found, did=Answer.UNKNOWN, cause=Cause.NOT_COUNTED)
    return found


# The words


def _note(log: Log) -> str:
    """What the clip metric counts, where that is not what the clip stopped."""
    if log.counted is Counted.NOTHING:
        versions = "TRL up to 0.15 and Unsloth" if log.get(LENGTH) else "losses without a clip"
        return f"the log has no values of a clip metric ({versions} log none)"
    if log.counted is Counted.UNCLIPPED:
        return "the clip_ratio of TRL 0.16 counts tokens that the clip leaves alone, so it is not used"
    if log.counted is Counted.UNDEFINED:
        return "clip_ratio is not used: in TRL 0.16 and its copies it counts tokens that the clip leaves alone"
    if log.counted is Counted.EITHER_SIDE:
        return "the clip_ratio of AsyncGRPOTrainer in TRL 1.0 to 1.6 also counts tokens that the clip leaves alone"
    return ""


def _never_fired(log: Log, updates: Updates) -> str:
    text = "the clip never fired: no bound as wide as this run's or wider can have changed it"
    rates = log.get(RATE).values()
    if updates.several is None and not log.ratio_moved:
        return f"{text}; updates per batch: {updates.said}"
    if not _moves(log):
        return f"{text}; no learning rate is logged, so whether the ratio moved at all cannot be determined"
    still = sum(rate == 0 for rate in rates)
    return f"{text}; the learning rate is 0 in {still} of {len(rates)} steps" if still else text


def _unit(log: Log, updates: Updates) -> str:
    """What is counted: all entries, or only those after the first step of a rollout batch."""
    return "steps that could clip" if updates.several and updates.pure else "logged steps"


def _bound(log: Log, found: Finding, updates: Updates) -> str:
    text = f"it fired in {found.fired} of {found.able} {_unit(log, updates)}, mean share {percent(found.later)}"
    if not updates.several:
        far = max(abs(ratio - 1) for ratio in log.get(RATIO).values())
        return f"{text}; the logged ratio differs from 1 by up to {far:.2g}"
    if updates.pure and found.first > rule.NOISE * found.later:
        return f"{text}; up to {percent(found.first)} of tokens are numerical noise, as at first updates"
    return text


def _fires_without_rhythm(log: Log, found: Finding, updates: Updates) -> str:
    text = f"it fired in {found.fired} of {found.able} logged steps, mean share {percent(found.later)}"
    if updates.rhythm is Rhythm.NEW_YET_FIRES:
        return f"{text}, though each step has a reward: numerical noise, or rollouts older than the policy"
    return f"{text}; without rewards or a period in the clip it cannot be distinguished from numerical noise"


def sentence(found: Finding, log: Log, updates: Updates) -> str:
    """One line that gives the reason."""
    note = _note(log)
    text = {
        Cause.ALL_FLAT: lambda: "every group is flat: there is no advantage and nothing to clip",
        Cause.RATE_ZERO: lambda: "the learning rate is 0 in every step: the weights do not move",
        Cause.RATIO_ONE: lambda: "the logged ratio is 1 in every step",
        Cause.ONE_UPDATE: lambda: (
            "one update per rollout batch: the ratio is always 1; "
            "raise num_iterations, or steps_per_generation above gradient_accumulation_steps"
        ),
        Cause.NEVER_FIRED: lambda: _never_fired(log, updates),
        Cause.NOISE: lambda: (
            f"it clips {percent(found.first)} at first updates, where the ratio is 1, and {percent(found.later)} "
            "at later ones: its bounds lie inside numerical noise"
        ),
        Cause.RARE: lambda: (
            f"it fired in {found.fired} of {found.able} {_unit(log, updates)}, on a share of {found.later:.2g} of "
            "tokens: too rarely to shape training"
        ),
        Cause.BINDS: lambda: _bound(log, found, updates),
        Cause.ONE_FIRST_UPDATE: lambda: (
            f"it clips {percent(found.first)} at first updates and {percent(found.later)} at later ones, but a single "
            "first update makes up most of the former, so noise cannot be measured"
        ),
        Cause.MIXED: lambda: (
            f"it fires, but a mean over {log.interval} steps does not separate clipping from noise; use logging_steps=1"
            if log.interval > 1
            else "it fires, but rollout batches are uneven, so first updates cannot be separated from later ones"
        ),
        Cause.NO_RHYTHM: lambda: _fires_without_rhythm(log, found, updates),
        Cause.NOT_COUNTED: lambda: "",
    }[found.cause]()
    return "; ".join(part for part in (text, note) if part)


def verdict(log: Log, updates: Updates) -> tuple[str, str, str]:
    """Whether the clip could bind, whether it did, and why, in words."""
    found = judge(log, updates)
    return found.could.value, found.did.value, sentence(found, log, updates)
