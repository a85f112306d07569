"""`armslength simulate`: true truths, targets that catch a wrong method, known failures of others, the command."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.regression.mixed_linear_model import MixedLM

from workflow_scripts import tables
from workflow_scripts.analysis.comparison import Analysis
from workflow_scripts.analysis.counts import Cells
from workflow_scripts.commands import compare, simulate
from workflow_scripts.statistics import designs, effects, naive, power, simulation
from workflow_scripts.statistics.arm import Arm
from workflow_scripts.statistics.designs import BENCHMARK, MARGIN, POPULATION, DesignCell
from workflow_scripts.statistics.effects import Estimate, Verdict, estimate, judge, verdict
from workflow_scripts.statistics.simulation import Row


def cell(part: str = "coverage", **changes: object) -> DesignCell:
    """A cell of 30 problems with arm x problem variance, three seeds."""
    usual = DesignCell(part, designs.SMALL, designs.GAUSSIAN, (3,), 0.0, None, 600)
    return replace(usual, **changes)  # type: ignore[arg-type]


def rows(of: DesignCell, seed: int = 5) -> dict[tuple[int, str, str], Row]:
    """(arms, method or estimand, quantity) -> row of one cell."""
    found = simulation.summarise(of, [simulation.run(chunk) for chunk in simulation.chunks([of], seed)])
    key = (lambda r: r.method) if of.part in ("alternatives", "false verdicts") else (lambda r: r.estimand)
    return {(row.arms, key(row), row.quantity): row for row in found}


def test_the_population_standard_error_equals_a_mixed_models_to_six_digits() -> None:
    rng = np.random.default_rng(1)
    own = rng.normal(0, 0.3, 8) + rng.normal(0, 0.3, (2, 8))
    scores = [0.5 + own[x] + rng.normal(0, 0.15, (3, 1)) + rng.normal(0, 0.1, (3, 8)) for x in (0, 1)]
    frame = pd.DataFrame(
        {"y": y, "arm": x, "run": f"{x}-{s}", "problem": i, "cell": f"{x}-{i}", "one": 1}
        for x, side in enumerate(scores)
        for (s, i), y in np.ndenumerate(side)
    )
    parts = {"run": "0 + C(run)", "problem": "0 + C(problem)", "cell": "0 + C(cell)"}
    model = MixedLM.from_formula("y ~ arm", frame, groups="one", vc_formula=parts)
    fit = model.fit(reml=True, method="bfgs", gtol=1e-10)
    baseline, treatment = (Arm((0, 1, 2), (s,), (np.full_like(s, np.nan),)) for s in scores)
    ours = estimate(treatment, baseline, POPULATION, 0.05)
    assert min(fit.vcomp) > 1e-3  # at the edge of zero REML and analysis of variance part
    assert ours.se == pytest.approx(fit.bse["arm"], rel=1e-6)
    assert ours.se == pytest.approx(0.1490970081, abs=1e-9)


DISTRIBUTIONS = (designs.GAUSSIAN, designs.HEAVY, designs.BOTH, designs.ONE, designs.BINOMIAL)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_truth_is_what_many_seeds_find(distribution: str) -> None:
    of = cell(distribution=distribution, looks=(4000,), delta=0.0 if distribution == designs.BINOMIAL else 0.05)
    (baseline, treatment), truth = simulation.draw(of, np.random.default_rng(3))
    found = estimate(treatment, baseline, BENCHMARK, 0.05)
    assert abs(found.delta - truth[BENCHMARK]) < 4 * found.se
    assert abs(truth[BENCHMARK] - truth[POPULATION]) < 4 * of.setting.arm_problem / np.sqrt(of.setting.problems)
    assert abs(truth[BENCHMARK] - truth[POPULATION]) > found.se  # so that the line before the last can tell
    if distribution in (designs.GAUSSIAN, designs.HEAVY):
        assert baseline.run_variance**0.5 == pytest.approx(of.setting.run_sd, rel=0.15)
    if distribution == designs.ONE:
        assert truth[POPULATION] == pytest.approx(0.05 - 0.1 * 3.5 * 0.031)
    elif distribution != designs.BINOMIAL:
        assert truth[POPULATION] == pytest.approx(0.05)


def scaled(factor: float) -> Callable[..., Estimate]:
    """`estimate` with a standard error that is wrong by a factor."""

    def wrong(*arguments: object) -> Estimate:
        right = estimate(*arguments)  # type: ignore[arg-type]
        return replace(
            right,
            seed_variance=right.seed_variance * factor**2,
            extra_variance=right.extra_variance * factor**2,
        )

    return wrong


@pytest.mark.parametrize(
    ("factor", "missed"),
    [(1.0, set()), (0.5, {"coverage"}), (1.25, {"coverage", "width ratio"})],
    ids=["as it is", "half the width", "a quarter too wide"],
)
def test_a_wrong_interval_misses_its_targets(factor: float, missed: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "estimate", scaled(factor))
    found = rows(cell(repetitions=700))
    for estimand in (BENCHMARK, POPULATION):
        assert {row.quantity for (_, name, _), row in found.items() if name == estimand and row.met is False} == missed
    lines = simulate.missed(list(found.values()))
    assert len(lines) == 2 * len(missed)
    assert all(line.startswith("missed: ") and "30 problems" in line for line in lines)


@pytest.mark.parametrize(("factor", "missed"), [(1.0, False), (0.6, True)])
def test_unequal_seeds_have_a_floor_alone(factor: float, missed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    of = cell(looks=(2,), others=5, repetitions=300)
    drawn = simulation.draw(of, np.random.default_rng(0))[0]
    assert [len(arm.seeds) for arm in drawn] == [2, 5]
    monkeypatch.setattr(simulation, "estimate", scaled(factor))
    found = rows(of)
    assert {quantity for _, _, quantity in found} == {"coverage", "width"}  # cautious by design: no width is claimed
    for estimand in (BENCHMARK, POPULATION):
        row = found[1, estimand, "coverage"]
        assert (row.target_low, row.target_high, row.met) == (0.93, None, not missed)
        assert row.value > 0.965 or missed


@pytest.mark.parametrize("of", [c for c in designs.cells(10_000) if c.part == "verdicts"][::5])
def test_theory_of_verdicts(of: DesignCell) -> None:
    shares = designs.verdict_shares(of)
    assert sum(shares.values()) == pytest.approx(1)
    se, df = designs.oracle(of, str(of.estimand))
    quantile = stats.t.ppf(1 - 0.025 / len(of.looks), df)
    for name, sign in ((Verdict.BETTER, 1), (Verdict.WORSE, -1)):
        assert shares[name] == pytest.approx(stats.nct.sf(quantile, df, sign * of.delta / se), abs=3e-4)
    if of.estimand == BENCHMARK:
        assert (se, df) == (pytest.approx(of.setting.run_sd * (2 / of.looks[-1]) ** 0.5), 2 * of.looks[-1] - 2)
    if of.power:
        assert shares[Verdict.BETTER] == pytest.approx(0.8, abs=1e-3 if of.estimand == BENCHMARK else 0.01)


Said = tuple[str, str | None]


def without_t(result: Estimate, alpha: float, margin: float, mde80: float, needs: str) -> Said:
    """`verdict` whose equivalence is judged by the difference alone."""
    found = verdict(result, alpha, margin, mde80, needs)
    same = found[0] not in (Verdict.BETTER, Verdict.WORSE) and abs(result.delta) < margin
    return (Verdict.NO_DIFFERENCE, None) if same else found


def half_mde(result: Estimate, alpha: float, margin: float, mde80: float, needs: str) -> Said:
    """`verdict` given half the detectable effect."""
    return verdict(result, alpha, margin, mde80 / 2, needs)


def half(of: Callable[[float, float], float]) -> Callable[[float, float], float]:
    """Half of what a function says."""
    return lambda df, alpha: of(df, alpha) / 2


def unshared(alpha: float, arms: int, looks: int) -> float:
    """`level` without Bonferroni."""
    return alpha


LOOKS = {"looks": (3, 5, 8), "repetitions": 400}
BREAKAGES = [
    (effects, "verdict", without_t, {"delta": MARGIN}, {(1, Verdict.NO_DIFFERENCE), (6, Verdict.NO_DIFFERENCE)}),
    (effects, "verdict", without_t, {"delta": -MARGIN}, {(1, Verdict.NO_DIFFERENCE), (6, Verdict.NO_DIFFERENCE)}),
    (effects, "verdict", half_mde, {"looks": (5,)}, {(1, Verdict.UNDERPOWERED), (1, Verdict.INCONCLUSIVE)}),
    (power, "mde_in_se", half(power.mde_in_se), {"power": 0.8}, {(1, Verdict.BETTER)}),
    (
        power,
        "mde_of_population",
        half(power.mde_of_population),
        {"power": 0.8, "estimand": POPULATION},
        {(1, Verdict.BETTER)},
    ),
    (effects, "level", unshared, LOOKS | {"delta": MARGIN}, {(n, Verdict.NO_DIFFERENCE) for n in (3, 6)}),
    (effects, "level", unshared, LOOKS | {"delta": -MARGIN}, {(n, Verdict.NO_DIFFERENCE) for n in (3, 6)}),
]


BREAKAGE_NAMES = [
    "equivalence without t, above",
    "equivalence without t, below",
    "verdict given half the detectable effect",
    "half the detectable effect, benchmark",
    "half the detectable effect, population",
    "no Bonferroni, margin above",
    "no Bonferroni, margin below",
]


@pytest.mark.parametrize(("module", "name", "broken", "changes", "named"), BREAKAGES, ids=BREAKAGE_NAMES)
def test_a_broken_verdict_misses_the_target_that_names_it(
    module: ModuleType,
    name: str,
    broken: Callable[..., object],
    changes: dict[str, object],
    named: set[tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quiet = designs.SETTINGS[2]

    def missed() -> set[tuple[int, str]]:
        of = cell("verdicts", **{"setting": quiet, "estimand": BENCHMARK, "repetitions": 100} | changes)
        of = replace(of, delta=designs.detectable(of)) if of.power else of
        return {(arms, quantity) for (arms, _, quantity), row in rows(of).items() if row.met is False}

    assert not missed()
    monkeypatch.setattr(module, name, broken)
    assert named <= missed()


def test_an_analysis_shares_alpha_by_arms_and_looks_as_the_simulation_does() -> None:
    roles = {"a": "comparison", "b": "comparison", "placebo": "placebo"}
    settings = {"baseline": "base arm", "roles": roles, "alpha": 0.05, "margin": 0.05, "last_steps": {},
                "benchmarks": ["x"], "endpoint": {"pass_at": 1}, "pass_at": [1]}  # fmt: skip
    for looks, count in ((None, 1), ([3, 5, 8], 3)):
        of = Analysis(settings | {"looks": looks}, Cells())
        assert [of.alpha(arm) for arm in roles] == pytest.approx([0.05 / 2 / count] * 2 + [0.05 / count])
        assert of.alpha("a") == effects.level(0.05, 2, count)


def test_verdicts_without_a_correction_miss_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    of = cell("false verdicts", setting=designs.SETTINGS[2], estimand=BENCHMARK, looks=(3, 5), repetitions=300)
    kept = rows(of)
    assert all(row.met for (_, method, _), row in kept.items() if method == simulation.OURS)
    assert kept[6, simulation.UNADJUSTED, "better or worse"].value > 0.15
    monkeypatch.setattr(effects, "level", unshared)
    assert rows(of)[6, simulation.OURS, "better or worse"].met is False


def test_a_study_says_something_where_judge_says_better_or_worse() -> None:
    of = cell("false verdicts", estimand=BENCHMARK, looks=(2, 3), distribution=designs.BOTH, repetitions=25)
    chunk = simulation.chunks([of], 2)[0]
    said = simulation.run(chunk)
    rng = np.random.default_rng(chunk.stream)
    for i in range(of.repetitions):
        baseline, *others = simulation.draw(of, rng, 7)[0]
        for count in designs.ARMS:
            verdicts = {
                judge(arm.of_runs(range(n)), baseline.of_runs(range(n)), BENCHMARK, 0.05 / count / 2, 0.05).verdict
                for arm in others[:count]
                for n in of.looks
            }
            assert said[count, BENCHMARK, simulation.OURS, "better or worse"][i] == bool(verdicts & {"better", "worse"})
    assert sum(said[6, BENCHMARK, simulation.UNADJUSTED, "better or worse"]) > 1


def test_the_t_intervals_of_others_are_scipys() -> None:
    baseline, treatment = simulation.draw(cell(), np.random.default_rng(0))[0]
    pooled = stats.ttest_ind(treatment.run_means, baseline.run_means).confidence_interval(0.95)
    assert naive.pooled_t(treatment, baseline) == pytest.approx(tuple(pooled))
    paired = stats.ttest_rel(treatment.problem_means(0), baseline.problem_means(0)).confidence_interval(0.95)
    assert naive.averaged_paired_t(treatment, baseline) == pytest.approx(tuple(paired))


def test_degrees_of_freedom_stay_within_those_of_their_parts() -> None:
    of = cell(setting=designs.NOISY)
    rng = np.random.default_rng(8)
    drawn = [simulation.draw(of, rng)[0] for _ in range(300)]
    found = [estimate(treatment, baseline, POPULATION, 0.05) for baseline, treatment in drawn]
    problems = designs.NOISY.problems
    for (baseline, treatment), one in zip(drawn, found, strict=True):
        fixed = estimate(treatment, baseline, BENCHMARK, 0.05)
        assert one.df >= min(fixed.df, problems - 1)
        assert one.extra_variance > 0 or one.df == pytest.approx(fixed.df)
    # Where V_extra is a small difference the formula alone gives df down to 0.002, an interval of 10^100 points.
    assert sum(one.extra_variance > 0 and one.df == 4 for one in found) > 20


# statistics.md; three standard errors of a share of 200 are 8 to 10 points
KNOWN = [
    (designs.LARGE, 3, {"one-seed problem bootstrap": 28, "paired over averaged seeds": 26,
                           "hierarchical bootstrap": 82}),
    (designs.SMALL, 10, {"pooled t on seeds": 78}),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "seeds", "expected"), KNOWN)
def test_others_cover_as_little_as_is_known(setting: designs.Setting, seeds: int, expected: dict[str, int]) -> None:
    of = cell("alternatives", setting=setting, looks=(seeds,), estimand=POPULATION, repetitions=200)
    found = rows(of)
    for method, coverage in expected.items():
        row = found[1, method, "coverage"]
        assert 100 * row.value == pytest.approx(coverage, abs=10), method
        assert row.met is None


def test_results_do_not_depend_on_the_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [cell(repetitions=300), cell("alternatives", estimand=POPULATION, repetitions=20)]
    monkeypatch.setattr(designs, "cells", lambda repetitions: cells)
    here = [
        [row for of in cells for row in simulation.summarise(of, [simulation.run(c) for c in work if c.cell == of])]
        for work in (simulation.chunks(cells, seed) for seed in (1, 2))
    ]
    assert simulate.simulate(0, 1, 2) == here[0]
    assert here[0] != here[1]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = simulate.main(["--repetitions", "20", "--processes", "1", "--markdown", "--output", str(tmp_path / "out")])
    shown = capsys.readouterr()
    assert not shown.err
    found = tables.read(tmp_path / "out" / "simulation.parquet", tables.SIMULATION).to_pandas()
    gaussian = found[(found["distribution"] == designs.GAUSSIAN) & (found["part"] == "coverage")]
    unequal = gaussian["looks"].str.contains("against")
    assert set(gaussian[~unequal]["repetitions"]) == {20}
    assert set(gaussian[~unequal]["looks"]) == {"3", "5", "10"}
    assert set(gaussian[unequal]["looks"]) == {"2 against 5", "3 against 5", "5 against 10"}
    assert set(found["part"]) == set(simulation.PARTS)
    wrong = (found["met"] == False).sum()  # noqa: E712  # null is neither
    assert code == int(wrong > 0)
    assert shown.out.count("\nmissed: ") == wrong
    assert f"{found['met'].notna().sum() - wrong} of {found['met'].notna().sum()} targets met" in shown.out
    assert "| problems | arm x problem | runs | estimand | method | what | S = 3 | S = 5 | S = 10 |" in shown.out
    assert "meant for 10000 repetitions" in shown.out
    svg = (tmp_path / "out" / "simulated_coverage.svg").read_text(encoding="utf-8")
    for text in ("hierarchical bootstrap", "30 problems: on problems like these", designs.HEAVY):
        assert text in svg
    assert (tmp_path / "out" / "simulated_coverage.html").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--repetitions", "19"], "--repetitions: '19': a whole number from 20"),
        (["--repetitions", "1e4"], "--repetitions: '1e4': a whole number from 20"),
        (["--seed", "-1"], "--seed: '-1': a whole number from 0"),
        (["--processes", "0"], "--processes: '0': a whole number from 1"),
    ],
)
def test_options_that_cannot_be(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        simulate.main(arguments)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("below", ["", "folder"])
def test_a_file_in_the_place_of_the_folder_is_said_before_the_work(
    below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    output = ["--output", str(file / below)]
    assert simulate.main(output) == 2
    assert capsys.readouterr().err == f"armslength simulate: --output {file}: is a file, not a folder\n"
    assert compare.main(["none.csv", "--baseline", "a", "--margin", "0.03", *output]) == 1
    assert capsys.readouterr().err == f"armslength compare: --output {file}: is a file, not a folder\n"
