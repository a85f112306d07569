"""The rerun matrix: one change, and exactly which jobs Snakemake would run again."""

import base64
import os
import re
import time
from collections import Counter
from collections.abc import Callable

import pytest
import yaml
from copies import STUDY, Copy

from workflow_scripts import tables

BENCHMARK, OTHER = "word_problems_test", "word_problems_validation"
RUNS = [(arm, seed) for arm in STUDY["arms"] for seed in range(STUDY["seeds"])]
REPEATS = range(STUDY["evaluation"]["base_repeats"])
PACKAGE = "workflow_scripts"

OF_ANALYSIS = {
    "plot_effects", "plot_learning_curves", "plot_noise_floors", "plot_seeds_needed", "plot_difficulty",
    "plot_coverage",
}  # fmt: skip
OF_COUNTS = OF_ANALYSIS | {"plot_solve_rates", "plot_costs"}
OF_POLICIES = {"plot_quadrants", "plot_decisive_tokens"}
OF_DYNAMICS = {"plot_clip_fraction", "plot_ratio_advantage", "plot_training_course"}
OF_RECORDS = OF_DYNAMICS | OF_POLICIES
PLOT_OBJECTIVES = {"plot_gradient_weight", "plot_upper_bounds"}
OF_OBJECTIVES = {"tabulate_objectives"} | PLOT_OBJECTIVES
FIGURES = OF_COUNTS | OF_RECORDS
STATISTICS = {
    "estimate_scores", "measure_noise_floors", "estimate_effects", "estimate_power", "summarise_difficulty",
    "summarise_coverage", "pick_examples",
}  # fmt: skip
RECORDS = {  # tables of what training recorded
    "list_runs", "summarise_dynamics", "ask_policies", "check_reachability", "reward_again",
}  # fmt: skip
END = FIGURES | {"report"}
FROM_COUNTS = {"count", "list_runs"} | STATISTICS | OF_COUNTS | {"report"}
FROM_RUNS = {"count"} | STATISTICS | RECORDS | END
DATA_FOR_TRAINING = {
    "fetch_train_set", "audit_train_set", f"fetch_benchmark {BENCHMARK}", f"check_contamination {BENCHMARK}",
    "select_train",
}  # fmt: skip


def train(*arms: str) -> set[str]:
    """Training jobs of these arms. `fixed` has a rule of its own: it also leaves the state that `late` starts from."""
    return {
        f"train_fixed {arm} {seed}" if arm == "fixed" else f"train {arm} {seed}" for arm, seed in RUNS if arm in arms
    }


def evaluate(*arms: str, benchmark: str = BENCHMARK) -> set[str]:
    """Sampling and grading of these arms."""
    return grade(*arms, benchmark=benchmark) | {f"sample_checkpoints {a} {s} {benchmark}" for a, s in RUNS if a in arms}


def grade(*arms: str, benchmark: str = BENCHMARK) -> set[str]:
    """Grading of these arms."""
    return {f"grade {a} {s} {benchmark}" for a, s in RUNS if a in arms}


def base(*rules: str, benchmark: str = BENCHMARK) -> set[str]:
    """Jobs of the base, one for each repeat."""
    return {f"{rule} {repeat} {benchmark}" for rule in rules for repeat in REPEATS}


ALL = tuple(STUDY["arms"])
EVERY_RUN = train(*ALL) | evaluate(*ALL) | FROM_RUNS
BASE = base("sample_base", "grade_base")
SAMPLED_AGAIN = evaluate(*ALL) | BASE | FROM_COUNTS
GRADED_AGAIN = grade(*ALL) | base("grade_base") | {f"audit_gold {BENCHMARK}", "reward_again"} | FROM_COUNTS
NEW_BENCHMARK = (
    {f"fetch_benchmark {OTHER}", f"audit_gold {OTHER}", f"check_contamination {OTHER}"}
    | evaluate(*ALL, benchmark=OTHER)
    | base("sample_base", "grade_base", benchmark=OTHER)
    | FROM_COUNTS
    | {"list_runs"}  # what sampling cost
)
ONE_MORE_SEED = {
    "train_fixed fixed 2", "train gapo 2", "train late 2",
    *(f"{rule} {arm} 2 {BENCHMARK}" for rule in ("sample_checkpoints", "grade") for arm in ALL),
} | FROM_RUNS  # fmt: skip
NEW_ARM = {f"train wide {s}" for s in range(2)} | {
    f"{rule} wide {s} {BENCHMARK}" for rule in ("sample_checkpoints", "grade") for s in range(2)
} | FROM_RUNS | OF_OBJECTIVES  # fmt: skip

Change = Callable[[Copy], object]
STEP = "return _one_sided(group, 1 - eps_low, 1 + width)\n\n\ndef gapo_matched"


def setting(path: str, value: object) -> Change:
    """Set one key of the study."""

    def change(study: dict) -> None:
        *above, last = path.split(".")
        for key in above:
            study = study.setdefault(key, {})
        study[last] = value

    return lambda copy: copy.study(change)


def code(file: str, old: str, new: str) -> Change:
    """Edit one file of the package."""
    return lambda copy: copy.edit(f"{PACKAGE}/{file}", old, new)


def append(file: str, text: str) -> Change:
    """Append to one file of the package."""

    def change(copy: Copy) -> None:
        with open(copy.root / PACKAGE / file, "a", encoding="utf-8") as stream:
            stream.write(text)

    return change


def wording(copy: Copy) -> None:
    """Other words in every place that is no code: comments, docstrings, formatting, descriptions, keys nobody sets."""
    for path in sorted((copy.root / PACKAGE).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        text = re.sub(r'^((?:    )*)"""(?=\w)', r'\1"""Put in other words: ', text, flags=re.MULTILINE)
        text = re.sub(r"^(def \w+\()(\w)", r"\1\n    \2", text, flags=re.MULTILINE)
        path.write_text("# A comment.\n" + text + "\n\n# Another.\n", encoding="utf-8")
    toml = copy.root / PACKAGE / "tables" / "schemas.toml"
    toml.write_text(toml.read_text(encoding="utf-8").replace('"the answer"]', '"what was answered"]'), encoding="utf-8")
    for path in (copy.root / "rules").glob("*.smk"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(' --code {params.code}"', '  --code {params.code}"'), encoding="utf-8")


def new_keys(copy: Copy) -> None:
    """Keys that the study may have from now on and this one does not set."""
    for section in ("Training(Part)", "Rollout(Sampling)", "Evaluation(Sampling)", "Model(Part)", "Analysis(Part)"):
        new = f"class {section}:\n    fresh: int | None = None\n"
        copy.edit(f"{PACKAGE}/study/keys.py", f"class {section}:\n", new)


def touch_everything(copy: Copy) -> None:
    """New modification times on every source file."""
    for path in [copy.root / "Snakefile", *(copy.root / PACKAGE).rglob("*"), *(copy.root / "rules").rglob("*")]:
        if path.is_file():
            os.utime(path, (time.time() + 60, time.time() + 60))


def newer_library(name: str) -> Change:
    """What a package's new version looks like to importlib.metadata."""

    def change(copy: Copy) -> None:
        folder = copy.root / f"{name}-99.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 99.0\n")

    return change


def remade(path: str) -> Change:
    """A file written again with the same content."""

    def change(copy: Copy) -> None:
        file = copy.root / "results/tiny" / path
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content)
        os.utime(file, (time.time() + 60, time.time() + 60))

    return change


def removed(path: str) -> Change:
    """A result deleted by hand."""
    return lambda copy: (copy.root / "results/tiny" / path).unlink()


def completions_dropped(then: Change) -> Change:
    """Completions are not kept, and Snakemake's record of their jobs is that of a later attempt that failed: none."""

    def change(copy: Copy) -> None:
        setting("compute.keep", {"completions": False})(copy)
        for file in (copy.root / "results" / "tiny").rglob("completions.parquet"):
            name = base64.b64encode(file.relative_to(copy.root).as_posix().encode()).decode()
            (copy.root / ".snakemake" / "metadata" / name).unlink()
            file.unlink()
        then(copy)

    return change


ROWS: dict[str, tuple[Change, set[str]]] = {
    "nothing": (lambda copy: None, set()),
    "comments, docstrings, formatting, descriptions": (wording, set()),
    "new optional keys of a study": (new_keys, set()),
    "modification times of all source files": (touch_everything, set()),
    "another order of the study's keys": (lambda c: c.study(lambda s: s.update({"seeds": s.pop("seeds")})), set()),
    "compute": (setting("compute", {"micro_batch": 16, "eval_batch": 8, "threads": 2, "device": "cpu"}), set()),
    "compute: what is kept": (setting("compute.keep", {"rollouts": False, "state": "last"}), set()),
    "data_dir": (setting("data_dir", "elsewhere"), set()),
    "a clip policy added": (append("objectives/bounds.py", "\ndef new(group, *, eps_low):\n    return 1\n"), set()),
    "another prompt family's text, and one added": (
        code("sampling/prompts.json", '  "base": {', '  "new": {"question": "{question}"},\n  "base": {"is": "other",'),
        set(),
    ),
    "the prompt family's text": (
        code("sampling/prompts.json", '"plain": {', '"plain": {"is": "other",'),
        EVERY_RUN | SAMPLED_AGAIN,
    ),
    "one arm's setting": (
        setting("arms.gapo.eps_high_max", 4.0e-3),
        train("gapo") | evaluate("gapo") | FROM_RUNS | OF_OBJECTIVES,
    ),
    "a setting of an arm with a branch": (
        setting("arms.fixed.eps_high", 4.0e-3),
        train("fixed", "late") | evaluate("fixed", "late") | FROM_RUNS | OF_OBJECTIVES,
    ),
    "one clip policy's code": (
        code("objectives/bounds.py", STEP, STEP.replace("1 + width", "1 + 2 * width")),
        train("gapo", "late") | evaluate("gapo", "late") | FROM_RUNS | OF_OBJECTIVES,
    ),
    "a clip policy asked about": (
        setting("analysis.policies.wide", {"bounds": "ppo", "eps_low": 3.0e-3, "eps_high": 9.0e-3}),
        {"ask_policies", "report"} | OF_POLICIES,
    ),
    "the code of a clip policy that is only asked about": (
        code("objectives/bounds.py", "plain.upper.clamp(max=dual_clip_bound)", "plain.upper"),
        {"ask_policies", "report"} | OF_POLICIES,
    ),
    "a setting of all runs": (setting("training.learning_rate", 1.0e-4), EVERY_RUN),
    "training.steps raised": (
        lambda c: c.study(lambda s: s["training"].update({"steps": 12, "checkpoints": [4, 8, 12]})),
        EVERY_RUN,
    ),
    "a version of the trainer": (newer_library("trl"), EVERY_RUN),
    "a seed added": (setting("seeds", 3), ONE_MORE_SEED),
    "an arm added": (setting("arms.wide", {"same_as": "gapo", "eps_high_max": 9.0e-3}), NEW_ARM),
    "a benchmark added": (setting("evaluation.benchmarks", [BENCHMARK, OTHER]), NEW_BENCHMARK),
    "a benchmark for selection added": (setting("evaluation.selection", OTHER), NEW_BENCHMARK),
    "evaluation samples raised": (setting("evaluation.samples", 8), SAMPLED_AGAIN),
    "evaluation problems raised": (setting("evaluation.problems", 8), SAMPLED_AGAIN),
    "completions not kept": (completions_dropped(lambda copy: None), set()),
    "sampling changed where they are not": (
        completions_dropped(setting("evaluation.temperature", 0.5)),
        SAMPLED_AGAIN,
    ),
    "a repeat of the base added": (
        setting("evaluation.base_repeats", 3),
        {f"sample_base 2 {BENCHMARK}", f"grade_base 2 {BENCHMARK}"} | FROM_COUNTS,
    ),
    "grader code": (append("grading/exact_answer.py", "\nprint('read anew')\n"), GRADED_AGAIN),
    "reward version": (code("grading/exact_answer.py", "REWARD_VERSION = 3", "REWARD_VERSION = 4"), GRADED_AGAIN),
    "statistics code": (
        append("statistics/noise_floor.py", "\nprint('another estimator')\n"),
        {"measure_noise_floors", "plot_effects", "plot_noise_floors", "report"},
    ),
    "a version of a statistics library": (
        newer_library("scipy"),
        STATISTICS - {"summarise_coverage", "pick_examples"}
        | {"check_reachability", "report"}
        | OF_ANALYSIS - {"plot_coverage"},
    ),
    "margin": (setting("analysis.margin", 0.1), STATISTICS | OF_ANALYSIS | {"report"}),
    "alpha": (setting("analysis.alpha", 0.1), STATISTICS | OF_ANALYSIS | {"report"}),
    "figure code": (append("figures/clip_fraction.py", "\nprint('other colours')\n"), {"plot_clip_fraction", "report"}),
    "a version of the plotting library": (newer_library("altair"), END | PLOT_OBJECTIVES),
    "the question": (setting("question", "Another one?"), {"report"}),
    "seed of the generated train set": (
        setting("data.train.seed", 8),
        DATA_FOR_TRAINING - {f"fetch_benchmark {BENCHMARK}"} | EVERY_RUN,
    ),
    "decontaminate_against": (setting("data.decontaminate_against", []), {"select_train"} | EVERY_RUN),
    "a page deleted": (removed("report.html"), {"report"}),
    "a summary deleted": (removed("summary.md"), {"report"}),
    "a file made again with the same content": (remade("data/train.parquet"), set()),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_exactly_what_is_invalidated_runs_again(name: str, copy: Copy) -> None:
    change, expected = ROWS[name]
    change(copy)
    assert copy.would_run() == expected


def test_keys_of_chat_templates_and_of_math_answers(copy: Copy) -> None:
    """These have no effect in the small study, so its results are first taken for those of another study."""
    copy.edit(f"{PACKAGE}/benchmarks/word_problems.py", "exact_answer", "math_answer")
    setting("training.reward", "math_answer")(copy)
    (copy.root / "model").mkdir()
    setting("model", {"source": "local", "name": str(copy.root / "model"), "prompt_family": "chat"})(copy)
    copy.snakemake("--touch", "--forceall", "--cores", "1")
    setting("model.date", "2020-01-01")(copy)
    assert copy.would_run() == EVERY_RUN | SAMPLED_AGAIN
    setting("model.date", None)(copy)
    setting("grading.copied", "pay")(copy)
    assert copy.would_run() == GRADED_AGAIN | {"audit_train_set", "select_train"} | EVERY_RUN


def test_the_matrix_names_every_job(finished: Copy) -> None:
    """Else a job that no row expects would never be missed."""
    named = EVERY_RUN | OF_OBJECTIVES | BASE | DATA_FOR_TRAINING | {"prepare_base", f"audit_gold {BENCHMARK}"}
    assert finished.would_run("--forceall") == named


def test_upstream_of_training_lie_only_these(finished: Copy) -> None:
    target = "results/tiny/runs/gapo/seed-0/checkpoints.parquet"
    assert finished.would_run("--forceall", target) == DATA_FOR_TRAINING | {"prepare_base", "train gapo 0"}


def test_a_new_reward_version_retrains_only_on_request(copy: Copy) -> None:
    copy.edit(f"{PACKAGE}/grading/exact_answer.py", "REWARD_VERSION = 3", "REWARD_VERSION = 4")
    asked = copy.would_run("--config", "retrain_on_reward_change=true")
    assert train(*ALL) | {"audit_train_set", "select_train"} <= asked


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (["only_arms=[gapo]"], FROM_RUNS | OF_OBJECTIVES),
        (["arms={gapo: {eps_high_max: 4.0e-3}}"], train("gapo") | evaluate("gapo") | FROM_RUNS | OF_OBJECTIVES),
        (["seeds=3"], ONE_MORE_SEED),
    ],
)
def test_one_setting_from_the_command_line(config: list[str], expected: set[str], finished: Copy) -> None:
    would = finished.would_run("--config", *config)
    assert would <= expected
    assert would & (train(*ALL) | ONE_MORE_SEED) == expected & (train(*ALL) | ONE_MORE_SEED)
    assert "report" in would


def test_configfile_replaces_the_default_study(finished: Copy, tmp_path) -> None:
    other = {**STUDY, "study": "other", "arms": {"alone": STUDY["arms"]["fixed"]}, "baseline": "alone"}
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(other))
    would = finished.would_run("--configfile", str(tmp_path / "other.yaml"))
    assert {job.split()[1] for job in would if job.startswith("train")} == {"alone"}


def test_a_dry_run_records_no_plan(copy: Copy) -> None:
    plan = copy.root / "results/tiny/plan.parquet"
    plan.unlink()
    copy.would_run("--config", "seeds=3")
    assert not plan.exists()


def test_a_change_of_the_question_is_recorded_and_only_the_page_is_drawn_again(copy: Copy) -> None:
    change = ["--config", "question=Is it another?"]
    plan, ran = copy.root / "results/tiny/plan.parquet", copy.ran()
    before = tables.read(plan, tables.PLAN).to_pylist()
    copy.snakemake("--cores", "1", "--quiet", "all", *change)
    assert copy.ran() - ran == Counter({"results/tiny/report.html": 1})
    after = tables.read(plan, tables.PLAN).to_pylist()
    assert after[: len(before)] == before
    assert [(row["key"], row["value"]) for row in after[len(before) :]] == [
        ("training_begun", str(len(RUNS))), ("question", '"Is it another?"'),
    ]  # fmt: skip
    assert copy.would_run(*change) == set()  # what was recorded asks for nothing more
