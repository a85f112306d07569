"""How many optimizer updates a run made per rollout batch, from the rhythm of its rewards or of its clip."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise

from workflow_scripts.commands.audit.trainer_log import Log

NOISE = 0.1  # part of the mean clip share; what fires below it counts as noise when a period is searched for
REGULAR = 0.9  # part of the rollout batches that must have the same number of updates; a resumed run has odd ones
CHANCE = 0.001  # probability of so much silence without a period
MULTIPLE = 10.0  # log-likelihood by which a period must explain the clip better than one that divides it
LONGEST = 64  # most updates per rollout batch that are searched for in the clip's pattern


class Rhythm(Enum):
    """What the log shows about the updates per rollout batch."""

    REGULAR = auto()  # the same number in nearly every batch
    ONE_BATCH = auto()  # a single rollout batch, so a lower limit
    UNEVEN = auto()
    BY_CLIP = auto()  # the period of the clip
    ONE = auto()  # each step drew rollouts
    ONE_IN_TRL = auto()  # each step has a reward, but nothing shows that it drew rollouts
    ASYNCHRONOUS = auto()  # rollouts of older policies at each step
    ONE_STEP = auto()
    MEANS = auto()  # entries are means over several steps
    NO_REWARDS = auto()
    NO_PERIOD = auto()  # no rewards, and the clip has no period
    NEW_YET_FIRES = auto()  # each step has a reward, and the clip fires without a period


@dataclass(frozen=True)
class Updates:
    """Optimizer updates per rollout batch.

    several: whether there is an update on rollouts that another update came before, None if not known. starts: steps
    that hold the first update on new rollouts, where those are known. pure: whether these steps hold nothing else,
    which entries that are means over several steps, or uneven batches, do not.
    """

    rhythm: Rhythm
    several: bool | None
    starts: frozenset[int] = frozenset()
    pure: bool = True
    count: int = 0  # updates per batch; the interval between entries for MEANS
    most: int = 0  # upper limit, where there is one
    odd: int = 0  # batches with another number, of so many
    batches: int = 0
    mean: float = 0.0
    extremes: tuple[int, int] = (0, 0)

    @property
    def said(self) -> str:
        """One line for the table."""
        most = f"; at most {self.most}" if self.most else ""
        odd = f", except in {self.odd} of {self.batches} batches" if self.odd else ""
        return {
            Rhythm.REGULAR: f"{self.count}{odd}",
            Rhythm.ONE_BATCH: f"at least {self.count}: one rollout batch",
            Rhythm.UNEVEN: f"about {self.mean:.1f}, uneven: {self.extremes[0]} to {self.extremes[1]}",
            Rhythm.BY_CLIP: f"{self.count}, by the clip's pattern",
            Rhythm.ONE: "1",
            Rhythm.ONE_IN_TRL: "cannot be determined: 1 if TRL's GRPOTrainer wrote this log",
            Rhythm.ASYNCHRONOUS: "cannot be determined: rollouts are drawn asynchronously",
            Rhythm.ONE_STEP: "cannot be determined: one step logged",
            Rhythm.MEANS: f"cannot be determined: logged every {self.count} steps{most}",
            Rhythm.NO_REWARDS: "cannot be determined: no clip fired and no rewards are logged",
            Rhythm.NO_PERIOD: "cannot be determined: no rewards are logged and the clip has no period",
            Rhythm.NEW_YET_FIRES: "cannot be determined: each step has a reward, yet the clip fires",
        }[self.rhythm]


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
    if not positive:
        return None
    for limit in (0.0, NOISE * sum(positive) / len(positive)):
        found = period({step: share > limit for step, share in log.clip.items()})
        if found:
            return Updates(Rhythm.BY_CLIP, True, found[1], count=found[0])
    return None


def _from_rewards(log: Log) -> Updates:
    """By the steps that logged a reward, where others did not."""
    marks = sorted(log.rewarded)
    starts, single = frozenset(marks), log.interval == 1
    if len(marks) == 1:
        least = max(log.steps[-1] - marks[0] + 1, marks[0] - log.steps[0])
        return Updates(Rhythm.ONE_BATCH, True, starts, single, count=least)
    gaps = Counter(b - a for a, b in pairwise(marks))
    usual, count = gaps.most_common(1)[0]
    if count < REGULAR * gaps.total():
        mean = (marks[-1] - marks[0]) / (len(marks) - 1)
        return Updates(Rhythm.UNEVEN, True, starts, pure=False, mean=mean, extremes=(min(gaps), max(gaps)))
    odd = gaps.total() - count
    return Updates(Rhythm.REGULAR, True, starts, single, count=usual, odd=odd, batches=gaps.total())


def updates_per_batch(log: Log) -> Updates:
    """From the steps that logged a reward, since TRL does so only where it drew rollouts; else from the clip."""
    if log.rewarded and len(log.rewarded) < len(log.steps):
        return _from_rewards(log)
    if log.ratio_moved:
        return Updates(Rhythm.ASYNCHRONOUS, None)
    if len(log.steps) < 2:
        return Updates(Rhythm.ONE_STEP, None)
    if log.interval > 1:
        entries, every = len(log.steps), log.interval
        # Each entry holds a first update, which a longer batch could still hit in a short log.
        most = every + (every - 1) // (entries - 1) if log.draws_at_each_step else 0
        return Updates(Rhythm.MEANS, None, count=every, most=most)
    if not log.draws_at_each_step and (by_clip := _from_clip(log)):
        return by_clip
    fired = any(log.clip.values())
    if not log.rewarded:
        return Updates(Rhythm.NO_PERIOD if fired else Rhythm.NO_REWARDS, None)
    if fired:
        return Updates(Rhythm.NEW_YET_FIRES, None)
    return Updates(Rhythm.ONE, False) if log.draws_at_each_step else Updates(Rhythm.ONE_IN_TRL, None)
