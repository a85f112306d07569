"""Tables of the page that can be sorted and searched: cells as texts, numbers with what they are sorted by."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from workflow_scripts.figures.words import number
from workflow_scripts.report.cells import TableCell, count, detectable, interval, p, points, share, short, text, time
from workflow_scripts.report.findings import known

Row = dict[str, Any]


LONG = 28  # characters from which on a column of texts is given room


@dataclass(frozen=True)
class Grid:
    """One table. name: its anchor; columns: headings, those of numbers begin with `#`."""

    name: str
    title: str
    source: str
    columns: Sequence[str]
    rows: Sequence[Sequence[TableCell]]
    note: str = ""

    @property
    def heads(self) -> list[tuple[str, str]]:
        """Each heading, and the class of its column: n for numbers, w for long texts."""
        lengths = [max((len(row[i].text) for row in self.rows), default=0) for i in range(len(self.columns))]
        return [
            (name.removeprefix("#"), "n" if name.startswith("#") else "w" if length > LONG else "")
            for name, length in zip(self.columns, lengths, strict=True)
        ]


def shares(values: Sequence[float | None]) -> list[str]:
    """Shares of one column in per cent, all with as many digits: two where one of them is below 0.1 %."""
    found = [value for value in values if known(value) and value]
    digits = 2 if any(100 * value < 0.1 for value in found) else 1
    least = 10**-digits / 2

    def said(value: float | None) -> str:
        if value is None or not known(value):
            return ""
        if not value:
            return "0 %"
        return f"< {2 * least:g} %" if 100 * value < least else f"{number(100 * value, digits)} %"

    return [said(value) for value in values]


def _columns(rows: Sequence[Sequence[TableCell]]) -> list[list[TableCell]]:
    """The rows, columns of shares with the digits of the column."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    for i, column in enumerate(columns):
        if any(cell.share for cell in column):
            texts = shares([cell.value for cell in column])
            columns[i] = [cell._replace(text=text) for cell, text in zip(column, texts, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


def _lean(grid: Grid) -> Grid:
    """Without the columns that are empty, and without that of the benchmark where it is one: the title names it."""
    grid = replace(grid, rows=_columns(grid.rows))
    values = {name: {row[i].text for row in grid.rows} for i, name in enumerate(grid.columns)}
    one = values.get("benchmark", set())
    kept = [i for i, name in enumerate(grid.columns) if values[name] - {""} and (name != "benchmark" or len(one) > 1)]
    return replace(
        grid,
        title=f"{grid.title}, {next(iter(one))}" if len(one) == 1 else grid.title,
        columns=[grid.columns[i] for i in kept],
        rows=[[row[i] for i in kept] for row in grid.rows],
    )


def _endpoint(row: Row) -> str:
    return "" if not row["primary"] else "primary" if row["role"] == "comparison" else "control"


def effects(rows: list[Row]) -> Grid:
    """Every comparison at the arms' last step; those of the primary endpoint come first."""
    return _lean(Grid(
        "effects", "Effects at the last update", "effects",
        ["arm", "verdict", "endpoint", "benchmark", "#pass@k", "problems are", "#difference", "#interval", "#seeds",
         "#detects", "#seeds needed", "#p", "#Holm"],
        [[text(r["arm"]), text(r["verdict"]), text(_endpoint(r)), text(r["benchmark"]),
          count(r["pass_at"]), text("these" if r["estimand"] == "benchmark" else "a sample"),
          points(r["delta"], sign=True), interval(r), TableCell(f"{r['seeds']} / {r['baseline_seeds']}", r["seeds"]),
          detectable(r["mde80"]), count(r["seeds_needed"]), p(r["p"]), p(r["p_holm"])] for r in rows],
        "Points. “Primary”: the comparison that answers the question; “control”: the same of an arm that tests the "
        "study, no part of the answer. All others are exploratory, their intervals not corrected for how many they "
        "are. Seeds: of the arm and of the baseline. These problems: would training"
        " again show it here; a sample: on problems like these. Detects: the effect seen with 80 % power.",
    ))  # fmt: skip


def scores(tables: list[Row]) -> Grid:
    """Base and arms at their last step, all benchmarks."""
    pass_at = sorted({k for table in tables for k in table["pass_at"]})
    rows = []
    for table in tables:
        for line in table["lines"]:
            of_k, first = dict(zip(table["pass_at"], line["cells"], strict=True)), line["first"]
            found = []
            for cell in map(of_k.get, pass_at):
                shown = points(cell["score"]) if cell else TableCell("")
                error = f" ± {number(100 * cell['se'])}" if cell and shown.text and known(cell["se"]) else ""
                found.append(TableCell(shown.text + error, shown.value))
            rows.append(
                [text(line["arm"]), text(table["benchmark"]), count(line["step"]), count(first["seeds"]), *found,
                 share(first["truncated_share"]), share(first["unparsed_share"]),
                 count(first["mean_completion_tokens"]), text(first["reason"])]
            )  # fmt: skip
    return _lean(Grid(
        "scores", "Scores", "scores",
        ["arm", "benchmark", "#update", "#seeds", *(f"#pass@{k}" for k in pass_at), "#cut off", "#unparsed", "#tokens",
         "note"],
        rows,
        "Per cent, with the standard error over seeds (for base: over repeated evaluations). base is the model "
        "before training.",
    ))  # fmt: skip


def run_scores(rows: list[Row]) -> Grid:
    """Each run at its last step."""
    pass_at = sorted({k for row in rows for k in row["scores"]})
    return _lean(Grid(
        "run-scores", "Scores of each run", "scores",
        ["arm", "#seed", "benchmark", "#update", *(f"#pass@{k}" for k in pass_at), "#cut off", "#unparsed", "#tokens"],
        [[text(r["arm"]), count(r["seed"]), text(r["benchmark"]), count(r["step"]),
          *(points(r["scores"].get(k)) for k in pass_at), share(r["truncated_share"]), share(r["unparsed_share"]),
          count(r["mean_completion_tokens"])] for r in rows],
        "Per cent, at the run's last evaluated update. Of base the seed is the repeat.",
    ))  # fmt: skip


def floors(rows: list[Row]) -> Grid:
    """How far results lie apart without any effect."""
    return _lean(Grid(
        "floors", "Noise floors of the endpoint", "noise_floors",
        ["noise", "arm", "#runs", "#SD", "#from", "#to", "#band", "finding"],
        [[text(r["kind"]), text(r["arm"]), count(r["runs"]), points(r["sd"]), points(r["sd_low"]),
          points(r["sd_high"]), points(r["band"]),
          text(r["verdict"] + (f" ({r['reason']})" if r["reason"] else ""))] for r in rows],
        "Points. From, to: 95 % interval of the SD. Band: a difference that this noise alone explains in 95 % of "
        "cases.",
    ))  # fmt: skip


def coverage(rows: list[Row], baseline: str) -> Grid:
    """Problems solved at all, gained and lost."""
    placebos = list(dict.fromkeys(row["placebo"] for row in rows if row["placebo"]))
    named = ", ".join(placebos) or "a placebo"
    shows = "shows among its own runs" if placebos == [baseline] else "shows"
    names = ("solved", "gained", "lost", "placebo_gained", "placebo_lost")
    return _lean(Grid(
        "coverage", "Problems solved, gained and lost", "coverage",
        ["benchmark", "arm", "#runs", "#problems", "#solved", "#gained", "#lost", "#gained without effect",
         "#lost without effect"],
        [[text(r["benchmark"]), text(r["arm"]), count(r["seeds"]), count(r["problems"]),
          *(count(r[name], 1) for name in names)] for r in rows],
        f"At least once in all samples; means over runs, last update. Gained and lost against {baseline}, run by run"
        " (its own runs against one another). Both are above zero without any effect: “without effect” is what "
        f"{named} {shows}.",
    ))  # fmt: skip


def difficulty(rows: list[Row]) -> Grid:
    """Effects by difficulty and by base solve rate."""
    return _lean(Grid(
        "difficulty", "Effects by difficulty (exploratory)", "difficulty",
        ["arm", "benchmark", "split by", "range", "#pass@k", "#problems", "#baseline", "#difference", "#interval"],
        [[text(r["arm"]), text(r["benchmark"]), text(r["split_by"].replace("_", " ")),
          TableCell(str(r["bin"]), r["place"]), count(r["pass_at"]), count(r["problems"]),
          points(r["baseline_score"]), points(r["delta"], sign=True), interval(r)] for r in rows],
        "Points; intervals uncorrected.",
    ))  # fmt: skip


def training(rows: list[Row]) -> Grid:
    """Means over runs and updates."""
    shares = ("starved_group_share", "saturated_group_share", "identical_rollout_share")
    return _lean(Grid(
        "training", "Training, means over runs and updates", "dynamics",
        ["arm", "#upper width", "#|ratio − 1|", "#entropy (nat)", "#tokens", "#reward", "#starved", "#saturated",
         "#identical"],
        [[text(r["arm"]), short(r["mean_upper_width"], ".3g"), short(r["mean_abs_ratio_deviation"], ".2g"),
          count(r["mean_entropy"], 3), count(r["mean_completion_tokens"], 1), count(r["mean_reward"], 3),
          *(share(r[name]) for name in shares)] for r in rows],
        "Upper width: mean distance of the upper bound from 1 over rollouts with positive advantage; empty where it"
        " differs by token. Starved, saturated: groups without a correct rollout, with correct ones only. "
        "Identical: rollouts whose text equals another's of their group.",
    ))  # fmt: skip


def policies(rows: list[Row]) -> Grid:
    """What each clip policy would have done in the runs of each arm."""
    two_sided = any(r[f"clipped_quadrant_{n}_tokens"] for r in rows for n in (2, 4))
    sides = (1, 2, 3, 4) if two_sided else (1, 3)
    clipped = tuple(f"clipped_quadrant_{n}_tokens" for n in sides)
    rest = ("decisive_tokens", *(f"quadrant_{n}_tokens" for n in (1, 2, 3, 4)))
    asked = [any(known(r[name]) for name in clipped) for r in rows]
    return _lean(Grid(
        "policies", "What other clips would have done", "policies",
        ["arm", "clip policy", *(f"#clipped, Q{n}" for n in sides), "#upper width", "#decisive",
         "#Q1", "#Q2", "#Q3", "#Q4", "note"],
        [[text(r["arm"]), text(r["policy"] + (" (its own)" if r["own"] else "")), *(share(r[n]) for n in clipped),
          short(r["width"] if there else None, ".3g"), *(share(r[n] if there else None) for n in rest),
          text(r["reason"] or ("" if there else "no rollout with an advantage"))]
         for r, there in zip(rows, asked, strict=True)],
        "Each clip policy is evaluated on the recorded ratios of finished runs, at the updates after the first of a "
        "rollout batch. Quadrants: Q1 is A > 0 above the upper bound, Q2 A > 0 below the lower bound, Q3 A < 0 below "
        "the lower bound, Q4 A < 0 above the upper bound. Clipped: share of the tokens with that sign of the advantage "
        "which the policy clips in that quadrant. Decisive: share of all tokens which only one of this policy and the "
        "run's own clips. Q1 to Q4: share of all tokens that lie outside the bounds; where the policy sets no bound, "
        "the one for the opposite advantage counts, so a PPO-like clip acts in Q1 and Q3 alone.",
    ))  # fmt: skip


def power(rows: list[Row]) -> Grid:
    """What more seeds would detect, and their price."""
    reason = rows[0]["reason"] if rows else None
    resolves = {None: "", True: "yes", False: "no"}
    return _lean(Grid(
        "power", "Seeds", "power",
        ["#seeds per arm", "#one arm", "#all compared arms", "#at the spread's upper bound", "resolves the margin",
         "#machine time still needed"],
        [[count(r["seeds"]), *(detectable(r[f"mde80_{of}"]) for of in ("one", "family", "family_upper80")),
          text(resolves[r["resolves_margin"]]), time(r["extra_seconds"])] for r in rows],
        f"Nothing can be planned: {reason}." if reason else "Smallest effect detected with 80 % power, in points.",
    ))  # fmt: skip


def compared(rows: list[Row]) -> Grid:
    """What each arm is, beside the baseline."""
    return Grid(
        "compared", "Arms", "",
        ["arm", "differs from the baseline in", "role", "seeds", "preset"],
        [[text(r[name]) for name in ("arm", "differs", "role", "seeds", "made")] for r in rows],
        "Names of settings are those of the study's file. A placebo is the baseline under other seeds, a sensitivity "
        "arm one made to lose: both test the study.",
    )  # fmt: skip


def pairs(rows: list[Row]) -> Grid:
    """Problems of the holdouts beside what resembles them."""
    kinds = list(dict.fromkeys((r["benchmark"], r["kind"].replace("_", " "), r["found"]) for r in rows))
    of = "; ".join(f"{benchmark} {kind} {count}" for benchmark, kind, count in kinds)
    return _lean(Grid(
        "contamination", "Problems that resemble others", "contamination",
        ["benchmark", "kind", "problem", "resembles", "#similarity", "#8\N{NON-BREAKING HYPHEN}grams", "fate"],
        [[text(r["benchmark"]), text(r["kind"].replace("_", " ")), text(r["holdout_question"]),
          text(r["other_question"]), share(r["similarity"]), share(r["coverage"]),
          text("removed" if r["removed"] else "kept")]
         for r in rows],
        f"The most similar of each kind, of all that were found: {of or 'none'}. 8-grams: share of the problem's "
        "that the other holds. Similarity: of the words, in their order. Exact, ngram and near ones are removed "
        "from training; a template twin differs in its numbers alone.",
    ))  # fmt: skip


def runs(rows: list[Row]) -> Grid:
    """Each declared run: what made it and what it took."""
    digests = ("settings_digest", "code_digest", "inputs_digest", "initial_weights", "final_weights")
    return _lean(Grid(
        "runs", "Runs", "runs",
        ["arm", "#seed", "role", "status", "#updates", "settings", "code", "inputs", "weights before", "after",
         "#training", "#sampling", "reason"],
        [[text(r["arm"]), count(r["seed"]), text(r["role"]), text(r["status"]), count(r["steps"]),
          *(text((r[name] or "")[:8]) for name in digests), time(r["train_seconds"]), time(r["sample_seconds"]),
          text(r["reason"])] for r in rows],
        "The first digits of each digest. Times are wall times of the jobs; empty where a job did not run here.",
    ))  # fmt: skip


def made(rows: list[Row]) -> Grid:
    """Each table of the page: digests and library versions of its footer."""
    return _lean(Grid(
        "made", "Tables", "all",
        ["table", "code", "content", "libraries"],
        [[text(r["table"]), text(r["code"]), text(r["content"]), text(r["libraries"])] for r in rows],
        "Every table names its settings, code, inputs and library versions in its own file.",
    ))  # fmt: skip
