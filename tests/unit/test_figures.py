"""Every figure on every kind of study: drawn or a notice that says why, never blank, small, of what was measured."""

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import vl_convert
from figure_study import Made, frame

from workflow_scripts import tables
from workflow_scripts.figures import catalogue, panels, style
from workflow_scripts.figures.clip_fraction import clip_fraction_chart
from workflow_scripts.figures.costs import costs_chart, seeds_needed_chart
from workflow_scripts.figures.effects import effects_chart
from workflow_scripts.figures.learning_curves import learning_curves_chart
from workflow_scripts.figures.noise_floors import noise_floors_chart
from workflow_scripts.figures.objectives import gradient_weight_chart, upper_bounds_chart
from workflow_scripts.figures.policies import decisive_tokens_chart, quadrants_chart
from workflow_scripts.figures.problems import coverage_chart, difficulty_chart, solve_rates, solve_rates_chart
from workflow_scripts.figures.ratio_advantage import ratio_advantage_chart
from workflow_scripts.figures.training_course import training_course_chart
from workflow_scripts.job import Job
from workflow_scripts.stages import plot
from workflow_scripts.stages.tabulate_objectives import gradient_weights, tabulate

Tables = dict[str, pd.DataFrame]
LONG = "длинное-имя-" * 15 + "😀 " + "x" * 30

DRAW: dict[str, Callable[[Tables, list[str]], alt.TopLevelMixin]] = {
    "effects": lambda t, arms: effects_chart(t["effects"], t["noise_floors"], arms),
    "learning_curves": lambda t, arms: learning_curves_chart(t["scores"], arms, None, arms[0]),
    "noise_floors": lambda t, arms: noise_floors_chart(t["noise_floors"], 1, arms),
    "seeds_needed": lambda t, arms: seeds_needed_chart(t["power"], 0.05),
    "difficulty": lambda t, arms: difficulty_chart(t["difficulty"], 1, arms),
    "solve_rates": lambda t, arms: solve_rates_chart(t["counts"], arms),
    "coverage": lambda t, arms: coverage_chart(t["coverage"], arms),
    "gradient_weight": lambda t, arms: gradient_weight_chart(t["objectives"], arms),
    "upper_bounds": lambda t, arms: upper_bounds_chart(t["objectives"], arms),
    "clip_fraction": lambda t, arms: clip_fraction_chart(t["dynamics"], arms),
    "ratio_advantage": lambda t, arms: ratio_advantage_chart(t["dynamics"], arms),
    "quadrants": lambda t, arms: quadrants_chart(t["policies"], arms),
    "decisive_tokens": lambda t, arms: decisive_tokens_chart(t["policies"], arms),
    "training_course": lambda t, arms: training_course_chart(t["dynamics"], arms),
    "costs": lambda t, arms: costs_chart(t["runs"], arms),
}


def without_values(made: Made) -> Tables:
    """No measured number is known: NaN wherever one may be null; the study's own (margin, level) are."""
    found = {}
    for name, rows in made.tables().items():
        keys = (
            "arm",
            "seed",
            "step",
            "update_index",
            "pass_at",
            "group_correct",
            "tokens",
            "positive",
            "group_size",
            "margin",
            "level",
        )
        numbers = [c for c in rows.select_dtypes("number") if c not in keys]
        found[name] = rows.assign(**dict.fromkeys(numbers, np.nan))
    return found


def without_clipping(made: Made) -> Tables:
    """A run is missing, nothing was clipped, and rewards were all alike in the second arm."""
    found = made.tables()
    gone = (made.arms[-1], made.seeds - 1)
    for name in ("scores", "dynamics", "policies", "counts", "runs"):
        rows = found[name]
        found[name] = rows[(rows["arm"] != gone[0]) | (rows["seed"] != gone[1])]
    rows = found["dynamics"].assign(clipped_quadrant_1_share=lambda one: one["clipped_quadrant_1_share"] * 0)
    flat = rows["arm"] == made.arms[1]
    rows.loc[flat, ["positive_tokens", "clipped_quadrant_1_share"]] = [0, np.nan]
    return found | {"dynamics": rows}


ARMS = ["fixed", "gapo", "wide"]
MANY = [f"arm_{n:02}" for n in range(20)]
STUDIES: dict[str, Callable[[], tuple[Tables, list[str]]]] = {
    "one arm, one seed": lambda: (Made(["alone"], 1).tables(), ["alone"]),
    "one seed": lambda: (Made(ARMS, 1).tables(), ARMS),
    "no values": lambda: (without_values(Made(ARMS, 2)), ARMS),
    "nothing clipped, a run missing": lambda: (without_clipping(Made(ARMS, 2)), ARMS),
    "no rows": lambda: ({name: rows.iloc[:0] for name, rows in Made(ARMS, 1).tables().items()}, ARMS),
    "long names": lambda: (Made([LONG + n for n in "abc"], 2, LONG).tables(), [LONG + n for n in "abc"]),
    "20 arms of 10 seeds": lambda: (Made(MANY, 10).tables(), MANY),
}  # fmt: skip
MARKS = re.compile(r'class="mark-(?!group|text role-(?:axis|legend|title))[a-z]+ role-mark[^"]*"[^>]*>(?!</g>)')
LABELLED = (
    "effects",
    "learning_curves",
    "noise_floors",
    "difficulty",
    "gradient_weight",
    "upper_bounds",
    "decisive_tokens",
)
ALONE = {  # figures that a study draws otherwise than the others do; else all
    "one seed": ("effects", "noise_floors", "seeds_needed", "difficulty", "learning_curves"),
    "long names": LABELLED,
    "nothing clipped, a run missing": ("clip_fraction", "ratio_advantage", "solve_rates", "costs"),
}
NOTICES = {  # per study: what has nothing to show
    "one arm, one seed": {"effects", "noise_floors", "seeds_needed", "difficulty"},
    "one seed": {"noise_floors", "seeds_needed"},
}


def texts(svg: str) -> list[str]:
    """All that is written in a figure."""
    found = re.findall(r"<text[^>]*>(.*?)</text>", svg, flags=re.DOTALL)
    return [line for text in found for line in re.split(r"<[^>]*>", text)]


@pytest.mark.parametrize("study", STUDIES)
def test_every_figure_is_drawn_or_says_why_not(study: str) -> None:
    found, arms = STUDIES[study]()
    assert set(DRAW) == {figure.name for figure in catalogue.FIGURES}
    noticed = set()
    for name in ALONE.get(study, DRAW):
        spec = DRAW[name](found, arms).to_json(indent=None)
        svg = vl_convert.vegalite_to_svg(spec)
        assert MARKS.search(svg), f"{name}: blank"
        assert not re.search(r"\b(NaN|nan|null|undefined|Infinity)\b", svg), name
        assert len(svg) < 400_000, f"{name}: {len(svg)} bytes"
        assert len(spec) < 1_000_000, f"{name}: {len(spec)} bytes"
        assert max(map(len, texts(svg))) < 160, f"{name}: a text that is not cut"
        width, height = (float(re.search(rf'{side}="([\d.]+)"', svg).group(1)) for side in ("width", "height"))  # type: ignore[union-attr]
        assert width < 1150, name
        assert height < (2600 if study.startswith("20") else 900), name
        if '"text":' in spec and spec.count('"mark"') == 1 and '"type": "text"' in spec:
            noticed.add(name)
    assert noticed >= NOTICES.get(study, set())
    if study in NOTICES:
        assert noticed == NOTICES[study]


def test_a_figure_has_a_caption_that_names_its_tables(repository: Path) -> None:
    folder = repository / "rules" / "captions"
    names = {figure.name for figure in catalogue.FIGURES}
    assert names <= {path.stem for path in folder.glob("*.rst")}
    for figure in catalogue.FIGURES:
        said = (folder / f"{figure.name}.rst").read_text(encoding="utf-8")
        assert set(figure.tables) <= set(re.findall(r"``(\w+)``", said)), figure.name
        assert not re.search(r"[{}<>]", said), figure.name


GAPO = {"ratio": "sequence", "surrogate": "clipped", "bounds": "gapo", "eps_low": 3e-3, "eps_high_max": 5e-3}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "ppo": {"ratio": "token", "surrogate": "clipped", "bounds": "ppo", "eps_low": 0.2, "eps_high": 0.28},
    "gapo": GAPO,
    "cispo": {"ratio": "token", "surrogate": "cispo", "cispo_upper": 1.2},
    "sapo": {"ratio": "token", "surrogate": "sapo", "sapo_tau": [1.0, 1.05]},
    "dcpo": {"ratio": "token", "surrogate": "clipped", "bounds": "dcpo", "eps_low": 0.16, "eps_high": 0.2},
    "dual": {"ratio": "token", "surrogate": "clipped", "bounds": "dual_clip", "eps_low": 0.2, "eps_high": 0.2,
             "dual_clip_bound": 3.0},
}  # fmt: skip


def by_hand(arm: str, r: float, positive: bool, c: int, q: float) -> float:
    """Gradient weight of a token at ratio r: from the papers' equations, not from the objectives' code."""
    if arm == "cispo":
        return min(r, 1.2)
    if arm == "sapo":
        gate = 1 / (1 + np.exp(-(1.0 if positive else 1.05) * (r - 1)))
        return float(4 * gate * (1 - gate) * r)
    upper = {
        "ppo": 1.28, "gapo": 1 + 3e-3 + 2e-3 * (8 - c) / 7, "dual": 1.2,
        "dcpo": min(0.5 + 0.5 * np.sqrt(1 + 4 * 0.2 / q), 10.0),
    }[arm]  # fmt: skip
    lower = {"ppo": 0.8, "gapo": 0.997, "dual": 0.8, "dcpo": 0.5 + 0.5 * np.sqrt(max(1 - 4 * 0.16 / q, 0))}[arm]
    if positive:
        return r if r < upper else 0.0
    return r if lower < r < (3.0 if arm == "dual" else np.inf) else 0.0


def test_gradient_weights_are_those_of_the_papers() -> None:
    rows = tabulate(OBJECTIVES, dict.fromkeys(OBJECTIVES, 8))
    assert set(rows["group_correct"]) == set(range(1, 8))
    probability = rows["old_probability"].fillna(0.5)
    asked = zip(
        rows["arm"], np.exp(rows["log_ratio"]), rows["positive"], rows["group_correct"], probability, strict=True
    )
    expected = np.array([by_hand(*one) for one in asked])
    edges = rows[["lower_bound", "upper_bound"]].to_numpy(dtype=float)
    near = (np.abs(np.exp(rows["log_ratio"]).to_numpy()[:, None] - edges) < 1e-6).any(1)  # bounds are in float32
    np.testing.assert_allclose(rows["gradient_weight"][~near], expected[~near], rtol=1e-6, atol=1e-9)
    assert near.sum() < 0.01 * len(rows)
    assert rows.loc[rows["arm"] == "dcpo", "old_probability"].nunique() == 3
    assert rows.loc[rows["arm"] != "dcpo", "old_probability"].isna().all()
    for _, sides in rows[rows["upper_bound"].notna()].groupby(
        ["arm", "group_correct", "positive", "old_probability"], dropna=False
    ):
        past = np.exp(sides["log_ratio"]) > sides["upper_bound"]
        assert past.any() and not past.all()  # the edge is in the picture


def test_a_policy_that_fails_leaves_its_reason_and_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = import_module("workflow_scripts.objectives.bounds")
    monkeypatch.setattr(bounds, "broken", lambda group: 1 / 0, raising=False)
    broken = {"ratio": "sequence", "surrogate": "clipped", "bounds": "broken"}
    rows = tabulate({"broken": broken, "gapo": GAPO}, {"broken": 8, "gapo": 8})
    (reason,) = rows.loc[rows["arm"] == "broken", "reason"]
    assert "ZeroDivisionError" in reason
    chart = gradient_weight_chart(rows, ["broken", "gapo"]).to_json()
    assert '"gapo"' in chart
    alone = gradient_weight_chart(rows[rows["arm"] == "broken"], ["broken"]).to_json()
    assert "ZeroDivisionError" in alone
    assert "No upper bound: broken" in upper_bounds_chart(rows, ["broken", "gapo"]).to_json()


def test_a_gradient_weight_is_that_of_a_finite_difference() -> None:
    """Autograd and the loss's own values agree, away from the bounds."""
    rows = tabulate({"sapo": OBJECTIVES["sapo"]}, {"sapo": 4}).assign(advantage=lambda one: one["positive"] * 2.0 - 1)
    gate = import_module("workflow_scripts.objectives.surrogate").sapo
    import torch

    at = torch.tensor(rows["log_ratio"].to_numpy(dtype=float)).view(-1, 1)
    sign = torch.tensor(rows["advantage"].to_numpy(dtype=float)).view(-1, 1)
    low, high = (gate(torch.exp(at + step), sign, at, None, sapo_tau=(1.0, 1.05)) for step in (-1e-6, 1e-6))
    slope = (-(high - low) / 2e-6 / sign)[:, 0].numpy()
    np.testing.assert_allclose(gradient_weights(rows, OBJECTIVES["sapo"]), slope, atol=1e-6)


@pytest.mark.parametrize(("problems", "arms", "most"), [(3000, 3, 100), (7, 3, 7), (1, 1, 1), (800, 20, 76)])
def test_solve_rates_of_many_problems_are_joined(problems: int, arms: int, most: int) -> None:
    """Each problem is in one set, sets are even and in the order of the base, and the mean over them is that of all."""
    names = [f"a{n}" for n in range(arms)]
    random = np.random.default_rng(1)
    rows = pd.DataFrame(
        [
            {"arm": arm, "step": step, "benchmark": "b", "problem_id": i, "samples": 8, "correct": c}
            for arm, step in [("base", 0), *((name, 4) for name in names)]
            for i, c in enumerate(random.integers(0, 9, problems))
        ]
    )
    early = rows[rows["arm"] == "a0"].assign(step=2, correct=0)  # a checkpoint before the last does not count
    found = solve_rates(pd.concat([rows, early]), names)
    base = found[found["arm"] == "base"]
    assert len(base) == most
    assert base["problems"].sum() == problems
    assert base["problems"].max() - base["problems"].min() <= 1
    assert base["rate"].is_monotonic_increasing
    for arm, here in found.groupby("arm"):
        mean = 100 * rows.loc[rows["arm"] == arm, "correct"].mean() / 8
        assert np.average(here["rate"], weights=here["problems"]) == pytest.approx(mean, abs=0.1)


@pytest.mark.parametrize("steps", [1, 4, 48, 1000, 1003])
def test_windows_of_training_hold_whole_batches(steps: int) -> None:
    rows = pd.DataFrame({"arm": "a", "seed": 0, "step": range(1, steps + 1), "value": range(1, steps + 1)})
    found, width = panels.windows(rows.assign(update_index=(rows["step"] - 1) % 4), ["value"], ["arm", "seed"])
    assert width % min(4, steps) == 0
    assert len(found) == -(-steps // width) <= panels.POINTS
    first = found.iloc[0]
    assert first["value"] == pytest.approx((1 + min(width, steps)) / 2)
    assert found["step"].iloc[-1] >= steps > found["step"].iloc[-1] - width


def test_arms_keep_their_colour() -> None:
    made = Made(["x", "y", "z"], 2)
    found, hues = made.tables(), set()
    for name in ("effects", "learning_curves", "quadrants", "difficulty"):
        spec = DRAW[name](found, made.arms).to_json(indent=None)
        hues |= set(re.findall(r'"domain": (\["x", "y", "z"\], "range": \["#[^\]]*\])', spec))
    assert len(hues) == 1


def test_what_the_figures_say_of_numbers_made_by_hand() -> None:
    rows = [
        {"arm": "a", "seed": s, "policy": p, "own": p == "a", "rollouts": 1, "tokens": 1000, "decisive_tokens": d,
         "quadrant_1_tokens": 10 * (s + 1), "quadrant_2_tokens": 0, "quadrant_3_tokens": 5, "quadrant_4_tokens": 1}
        for s in (0, 1) for p, d in (("a", 0), ("b", 30 + 20 * s))
    ]  # fmt: skip
    policies = frame(tables.POLICIES, rows)
    spec = quadrants_chart(policies, ["a"]).to_json(indent=None)
    assert '{"arm": "a", "share": 1.5}' in spec  # 30 of 2000 in the first quadrant
    assert '{"arm": "a", "share": 0.5}' in spec
    decided = decisive_tokens_chart(policies, ["a"]).to_json(indent=None)
    assert '"policy": "b", "share": 4.0, "text": "4 %"' in decided
    assert '"text": "own"' in decided
    runs = frame(
        tables.RUNS, [{"arm": "a", "seed": s, "train_seconds": 60.0 * (s + 2), "status": "done"} for s in (0, 1)]
    )
    cost = costs_chart(runs, ["a"]).to_json(indent=None, ensure_ascii=False)
    assert '{"arm": "a", "time": 2.5}' in cost
    assert "minutes per job" in cost
    assert "In all 5 min of training." in cost
    power = Made(["a", "b"], 3).tables()["power"]
    assert "3 seeds per arm resolve it" in seeds_needed_chart(power, 0.05).to_json()
    none = power.assign(resolves_margin=False)
    assert "none of these numbers of seeds resolves it" in seeds_needed_chart(none, 0.001).to_json()


def test_the_html_is_inert_follows_the_theme_and_needs_nothing(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script>"
    made = Made([hostile, "b"], 2)
    for name in ("coverage", "decisive_tokens"):
        html, svg = str(tmp_path / f"{name}.html"), str(tmp_path / f"{name}.svg")
        style.save(DRAW[name](made.tables(), made.arms), html, svg)
        page = Path(html).read_text(encoding="utf-8")
        assert "<script>alert" not in page + Path(svg).read_text(encoding="utf-8")
        assert page.count(style.PAGE) == page.count("const layouts = ") == 1
        wide, layouts = re.search(r"layouts = \[{width: (\d+), spec}, \.\.\.(\[.*\])\];", page).groups()  # type: ignore[union-attr]
        assert [one["width"] for one in json.loads(layouts)] == [w for w in style.NARROW if w < int(wide)]
        assert page.index(style.PAGE) > page.index("window.vegaEmbed")
        assert not re.search(r"<(script|link)[^>]+(src|href)=", page)


OPTIONS = {"arms": ARMS, "baseline": "fixed", "branched": None, "margin": 0.05, "pass_at": 1}


@pytest.mark.parametrize("figure", catalogue.FIGURES, ids=lambda figure: figure.name)
def test_the_stage_draws_each_figure_and_names_the_arms_that_lack_runs(
    figure: catalogue.Figure, tmp_path: Path
) -> None:
    paths, found = [], Made(ARMS, 2).tables()
    for table in figure.read:
        path, kind = str(tmp_path / f"{table}.parquet"), getattr(tables, table.upper())
        tables.write(path, kind, pa.Table.from_pandas(found[table], tables.schema(kind), preserve_index=False), {})
        paths.append(path)
    html, svg = (str(tmp_path / f"{figure.name}.{kind}") for kind in ("html", "svg"))
    settings = figure.settings(OPTIONS, {"fixed": [0, 1], "gapo": [0, 1], "wide": [0, 1, 2]})
    plot.main(Job(settings, {}, "", tmp_path, {"tables": paths}, {"figure": [html, svg]}, ()))
    drawn = Path(svg).read_text(encoding="utf-8")
    assert MARKS.search(drawn)
    assert Path(html).stat().st_size > 800_000
    assert ("Runs are missing: wide 2 of 3." in drawn) == (figure.runs_of is not None)
