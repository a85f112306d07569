"""The report's answer and tables as markdown, to paste into an issue or a paper's appendix."""

from collections.abc import Iterable, Mapping
from typing import Any

from workflow_scripts.figures.words import detectable, interval, markdown_table, number, span
from workflow_scripts.report.findings import known
from workflow_scripts.report.grids import shares
from workflow_scripts.report.visible import visible

Row = Mapping[str, Any]
NONE = "-"


def _number(value: float | None, digits: int = 1, sign: bool = False) -> str:
    return number(value, digits, sign=sign) if value is not None and known(value) else NONE


def _points(score: float | None, sign: bool = False) -> str:
    return _number(100 * score, sign=sign) if score is not None and known(score) else NONE


def _detectable(effect: float | None) -> str:
    return detectable(effect) if effect is not None and known(effect) else NONE


def _interval(row: Row) -> str:
    return interval(row["ci_low"], row["ci_high"]) if known(row["ci_low"]) else NONE


def _p(value: float | None) -> str:
    return NONE if value is None or not known(value) else f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _effects(effects: Iterable[Row]) -> list[list[str]]:
    """One line per arm, benchmark, pass@k and estimand."""
    head = ["arm", "benchmark", "pass@", "problems are", "seeds", "difference", "interval", "p", "Holm", "detects",
            "seeds needed", "verdict"]  # fmt: skip
    return [
        head,
        *(
            [
                row["arm"], row["benchmark"], str(row["pass_at"]),
                "these" if row["estimand"] == "benchmark" else "a sample",
                f"{row['seeds']} / {row['baseline_seeds']}", _points(row["delta"], sign=True), _interval(row),
                _p(row["p"]), _p(row["p_holm"]), _detectable(row["mde80"]), _number(row["seeds_needed"], 0),
                f"**{row['verdict']}**" if row["primary"] else row["verdict"],
            ]
            for row in effects
        ),
    ]  # fmt: skip


def _scores(tables: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """One line per arm and benchmark at its last step, as the page shows it."""
    tables = list(tables)
    pass_at = sorted({k for table in tables for k in table["pass_at"]})
    lines = [["benchmark", "arm", "update", "seeds", *(f"pass@{k}" for k in pass_at), "cut off", "unparsed", "tokens"]]
    firsts = [line["first"] for table in tables for line in table["lines"]]
    cut, unparsed = (iter(shares([row[name] for row in firsts])) for name in ("truncated_share", "unparsed_share"))
    for table in tables:
        for line in table["lines"]:
            cells = dict(zip(table["pass_at"], line["cells"], strict=True))
            scores = [
                NONE if cell is None else _points(cell["score"]) + (f" ± {_points(cell['se'])}" * known(cell["se"]))
                for cell in map(cells.get, pass_at)
            ]
            first = line["first"]
            beside = [next(cut) or NONE, next(unparsed) or NONE]
            lines.append([table["benchmark"], line["arm"], str(line["step"]), str(first["seeds"]), *scores, *beside,
                          _number(first["mean_completion_tokens"], 0)])  # fmt: skip
    return lines


def _power(rows: Iterable[Row]) -> list[list[str]]:
    head = ["seeds per arm", "one arm", "all compared arms", "at the spread's upper bound", "resolves the margin",
            "machine time still needed"]  # fmt: skip
    return [head, *(
        [str(row["seeds"]), *(_detectable(row[f"mde80_{of}"]) for of in ("one", "family", "family_upper80")),
         {None: NONE, True: "yes", False: "no"}[row["resolves_margin"]],
         span(row["extra_seconds"]) if known(row["extra_seconds"]) else "not measured"]
        for row in rows
    )]  # fmt: skip


def _power_note(rows: list[Row]) -> str:
    reason = rows[0]["reason"] if rows else None
    return f"Nothing can be planned: {reason}." if reason else "Smallest effect seen with 80 % power, in points."


def _noise_floors(rows: Iterable[Row]) -> list[list[str]]:
    """Of the endpoint alone: kind, arm, SD and what it says."""
    head = ["noise", "arm", "runs", "SD", "interval", "band of a difference", "finding"]
    return [head, *(
        [row["kind"], row["arm"], str(row["runs"]), _points(row["sd"]),
         f"[{_points(row['sd_low'])}, {_points(row['sd_high'])}]" if known(row["sd_low"]) else NONE,
         _points(row["band"]), row["verdict"] + (f" ({row['reason']})" if row["reason"] else "")]
        for row in rows
    )]  # fmt: skip


def _coverage(rows: Iterable[Row]) -> list[list[str]]:
    columns = ("solved", "gained", "lost", "placebo_gained", "placebo_lost")
    head = ["benchmark", "arm", "runs", "problems", "solved", "gained", "lost", "gained by placebo", "lost by placebo"]
    return [head, *(
        [row["benchmark"], row["arm"], str(row["seeds"]), str(row["problems"]), *(_number(row[c]) for c in columns)]
        for row in rows
    )]  # fmt: skip


def _difficulty(rows: Iterable[Row]) -> list[list[str]]:
    head = ["arm", "benchmark", "split by", "range", "pass@", "problems", "baseline", "difference", "interval"]
    return [head, *(
        [row["arm"], row["benchmark"], row["split_by"].replace("_", " "), row["bin"], str(row["pass_at"]),
         str(row["problems"]), _points(row["baseline_score"]), _points(row["delta"], sign=True), _interval(row)]
        for row in rows
    )]  # fmt: skip


def _compared(rows: Iterable[Row]) -> list[list[str]]:
    head = ["arm", "differs from the baseline in", "role", "seeds", "preset"]
    return [head, *([row[name] or NONE for name in ("arm", "differs", "role", "seeds", "made")] for row in rows)]


def summary(shown: Mapping[str, Any]) -> str:
    """The whole text. shown: what the page's template is given."""
    question = " ".join((shown["question"] or f"does any arm differ from {shown['baseline']}?").split())
    lines = [f"# {shown['study']}: {question}", ""]
    if shown["warnings"]:
        lines += ["**First:**", "", *(f"- {text}" for text in shown["warnings"]), ""]
    lines += ["## Answer", ""]
    lines += [f"- {row['sentence']}" for row in shown["comparisons"]] or ["No arm was compared.", ""]
    lines += [f"- control: {row['sentence']} ({row['role']})" for row in shown["controls"]]
    if shown["endpoint_note"]:
        lines += ["", shown["endpoint_note"]]
    if shown["compared_facts"]:
        lines += ["", "## What was compared", ""]
        lines += [f"- {title}: {text}" for title, text in shown["compared_facts"]]
        lines += ["", markdown_table(_compared(shown["compared_arms"]))]
    parts = {
        "Effects at the last update": (_effects(shown["last_effects"]), "Points. Bold: the primary endpoint, of "
            "the compared arms and of the controls; all else is exploratory. detects: effect seen with 80 % power. "
            "These problems: would training again show it here; a sample: on problems like these."),
        "Scores": (_scores(shown["score_tables"]), "Per cent, with the standard error over seeds (base: over repeated "
                   "evaluations)."),
        "Seeds": (_power(shown["power"]), _power_note(shown["power"])),
        "Noise": (_noise_floors(shown["endpoint_floors"]), "Points, of the primary endpoint."),
        "Problems solved": (_coverage(shown["coverage_rows"]), "At least once in all samples, last update, means over "
                            f"runs; gained and lost against {shown['baseline']}. Both are above zero without any "
                            "effect: a placebo's are beside them."),
        "Difficulty": (_difficulty(shown["difficulty_rows"]), "Points; exploratory, intervals uncorrected."),
    }  # fmt: skip
    for title, (table, note) in parts.items():
        if len(table) > 1:
            lines += ["", f"## {title}", "", markdown_table(table), "", note]
    return visible("\n".join(lines) + "\n")
