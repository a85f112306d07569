"""The page and its figures: what must stand first, what must be escaped, and that no chart is blank."""

import contextlib
import io
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report_study import ANALYSIS, BENCHMARK, EFFECTS, ROLES, contents, effect, write

from workflow_scripts import digest, tables
from workflow_scripts.errors import UserError
from workflow_scripts.figures import catalogue, words
from workflow_scripts.job import Job
from workflow_scripts.report import findings, warnings
from workflow_scripts.stages import plot, report

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><g id="clip1"/><g clip-path="url(#clip1)"/></svg>'
HOSTILE = "<script>alert(1)</script>"


def page(root: Path, rows: dict[str, list[dict]] | None = None, **settings: Any) -> str:
    """The report of a study, with stand-ins for the figures."""
    job = write(root, rows or contents(), ANALYSIS | settings, {"effects": SVG, "noise_floors": SVG})
    report.main(job)
    return Path(job.output("report")).read_text(encoding="utf-8")


def text(html: str) -> str:
    """What a reader sees, in one line."""
    body = re.sub(r"<(title|style|script|nav|svg)\b.*?</\1>", " ", html, flags=re.DOTALL)
    inline = re.sub(r"</?(b|code|span)\b[^>]*>", "", body)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", inline))


def warnings_of(html: str) -> str:
    """Text of the warnings."""
    found = re.search(r'<section id="warnings">.*?</section>', html, flags=re.DOTALL)
    return text(found.group()) if found else ""


def replace(rows: list[dict], change: dict, **where: Any) -> list[dict]:
    """rows, with `change` put into those that match."""
    return [row | change if all(row.get(k) == v for k, v in where.items()) else row for row in rows]


def test_verdicts_are_sentences_with_their_numbers(tmp_path: Path) -> None:
    shown = text(page(tmp_path))
    assert "gapo: no difference beyond the margin: −0.4 points [−2.1, +1.3], margin 5" in shown
    assert (
        "gapo_matched: inconclusive: underpowered: +1.2 points [−3.1, +5.3], margin 5; needs 9 seeds per arm" in shown
    )
    assert "slow: worse than gspo_asym: −9.4 points [−12.1, −7.0], margin 5 (sensitivity)" in shown
    assert "8 seeds per arm resolve the margin" in shown
    assert "at 97.5 %: corrected for 2 compared arms and 1 planned look." in shown
    assert "1 problem of word_problems_test (gold)" in shown
    assert "gapo 0.0043 0.002 0.400 18.0 0.400 31.0 %" in shown  # starved and saturated groups are not known here


def test_the_summary_is_markdown_with_the_page_s_sentences_and_tables(tmp_path: Path) -> None:
    html = page(tmp_path, question="Is a | b?")
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("# embedded: Is a | b?\n")
    assert "- gapo: no difference beyond the margin: −0.4 points [−2.1, +1.3], margin 5\n" in summary
    assert "- control: slow: worse than gspo_asym: −9.4 points [−12.1, −7.0], margin 5 (sensitivity)\n" in summary
    tables_of = re.findall(r"(?:^\|.*\n)+", summary, flags=re.MULTILINE)
    assert len(tables_of) == 6
    for table in tables_of:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    assert "| gapo | no difference beyond the margin | primary | 1 | these | −0.4 | [−2.1, +1.3] | 3 / 3 |" in summary
    assert "| gapo | 3 | 400 | 370.3 | 12.3 | 11.7 | 12.0 | 13.0 |" in summary
    assert "370.3 12.3 11.7 12.0 13.0" in text(html)
    rows = contents()
    rows["effects"] = [effect("a|b", None, None, None, "not assessable", reason="one seed\nonly")]
    page(tmp_path / "bare", {**rows, "power": [], "difficulty": [], "coverage": [], "noise_floors": []})
    bare = (tmp_path / "bare" / "summary.md").read_text(encoding="utf-8")
    assert "| a\\|b | not assessable | primary | 1 | these | 3 / 3 |" in bare
    assert "## Seeds" not in bare


def test_a_study_without_faults_has_no_warning_and_no_better(tmp_path: Path) -> None:
    html = page(tmp_path)
    assert warnings_of(html) == ""
    assert not re.search(r"better than|winner", text(html))


def test_what_other_clips_would_have_done_pooled_over_runs(tmp_path: Path) -> None:
    """Of three runs 180 of 2400 positive tokens, 75 of 1500 negative ones, 90 of 6000 decisive; 180, 18, 75, 9."""
    shown = text(page(tmp_path))
    quadrants = "3.0 % 0.3 % 1.2 % 0.1 %"
    assert f"gapo gapo (its own) 7.5 % 5.0 % 0.004 0 % {quadrants}" in shown
    assert f"gapo wide 7.5 % 5.0 % 0.008 1.5 % {quadrants}" in shown
    assert "gapo dcpo dcpo follows each token" in shown


def test_every_part_of_the_page_counts_in_its_digest() -> None:
    folder = Path(digest.HERE, "report", "page")
    reached = digest.reached("report")
    counted = {path for module, name in reached for path in digest._data_files(module, name)}
    assert {path for path in folder.iterdir() if path.suffix not in (".py", "")} <= counted


def test_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    assert page(tmp_path / "a") == page(tmp_path / "b")


FAULTS = [
    ("effects", [*EFFECTS[:3], effect("slow", -0.01, -0.03, 0.01, "no difference beyond the margin")],
     "does not see the loss of slow"),
    ("effects", [*EFFECTS[:2], effect("placebo", 0.05, 0.02, 0.08, "better"), EFFECTS[3]],
     "The placebo placebo was judged"),
    ("effects", replace(EFFECTS, {"planned_look": False}), "A look at 3 seeds was not planned"),
    ("runs", replace(contents()["runs"], {"status": "missing", "reason": "no checkpoints.parquet"}, arm="gapo", seed=2),
     "1 of 15 runs are missing: gapo seed 2 (no checkpoints.parquet)"),
    ("runs", [row for row in contents()["runs"] if row["arm"] != "gapo" or row["seed"] == 0], "One seed only: gapo."),
    ("reachability", replace(contents()["reachability"], {"verdict": "warn", "value": 0.7}, check="flat_groups"),
     "Most groups are flat: in 70.0 % of them all rollouts got the same reward and taught nothing (gspo_asym, gapo)"),
    ("reachability",
     replace(contents()["reachability"], {"verdict": "warn", "value": 0.3}, check="truncation", arm="gapo"),
     "Answers are cut off in training: 30.0 % of rollouts hit the token limit (gapo)"),
    ("reachability", replace(contents()["reachability"], {"verdict": "fail"}, check="clip_live", arm="gapo"),
     "Failed: the clip acts (gapo): 12.0 % seen."),
    ("reachability",
     [*contents()["reachability"], {"arm": "gapo", "check": "collapse", "verdict": "warn", "value": 1.0,
                                    "message": "seed 3 collapsed: entropy 0.02 after 0.61"}],
     "gapo seed 3 collapsed: entropy 0.02 after 0.61."),
    ("rewards", replace(contents()["rewards"], {"code_reward_version": 2, "changed": 8, "to_correct": 8}, arm="gapo"),
     "would give 2.0 % of stored rollouts another reward (gapo); --config "
     "retrain_on_reward_change=true trains again."),
    ("rewards", replace(contents()["rewards"], {"changed": 4, "to_wrong": 4}),
     "another reward (gspo_asym, gapo, gapo_matched, placebo, slow); its REWARD_VERSION does not say so"),
    ("scores", replace(contents()["scores"], {"truncated_share": 0.4}, arm="base", level="arm"),
     "Answers are cut off at the token limit in the evaluation: up to 40.0 % (base)."),
    ("contamination", replace(contents()["contamination"], {"caught": False}, holdout_problem_id="h3"),
     "399 of 400 planted copies found"),
    ("contamination", replace(contents()["contamination"], {"caught": None}), "no positive control was run"),
    ("gold_audit", replace(contents()["gold_audit"], {"dropped": True, "reason": "unparsed"}),
     "400 of 400 reference answers left out: 400 unparsed"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "rows", "said"), FAULTS, ids=[said[:40] for *_, said in FAULTS])
def test_each_fault_is_said_before_any_delta(tmp_path: Path, table: str, rows: list[dict], said: str) -> None:
    html = page(tmp_path, contents() | {table: rows})
    assert said in warnings_of(html)
    shown = text(html)
    numbers = [match.start() for match in re.finditer(r"[+−]?\d+\.\d points", shown)]
    assert shown.index(said) < min(numbers)
    assert html.index('id="warnings"') < html.index("<svg")


def test_the_gravest_warning_is_first(tmp_path: Path) -> None:
    rows = contents()
    rows["effects"] = FAULTS[0][1]
    rows["reachability"] = replace(rows["reachability"], {"verdict": "warn", "value": 0.7}, check="flat_groups")
    shown = warnings_of(page(tmp_path, rows))
    assert shown.index("does not see the loss") < shown.index("Most groups are flat")


def test_one_seed_gets_no_interval_and_no_winner(tmp_path: Path) -> None:
    single = effect("gapo", 0.062, None, None, "not assessable", reason="1 seed: an interval needs 2", look=1)
    html = page(tmp_path, contents() | {"effects": [single], "power": []})
    shown = text(html)
    assert "gapo: not assessable; 1 seed: an interval needs 2; measured +6.2 points, without an interval" in shown
    assert "gapo: better" not in shown
    assert not re.search(r"\b(nan|None)\b", shown)


def test_a_study_of_nothing_still_has_a_page(tmp_path: Path) -> None:
    empty = {name: [] for name in contents()}
    shown = text(page(tmp_path, empty, question=""))
    assert "Does any arm differ from gspo_asym?" in shown
    assert "No arm was compared with gspo_asym." in shown


class Fetches(HTMLParser):
    """Collects all that a browser would load, but the page's own two scripts and its empty icon."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        own = attributes in ([], [("type", "application/json"), ("id", "examples-data")])
        self.scripts += tag == "script"
        foreign = tag == "script" and (self.scripts > 2 or not own)
        if foreign or tag in ("iframe", "object", "embed", "img", "base"):
            self.found.append(tag)
        if attributes == [("rel", "icon"), ("href", "data:,")]:
            return
        for name, value in attributes:
            if name.startswith("on") or (name in ("src", "href", "xlink:href") and not (value or "").startswith("#")):
                self.found.append(f"{tag} {name}={value}")


def test_text_of_the_study_is_inert(tmp_path: Path) -> None:
    rows = contents()
    rows["effects"] = [effect(HOSTILE, 0.01, -0.01, 0.03, "inconclusive", reason=HOSTILE)]
    rows["runs"][0] |= {"status": "missing", "reason": HOSTILE}
    rows["reachability"][0] |= {"arm": HOSTILE, "message": HOSTILE}
    rows["coverage"][0] |= {"arm": HOSTILE, "against": HOSTILE}
    rows["difficulty"][0] |= {"bin": HOSTILE}
    rows["gold_audit"] = replace(rows["gold_audit"], {"dropped": True, "reason": HOSTILE})
    rows["counts"][0] |= {"excluded": HOSTILE}
    html = page(tmp_path, rows, question=HOSTILE, study=HOSTILE, arms=[HOSTILE, *ROLES])
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 10
    assert HOSTILE not in html
    parser = Fetches()
    parser.feed(html)
    assert parser.found == []


def test_nothing_is_fetched_from_outside(tmp_path: Path) -> None:
    html = page(tmp_path)
    parser = Fetches()
    parser.feed(html)
    assert parser.found == []
    assert not re.search(r"url\((?!#)|@import", html)


def test_ids_of_two_figures_do_not_collide(tmp_path: Path) -> None:
    html = page(tmp_path)
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert "url(#figure_effects-clip1)" in html
    assert "url(#figure_noise_floors-clip1)" in html


def test_damaged_inputs_are_named(tmp_path: Path) -> None:
    job = write(tmp_path, contents(), ANALYSIS, {"effects": ""})
    with pytest.raises(UserError, match=r"figures/effects.svg: not an SVG figure"):
        report.main(job)
    scores = Path(job.input("scores"))
    scores.write_bytes(scores.read_bytes()[:100])
    with pytest.raises(tables.TableError, match=r"tables/scores.parquet: not a readable parquet file"):
        report.main(job)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (words.points(-0.004), "−0.4 points"),
        (words.points(-0.0001), "0.0 points"),
        (words.interval(-0.021, 0.0126), "[−2.1, +1.3]"),
        (words.percent(0.123), "12.3 %"),
        (words.percent(0.00042), "0.042 %"),
        (words.percent(0.0), "0 %"),
        (words.span(31.5), "32 s"),
        (words.span(4000), "67 min"),
        (words.span(11520), "3.2 h"),
    ],
)
def test_numbers_in_words(said: str, shown: str) -> None:
    assert said == shown


def draw(
    root: Path,
    name: str,
    rows: dict[str, list[dict]],
    arms: Sequence[str] = tuple(ROLES),
    declared: dict[str, list[int]] | None = None,
) -> tuple[str, str]:
    """html and svg of a figure, made by its stage."""
    (figure,) = (figure for figure in catalogue.FIGURES if figure.name == name)
    job = write(root, rows, {}, {})
    options = {"arms": list(arms), "baseline": "gspo_asym", "branched": None, "margin": 0.05, "pass_at": 1}
    files = [str(root / f"{name}.{kind}") for kind in ("html", "svg")]
    paths = [path for table in figure.read for path in job.inputs[table]]
    plot.main(Job(figure.settings(options, declared), {}, job.code, root, {"tables": paths}, {"figure": files}, ()))
    return tuple(Path(path).read_text(encoding="utf-8") for path in files)


FIGURES = {
    "effects": ["gapo_matched", "slow (sensitivity)", "points", "two single runs"],
    "learning_curves": ["optimizer updates", "pass@1 on word_problems_test (%)", "pass@8"],
    "clip_fraction": ["correct rollouts in the group", "tokens with positive advantage clipped above (%)"],
    "ratio_advantage": ["correlation of sequence ratio and advantage", "mean |ratio − 1| of tokens", "gapo_matched"],
    "noise_floors": ["SD of a run's pass@1 on word_problems_test (points)", "gspo_asym"],
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_drawn_and_need_nothing_from_outside(tmp_path: Path, name: str) -> None:
    html, svg = draw(tmp_path, name, contents())
    for label in FIGURES[name]:
        assert label.replace("'", "&#x27;") in svg or label in svg
    assert "NaN" not in svg
    assert "color-scheme: light dark" in svg[:400]
    assert not re.search(r"<(script|link)[^>]+(src|href)=", html)
    assert not re.search(r'(xlink:)?href="(?!#)|url\((?!#)', svg)


EMPTY = {
    "effects": ({"effects": [effect("gapo", 0.06, None, None, "not assessable")]}, "no interval: the variance is"),
    "learning_curves": ({"scores": [row for row in contents()["scores"] if row["arm"] == "base"]}, "no trained run"),
    "clip_fraction": ({"dynamics": []}, "no bound could fire"),
    "ratio_advantage": ({"dynamics": []}, "nothing to correlate"),
    "noise_floors": ({"noise_floors": [contents()["noise_floors"][0]]}, "one seed per arm"),
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_figure_without_data_says_why(tmp_path: Path, name: str) -> None:
    rows, said = EMPTY[name]
    assert said in draw(tmp_path, name, contents() | rows)[1]


def test_hostile_arm_names_are_escaped_in_figures(tmp_path: Path) -> None:
    rows = contents() | {"effects": [effect(HOSTILE, 0.01, -0.01, 0.03, "inconclusive")]}
    html, svg = draw(tmp_path, "effects", rows, arms=["gspo_asym", HOSTILE])
    assert HOSTILE not in svg
    assert HOSTILE not in html


def test_the_code_of_the_readme_runs(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (repository / "results" / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    path = tmp_path / "results" / "embedded" / "tables" / "effects.parquet"
    tables.write(path, tables.EFFECTS, EFFECTS, {"code": "0123456789abcdef"})
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(block, {"pd": pd})
    assert len(blocks[0].strip().splitlines()) == 2
    assert "no difference beyond the margin" in printed.getvalue()
    assert "delta | double | score | arm minus baseline" in printed.getvalue()
    assert "0123456789abcdef" in printed.getvalue()


def test_the_readme_names_every_table(repository: Path) -> None:
    readme = (repository / "results" / "README.md").read_text(encoding="utf-8")
    known = {table.name for table in vars(tables).values() if isinstance(table, tables.Table)}
    known -= {"problems", "manifest", "samples", "simulation"}
    assert not {name for name in known if not re.search(rf"\b{name}\b", readme)}
    assert BENCHMARK not in readme


@pytest.mark.parametrize(("long", "verdict"), [(2, "pass"), (3, "warn")])
def test_train_problems_left_out_for_their_prompts_are_counted(long: int, verdict: str, tmp_path: Path) -> None:
    rows = replace(contents()["runs"], {"train_problems": 100, "long_prompts": long}, status="done")
    html = page(tmp_path, contents() | {"runs": rows}, max_prompt=1536)
    said = f"{long} of 100 train problems have prompts above rollout.max_prompt, 1536 tokens, and are left out"
    assert f"{verdict} {said}" in text(html)
    assert (f"Train prompts: {said}." in warnings_of(html)) == (verdict == "warn")


def test_two_engines_or_kinds_of_hardware_in_one_study_are_a_warning() -> None:
    one = {"rollout_engine": "transformers 5", "sampling_engine": "transformers 5", "hardware": "1 x H200"}
    assert {row["verdict"] for row in findings.engine_checks([one, one])} == {"pass"}
    mixed = findings.engine_checks([one, {**one, "sampling_engine": "vllm 9"}, {**one, "sampling_engine": None}])
    assert [row["verdict"] for row in mixed] == ["pass", "warn", "pass"]
    assert mixed[1]["message"] == "completions drawn by transformers 5; vllm 9"
    assert warnings.warnings([], [], [], mixed) == ["Engines: completions drawn by transformers 5; vllm 9."]
    mixed = findings.engine_checks([one, {**one, "hardware": "1 x H100"}])
    assert warnings.warnings([], [], [], mixed) == ["Hardware: runs trained on 1 x H100; 1 x H200."]
