"""Where the lines of branch arms begin: at their parent, where they leave it."""

from typing import Any

import altair as alt
import pandas as pd

from workflow_scripts.figures import style

HOW_TO_READ = "Ring: there an arm branches off another one, from that one's weights."

Branches = dict[str, dict[str, Any]]  # arm -> {arm: its parent, step: where it leaves it}


def starts(runs: pd.DataFrame, branches: Branches) -> pd.DataFrame:
    """The first point of each run of a branch arm: its parent's row at the branch step under the same seed.

    runs: arm, seed, step and any values. A run whose parent has no such row gets none.
    """
    found = [runs.iloc[:0]]
    for arm, branch in branches.items():
        seeds = runs.loc[runs["arm"] == arm, "seed"]
        parent = runs[(runs["arm"] == branch["arm"]) & (runs["step"] == branch["step"]) & runs["seed"].isin(seeds)]
        found.append(parent.assign(arm=arm))
    return pd.concat([rows for rows in found if len(rows)] or found)


def rings(starts: pd.DataFrame, x: alt.X, y: alt.Y) -> alt.Chart:
    """A ring on every first point of a branch arm's mean; of no arm's colour, since several may start at one point."""
    return alt.Chart(starts).mark_point(size=150, strokeWidth=1.5, opacity=1, color=style.INK).encode(x=x, y=y)
