"""What the page says was compared, how it writes numbers and names, and what Snakemake's report says of tables."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import report_study
import yaml
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st
from large_study import arms_of, large, settings

from workflow_scripts import stage_settings
from workflow_scripts.report import compared, grids, visible
from workflow_scripts.stages import report
from workflow_scripts.study import load

TURNS = "\u202eturned\u2066 \x07"  # an override of direction, an isolate never closed, a bell
SHOWN = "⟨U+202E⟩turned⟨U+2066⟩ ⟨U+0007⟩"


@pytest.fixture
def default(repository: Path) -> dict[str, Any]:
    """The default study's file."""
    return yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))


def differences(study: dict[str, Any], **arms: dict[str, Any]) -> dict[str, str]:
    """arm -> in what it differs from the baseline, in words, as the report stage is told."""
    told = json.loads(stage_settings.canonical(stage_settings.report(load(study | {"arms": study["arms"] | arms}))))
    return {row["arm"]: row["differs"] for row in compared.arms(told)}


def test_each_arm_is_told_by_what_differs_from_the_baseline(default: dict[str, Any]) -> None:
    said = differences(
        default,
        wide={"same_as": "gapo", "eps_high_max": 8e-3, "rollout": {"group_size": 16, "prompts": 16}},
        kl={"same_as": "gspo_asym", "training": {"beta": 0.02, "trl": {"vllm_importance_sampling_cap": 3.0}}},
        late={"same_as": "gapo", "branch_from": {"arm": "gspo_asym", "step": 24}, "optimizer": "reset"},
        soft={"preset": "sapo", "ratio": "sequence", "sapo_tau": [1.0, 1.05], "advantage": {"scale": "none"}},
    )
    assert said == {
        "gspo_asym": "–",
        "gapo": "bounds gapo instead of ppo, no eps_high (0.005), eps_high_max 0.005",
        "gapo_matched": "bounds gapo_matched instead of ppo, no eps_high (0.005), eps_high_max 0.005",
        "placebo": "nothing but its seeds",
        "slow": "learning_rate 0.0001 instead of 0.0003",
        "wide": "bounds gapo instead of ppo, no eps_high (0.005), prompts 16 instead of 32, group_size 16 instead of "
        "8, eps_high_max 0.008",
        "kl": "beta 0.02 instead of 0, kl k3, trl.vllm_importance_sampling_cap 3",
        "late": "starts from gspo_asym at update 24, optimizer reset, bounds gapo instead of ppo, no eps_high (0.005), "
        "checkpoints [48] instead of [24, 48], eps_high_max 0.005",
        "soft": "no bounds (ppo), surrogate sapo instead of clipped, aggregation seq-mean-token-mean instead of "
        "token-mean, no eps_low (0.003), no eps_high (0.005), sapo_tau [1, 1.05]",
    }


def test_the_page_and_the_summary_say_what_was_compared(tmp_path: Path, default: dict[str, Any]) -> None:
    told = json.loads(stage_settings.canonical(stage_settings.report(load(default))))
    rows = report_study.contents()
    rows["runs"] = [row | {"train_problems": 3772} for row in rows["runs"]]
    job = report_study.write(tmp_path, rows, told, {})
    report.main(job)
    facts = [
        ("Model", "embedded (made by the pipeline), float32, full weights, prompts plain"),
        ("Trained on", "word_problems_train: 4000 rows asked for, 3772 in the train set; decontaminated against "
         "word_problems_test"),
        ("Training", "48 updates, 4 of each rollout batch of 32 prompts × 8 rollouts (the group size); learning rate "
         "0.0003, constant; KL weight 0; temperature 1; completions of at most 32 tokens; reward exact_answer"),
        ("Objective of gspo_asym", "ratio sequence, bounds ppo, surrogate clipped, advantage.scale none, aggregation "
         "token-mean, eps_low 0.003, eps_high 0.005"),
        ("Evaluated on", "word_problems_test: 400 problems × 8 samples; pass@1, 4, 8; temperature 1; answers of at "
         "most 32 tokens"),
    ]  # fmt: skip
    html, summary = (Path(job.output(name)).read_text(encoding="utf-8") for name in ("report", "summary"))
    for title, text in facts:
        assert f"<dt>{title}</dt><dd>{text}</dd>" in html
        assert f"- {title}: {text}\n" in summary
    assert "| placebo | nothing but its seeds | placebo | 100–104 | as gspo_asym |" in summary
    assert html.index('id="answer"') < html.index('id="compared"') < html.index('id="power"')


def test_arms_that_are_better_or_worse_are_named_first(tmp_path: Path) -> None:
    arms = arms_of(20)
    rows = large(arms, 3, problems=2)
    for row in rows["effects"]:
        row["verdict"] = {"arm_07": "worse", "arm_11": "better"}.get(row["arm"], report_study.NO_DIFFERENCE)
    job = report_study.write(tmp_path, rows, settings(arms, 3), {})
    report.main(job)
    html = Path(job.output("report")).read_text(encoding="utf-8")
    lede = re.sub(r"<[^>]+>", "", re.search(r'<p class="lede">(.*?)</p>', html).group(1))  # type: ignore[union-attr]
    assert lede == (
        "19 arms compared with gspo_asym: 1 worse (arm_07), 1 better (arm_11), 17 no difference beyond the margin."
    )
    listed = re.findall(r'<li class="\w+"><span class="arm" title="([^"]+)"', html)
    assert listed == ["arm_07", "arm_11", *(arm for arm in arms[1:] if arm not in ("arm_07", "arm_11"))]


def test_checks_have_one_count_and_a_line_each_that_is_seen(tmp_path: Path) -> None:
    job = report_study.write(tmp_path, report_study.contents(), report_study.ANALYSIS, {})
    report.main(job)
    html = Path(job.output("report")).read_text(encoding="utf-8")
    section = re.search(r'<section id="checks">.*?</section>', html, flags=re.DOTALL).group()  # type: ignore[union-attr]
    states = re.findall(r'<summary><span class="badge (\w+)">', section)
    counted = re.findall(r'<span class="badge (\w+)">[^<]+</span> (\d+) ', section.split("</p>")[0])
    assert counted == [(state, str(states.count(state))) for state in dict.fromkeys(states)]
    assert f"of {len(states)} checks" in section
    assert not re.search(r"<details(?! class=\"check\")", section)


def test_acting_characters_of_the_study_are_named_everywhere(tmp_path: Path) -> None:
    arms = ["gspo_asym", TURNS]
    rows = large(arms, 3, problems=2)
    rows["runs"][0] |= {"status": "missing", "reason": TURNS}
    rows["reachability"][0] |= {"message": TURNS}
    figure = f'<svg xmlns="http://www.w3.org/2000/svg"><text>{TURNS}</text></svg>'
    told = settings(arms, 3) | {"question": TURNS, "captions": {"effects": TURNS}}
    job = report_study.write(tmp_path, rows, told, {"effects": figure})
    report.main(job)
    for name in ("report", "summary"):
        text = Path(job.output(name)).read_text(encoding="utf-8")
        assert text.count(SHOWN) > 5
        assert not set(TURNS) & set(text) - set("turned ")
    html = Path(job.output("report")).read_text(encoding="utf-8")
    assert f"<title>embedded: {SHOWN}</title>" in html
    assert f"<h1><bdi>{SHOWN}</bdi></h1>" in html


def test_the_same_characters_are_named_in_completions() -> None:
    script = (Path(visible.__file__).parent / "page" / "examples.js").read_text(encoding="utf-8")
    named = re.search(r"text\.replace\(/\[(.*?)\]/g", script).group(1)  # type: ignore[union-attr]
    every = "".join(map(chr, range(0x10000)))
    assert re.findall(f"[{named}]", every) == re.findall(visible._ACTING, every)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0.002, 0.00062, 0.001, None], ["0.20 %", "0.06 %", "0.10 %", ""]),
        ([0.183, 0.007, 0.0], ["18.3 %", "0.7 %", "0 %"]),
        ([0.2, 0.00001, float("nan")], ["20.00 %", "< 0.01 %", ""]),
    ],
)
def test_shares_of_a_column_have_the_same_digits(values: list[float | None], said: list[str]) -> None:
    assert grids.shares(values) == said


@given(st.sets(st.integers(0, 40)))
@settings_of_hypothesis(max_examples=60, deadline=None)
def test_seeds_in_words_are_those_seeds(seeds: set[int]) -> None:
    parts = [list(map(int, part.split("–"))) for part in compared.seeds_of(list(seeds)).split(", ") if part]
    assert [seed for part in parts for seed in range(part[0], part[-1] + 1)] == sorted(seeds)


def test_controls_are_no_primary_comparison() -> None:
    grid = grids.effects([{**row, "mde80": None, "seeds_needed": None, "p": None, "p_holm": None}
                           for row in (base | {"reason": None} for base in report_study.EFFECTS)])  # fmt: skip
    place = list(grid.columns).index("endpoint")
    assert [row[place].text for row in grid.rows] == ["primary", "primary", "control", "control"]


def test_each_table_of_snakemakes_report_says_what_its_rows_are(repository: Path) -> None:
    readme = (repository / "results" / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", readme, flags=re.MULTILINE))
    rules = "".join(path.read_text(encoding="utf-8") for path in (repository / "rules").glob("*.smk"))
    folder = repository / "rules" / "captions" / "tables"
    names = set(re.findall(r'\btable\("(\w+)"\)', rules))
    assert {path.stem for path in folder.iterdir()} == names > {"effects", "runs"}
    for path in folder.iterdir():
        said = " ".join(path.read_text(encoding="utf-8").split())
        assert said.startswith(f"A row is {rows[path.stem].replace('`', '``')}. "), path.stem
