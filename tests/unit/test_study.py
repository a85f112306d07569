"""The typed study: what each fault says, what an arm comes to, and that nothing but StudyFaults ever comes out."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow_scripts.commands import schema
from workflow_scripts.objectives.presets import PRESETS
from workflow_scripts.study import Study, StudyFaults, checks, load, machine_faults

ROOT = Path(__file__).parents[2]
STUDIES = [ROOT / "config.yaml", *sorted((ROOT / "studies").glob("*.yaml"))]
GONE = object()
SMALL = """
study: small
model: {source: embedded}
data: {train: {benchmark: word_problems, split: train, rows: 400, seed: 7}, decontaminate_against: [word_problems_test]}
rollout: {prompts: 32, group_size: 8, minibatches: 2, epochs: 2, max_completion: 32}
training: {steps: 48, checkpoints: [24, 48], learning_rate: 3.0e-4}
arms:
  fixed: {preset: gspo_asym, eps_low: 3.0e-3, eps_high: 5.0e-3}
  gapo: {preset: gapo_seq}
  late: {preset: gapo_seq, branch_from: {arm: fixed, step: 24}}
baseline: fixed
seeds: 3
evaluation: {benchmarks: [word_problems_test], samples: 8, pass_at: [1, 4], max_completion: 32}
"""
UNREACHABLE = {
    "rollout.minibatches": 1,
    "rollout.epochs": 1,
    "arms.late": GONE,
}
CLIPPED_TOKEN = {"ratio": "token", "surrogate": "clipped", "advantage": {"scale": "none"}, "aggregation": "token-mean"}


def small(**changes: Any) -> dict[str, Any]:
    """The small study with keys changed, given as dotted paths; GONE takes a key away."""
    config = yaml.safe_load(SMALL)
    for path, value in changes.items():
        at, (*sections, key) = config, path.split(".")
        for section in sections:
            at = at.setdefault(section, {})
        at[key] = value
        if value is GONE:
            del at[key]
    return config


def faults(config: Any) -> list[str]:
    with pytest.raises(StudyFaults) as caught:
        load(config)
    assert all("\n" not in line for line in caught.value.lines)
    return caught.value.lines


FAULTS = yaml.safe_load(Path(__file__).with_name("study_faults.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case["fault"])
def test_fault_is_one_line_that_names_it(case: dict[str, Any]) -> None:
    """Key, value, what is allowed; and no second line that is only the echo of the first."""
    lines = faults(small(**case.get("change", {}), **dict.fromkeys(case.get("without", []), GONE)))
    assert any(all(word in line for word in case["says"]) for line in lines), lines
    assert len(lines) == case.get("lines", 1), lines


@pytest.mark.parametrize("config", [None, {}, [], "study", 3, [{"study": "a"}]])
def test_no_study_at_all(config: Any) -> None:
    assert "a mapping of keys to values" in faults(config)[0]


@pytest.mark.parametrize("key", [True, False, None, 1])
def test_arm_name_that_yaml_does_not_read_as_text(key: object) -> None:
    config = small()
    config["arms"][key] = {"preset": "grpo"}
    [line] = faults(config)
    assert line.startswith(f"arms.{key}: ") and "a key must be text" in line


def test_all_faults_come_at_once() -> None:
    lines = faults(
        small(
            **{
                "study": GONE,
                "rollout.group_size": 1,
                "training.checkpoints": [22, 48],
                "arms.gapo.bounds": "gappo",
                "arms.fixed.eps_high": 0.001,
                "evaluation.pass_at": [1, 16],
                "baseline": "nobody",
                "analysis.looks": [5, 3],
                "zzz": 1,
            }
        )
    )
    for path in (
        "study", "rollout.group_size", "training.checkpoints", "arms.gapo.bounds", "arms.fixed.eps_high",
        "evaluation.pass_at", "baseline", "analysis.looks", "zzz",
    ):  # fmt: skip
        assert any(line.startswith(f"{path}:") for line in lines), path


def test_faults_of_all_arms_come_at_once() -> None:
    low = {"preset": "gapo_seq", "eps_high_max": 1e-4}
    lines = faults(small(**{"arms.a": low, "arms.b": {"preset": "f_grpo"}, "arms.c": {"same_as": "nobody"}}))
    assert {line.split(":")[0] for line in lines} == {
        "arms.a.eps_high_max", "arms.b.advantage.focal_gamma", "arms.c.same_as",
    }  # fmt: skip


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.name)
def test_studies_load(path: Path) -> None:
    study = load(yaml.safe_load(path.read_text(encoding="utf-8")))
    for arm in study.arms:
        json.dumps(study.resolved(arm).identity)


def test_config_yaml_shows_every_key() -> None:
    """The annotated reference: each key of a section stands in config.yaml, be it behind a comment sign."""
    text = (ROOT / "config.yaml").read_text(encoding="utf-8")
    assert text.splitlines()[0] == "# yaml-language-server: $schema=rules/schemas/study.schema.json"
    missing = [
        key
        for name, part in Study.model_json_schema()["$defs"].items()
        if not name.endswith("Override")
        for key in part.get("properties", {})
        if key not in text and key not in ("eps_2", "eps_3")
    ]
    assert missing == []


def test_schema_is_up_to_date() -> None:
    assert schema.SCHEMA.read_text(encoding="utf-8") == schema.text()
    properties = json.loads(schema.text())["$defs"]["Rollout"]["properties"]
    assert properties["group_size"]["minimum"] == 2
    assert properties["group_size"]["description"] == "rollouts of a prompt"


def test_defaults() -> None:
    study = load(small())
    assert study.seeds == [0, 1, 2]
    assert study.rollout.temperature == study.evaluation.top_p == 1.0
    assert study.analysis.margin == 0.05 and study.looks == [3]
    assert study.compute.keep.state == "none"
    assert load(small(seeds=GONE)).seeds == [0, 1, 2, 3, 4]
    assert load(small(**{"training.checkpoints": GONE, "arms.late": GONE})).resolved("gapo").checkpoints == [48]


def test_values_from_the_command_line_are_texts() -> None:
    study = load(
        small(
            **{
                "arms": "{fixed: {preset: gspo_asym, eps_low: 3e-3, eps_high: '4.0e-3', seeds: '[5, 6]'}}",
                "seeds": "4",
                "allow_missing": "true",
                "only_arms": "fixed",
                "training.learning_rate": "3e-4",
                "training.checkpoints": "[24, 48]",
                "model.adapter": "null",
                "data_dir": "null",
                "evaluation.samples": "{word_problems_test: 16}",
                "evaluation.selection": "~",
                "evaluation.problems": "20",
                "analysis.endpoint": "{checkpoint: '24'}",
            }
        )
    )
    assert study.arms["fixed"].eps_low == 3e-3 and study.resolved("fixed").seeds == [5, 6]
    assert study.seeds == [0, 1, 2, 3] and study.allow_missing is True and study.only_arms == ["fixed"]
    assert study.training.learning_rate == 3e-4 and study.training.checkpoints == [24, 48]
    assert study.model.adapter is None and study.data_dir is None and study.evaluation.selection is None
    assert study.samples_of("word_problems_test") == 16 and study.evaluation.problems == 20
    assert study.analysis.endpoint.checkpoint == 24


def test_text_that_looks_like_a_list_stays_text() -> None:
    assert load(small(question="[why] {now}?")).question == "[why] {now}?"


def test_resolved_presets_and_same_as() -> None:
    study = load(
        small(
            **{
                "arms.slow": {
                    "same_as": "fixed", "role": "sensitivity", "training": {"learning_rate": 1e-5},
                    "rollout": {"epochs": 4},
                },
                "arms.slower": {"same_as": "slow", "training": {"beta": 0.1}, "rollout": {"minibatches": 1}},
                "arms.matched": {"same_as": "gapo", "bounds": "gapo_matched"},
                "arms.wide": {"same_as": "fixed", "bounds": "gapo", "eps_high_max": 0.007},
                "arms.gated": {"same_as": "fixed", "surrogate": "sapo", "seeds": [9]},
            }
        )
    )  # fmt: skip
    fixed = study.resolved("fixed")
    assert fixed.objective == {
        "ratio": "sequence", "bounds": "ppo", "surrogate": "clipped", "advantage": {"scale": "none"},
        "aggregation": "token-mean", "eps_low": 3e-3, "eps_high": 5e-3,
    }  # fmt: skip
    assert fixed.updates_per_batch == 4 and fixed.optimizer is None and fixed.branch_from is None
    slow = study.resolved("slow")
    assert slow.role == "sensitivity" and slow.objective == fixed.objective and slow.updates_per_batch == 8
    assert slow.training.learning_rate == 1e-5 and slow.training.steps == 48
    slower = study.resolved("slower")
    assert slower.role == "comparison" and slower.training.learning_rate == 1e-5 and slower.updates_per_batch == 4
    assert slower.objective == fixed.objective | {"kl": "k3", "beta": 0.1}
    assert study.resolved("matched").objective == study.resolved("gapo").objective | {"bounds": "gapo_matched"}
    wide = study.resolved("wide").objective
    assert wide["bounds"] == "gapo" and wide["eps_high_max"] == 0.007 and "eps_high" not in wide
    gated = study.resolved("gated")
    assert gated.objective.keys() == {"ratio", "surrogate", "advantage", "aggregation"} and gated.seeds == [9]
    assert all(map(study.differs_only_in_bounds, ("gapo", "wide", "late")))
    assert not any(map(study.differs_only_in_bounds, ("fixed", "slow", "gated")))
    anew = load(small(**{"arms.late.optimizer": "reset"}))
    assert not anew.differs_only_in_bounds("late")


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_resolves_once_its_own_keys_are_given(preset: str) -> None:
    given = {
        "gspo_asym": {"eps_low": 1e-3, "eps_high": 2e-3},
        "f_grpo": {"advantage": {"focal_gamma": 1.0}},
        "f_grpo_unscaled": {"advantage": {"focal_gamma": 1.0}},
        "f_gspo": {"advantage": {"focal_gamma": 1.0}, "eps_low": 1e-3, "eps_high": 2e-3},
        "cispo": {"cispo_upper": 5.0},
    }
    study = load(small(**{"arms.new": {"preset": preset, "training": {"max_grad_norm": 0.5}, **given.get(preset, {})}}))
    objective = study.resolved("new").objective
    assert {key: objective[key] for key in ("ratio", "surrogate", "aggregation")} == {
        key: PRESETS[preset][key] for key in ("ratio", "surrogate", "aggregation")
    }


def test_an_arm_without_a_preset() -> None:
    study = load(small(**{"arms.own": {**CLIPPED_TOKEN, "bounds": "ppo", "eps_low": 0.2, "eps_high": 0.3}}))
    assert study.resolved("own").objective == CLIPPED_TOKEN | {"bounds": "ppo", "eps_low": 0.2, "eps_high": 0.3}


def test_branches() -> None:
    late = load(small()).resolved("late")
    assert late.branch_from is not None and (late.branch_from.arm, late.branch_from.step) == ("fixed", 24)
    assert late.optimizer == "carry" and late.checkpoints == [48] and late.training.steps == 48


def test_runs_and_only_arms() -> None:
    assert load(small()).runs() == {"fixed": [0, 1, 2], "gapo": [0, 1, 2], "late": [0, 1, 2]}
    changes = {"arms.late.seeds": [1], "arms.later": {"same_as": "gapo", "branch_from": {"arm": "late", "step": 48}}}
    changes["arms.later"] |= {"seeds": [1], "training": {"steps": 96, "checkpoints": [96]}}
    study = load(small(**changes, only_arms=["later", "gapo"]))
    assert study.runs() == {"fixed": [1], "gapo": [0, 1, 2], "late": [1], "later": [1]}
    assert load(small(only_arms=["gapo"])).runs() == {"gapo": [0, 1, 2]}  # without the baseline


def test_benchmarks() -> None:
    own = {"path": "x.jsonl", "grader": "exact_answer", "fields": {"question": "q"}}
    study = load(
        small(
            **{
                "sets": {"mine": own, "svamp": {"path": "other.jsonl"}},
                "evaluation.benchmarks": ["mine", "svamp"],
                "evaluation.selection": "word_problems_validation",
                "data.decontaminate_against": ["svamp", "gsm8k_test"],
            }
        )
    )
    assert study.reported == ["mine", "svamp"]
    assert study.sampled == ["mine", "svamp", "word_problems_validation"]
    assert study.all_benchmarks == ["mine", "svamp", "word_problems_validation", "gsm8k_test"]
    assert study.sets["mine"].fields is not None and study.sets["mine"].fields.answer == "answer"
    assert study.grader_of("mine") == study.grader_of("svamp") == "exact_answer"
    assert (
        study.train_set
        == load(small(**{"data.train.benchmark": "word_problems_train", "data.train.split": GONE})).train_set
    )


def test_unreachable_bounds_may_be_asked_for() -> None:
    assert load(small(**UNREACHABLE, **{"analysis.allow_unreachable": True})).resolved("gapo").updates_per_batch == 1
    apart = {"arms.gapo.advantage": {"scale": "group"}}  # more than the bounds differs
    assert load(small(**UNREACHABLE, **apart)).resolved("gapo").updates_per_batch == 1
    twin = {"arms.twin": {"same_as": "gapo", "eps_high_max": 7e-3}}  # both differ from the baseline, but not otherwise
    (line,) = faults(small(**UNREACHABLE, **apart, **twin))
    assert line.startswith("arms.twin.eps_high_max: 0.007: this arm cannot differ from gapo: with 1 update")
    late = {"arms.late": {"preset": "gapo_seq", "branch_from": {"arm": "fixed", "step": 24}}, "arms.gapo": GONE}
    (line,) = faults(small(**UNREACHABLE | late))
    assert line.startswith("arms.late.bounds: 'gapo': this arm cannot differ from fixed: with 1 update")


def test_trl_fields_are_passed_through() -> None:
    assert load(small(**{"training.trl": {"weight_decay": 0.1, "optim": "sgd"}})).training.trl["optim"] == "sgd"


def test_a_new_policy_needs_no_change_here(tmp_path: Path) -> None:
    """Its function in objectives/bounds.py is enough: name and keys are found there."""
    script = (
        "import ast; from workflow_scripts import digest; tree = digest._tree('workflow_scripts.objectives.bounds');"
        "tree.body.append(ast.parse('def fresh(group, *, half_width: float): ...').body[0]);"
        "from workflow_scripts.study.keys import POLICIES, ArmKeys;"
        "assert POLICIES['fresh'] == ('half_width',) and ArmKeys(bounds='fresh', half_width='0.1').half_width == 0.1"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("changes", "here", "words"),
    [
        ({}, 0, None),
        ({"compute.gpus": 1}, 1, None),
        ({"compute.gpus": 1}, 0, "compute.gpus: 1: at most 0"),
    ],
)
def test_what_the_machine_lacks(changes: dict[str, Any], here: int, words: str | None) -> None:
    found = machine_faults(load(small(**changes)), here)
    assert found == [] if words is None else words in found[0]


def test_packages_that_the_study_names_and_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = load(small(**{"compute.trackers": ["wandb", "trackio"], "compute.engine": "vllm"}))
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    assert machine_faults(asked, 0) == [
        "compute.trackers: 'wandb': not installed here: pip install wandb",
        "compute.trackers: 'trackio': not installed here: pip install trackio",
        "compute.engine: 'vllm': not installed here: make gpu; for tables alone transformers",
    ]
    monkeypatch.setattr(checks, "find_spec", lambda name: object())
    assert machine_faults(asked, 0) == []


def test_import_stays_light() -> None:
    """Every call of Snakemake reads the study."""
    heavy = ("torch", "pandas", "transformers", "pyarrow", "trl", "numpy", "scipy", "datasets")
    script = f"import sys, workflow_scripts.study; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


def _leaves(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(tree, dict):
        return [path, *(leaf for key, value in tree.items() for leaf in _leaves(value, (*path, key)))][path == () :]
    return [path]


DEFAULT = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["null", "[1, 2]", "{a: 1}", "[", "base", "gapo", "last", "1e400", "-1", "a:b", 10**400, b"x"])
    | st.dates()
)
JUNK = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3), max_leaves=6
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from([*_leaves(DEFAULT), ("new",), ("arms", "new"), ("training", "new")]), JUNK)
def test_junk_never_raises_anything_else(path: tuple[Any, ...], junk: Any) -> None:
    config = copy.deepcopy(DEFAULT)
    at = config
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = junk
    before = copy.deepcopy(config)
    try:
        study = load(config)
    except StudyFaults as error:
        assert error.lines and all(isinstance(line, str) and "\n" not in line for line in error.lines)
    else:
        for arm in study.runs():
            json.dumps(study.resolved(arm).identity, allow_nan=False)
    assert repr(config) == repr(before)
