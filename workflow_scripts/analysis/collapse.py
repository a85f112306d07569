"""Did a run collapse: its entropy, so that it explores no more, or its reward, so that it unlearned what it knew?"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from workflow_scripts.figures.words import MINUS

ENTROPY_FALL = 0.1  # healthy runs of the embedded study end at .30 to .55 of their first entropy, collapsed ones near 0
REWARD_FALL = 0.5  # and they end at .82 to 1 of their best reward
NOISE = 2  # standard errors of the best reward that a fall must exceed besides: a batch may hold few prompts

Values = npt.NDArray[np.float64]


@dataclass
class Course:
    """A run from its first update: `updates` by step (entropy, tokens: sums), `groups` (step at which the group's
    rollout batch was drawn, mean reward), `lowest` reward of any rollout."""

    updates: pd.DataFrame
    groups: pd.DataFrame
    lowest: float

    def after(self, parent: "Course", step: int) -> "Course":
        """This run as what it is where it branched off: its parent until that step, then itself."""
        early, drawn = parent.updates.index <= step, parent.groups["step"] <= step
        return Course(
            pd.concat([parent.updates[early], self.updates]),
            pd.concat([parent.groups[drawn], self.groups]),
            min(parent.lowest, self.lowest),
        )


def course(records: pd.DataFrame) -> Course:
    """The course of a run from its rollout_updates."""
    updates = records.groupby("step")[["sum_entropy", "completion_tokens"]].sum()
    groups = records.groupby(["batch", "prompt_position"]).agg(step=("step", "min"), reward=("reward", "mean"))
    groups["step"] = groups.groupby("batch")["step"].transform("min")
    return Course(updates.set_axis(["entropy", "tokens"], axis=1).astype(float), groups, float(records["reward"].min()))


def _fell(what: str, late: float, early: float) -> str:
    return f"{what} {late:.2g} after {early:.2g}".replace("-", MINUS)


def _tenth(count: int) -> int:
    return max(1, round(count / 10))


def entropy_ends(run: Course) -> tuple[float, float]:
    """Mean token entropy (nat) of the first and of the last tenth of updates; nan where no token counted."""
    size = _tenth(len(run.updates))
    sums = [part.sum() for part in (run.updates.head(size), run.updates.tail(size))]
    first, last = (part["entropy"] / part["tokens"] if part["tokens"] else np.nan for part in sums)
    return first, last


def reward_ends(run: Course) -> tuple[float, float, float]:
    """Mean reward of the best tenth of rollout batches (a moving window) and of the last; and the standard error of the
    best, from its groups or, where these spread less since it was chosen as the best, from all groups."""
    by_batch = run.groups.groupby("step")["reward"]
    batches: list[Values] = [group.to_numpy(np.float64) for _, group in by_batch]
    size = _tenth(len(batches))
    windows = [np.concatenate(batches[i : i + size]) for i in range(len(batches) - size + 1)]
    best = max(windows, key=np.mean)
    error = float(max(best.std(), np.concatenate(batches).std()) / np.sqrt(len(best)))
    return float(best.mean()), float(windows[-1].mean()), error


def collapse(run: Course) -> str | None:
    """What collapsed, with its numbers ("entropy 0.02 after 0.61"); None for a healthy run.

    Entropy: the mean of the last tenth of updates is below a tenth of that of the first tenth. Reward: the mean of the
    last tenth of rollout batches is by more than two standard errors below half of the run's best tenth. Half: of the
    way from the lowest reward of the run, so that shifted rewards are judged alike.
    """
    found = []
    early, late = entropy_ends(run)
    if late < ENTROPY_FALL * early:
        found.append(_fell("entropy", late, early))
    best, last, error = reward_ends(run)
    half = run.lowest + REWARD_FALL * (best - run.lowest)
    if last < half - NOISE * error:
        found.append(_fell("reward", last, best))
    return " and ".join(found) or None
