"""Values from `--config`, which arrive as text below the first level: each is read by the type of its key."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake.cli import parse_config
from snakemake.utils import update_config
from test_study import SMALL, STUDIES, faults, small

from workflow_scripts import stage_settings
from workflow_scripts.sampling import Options
from workflow_scripts.study import load, trl_fields
from workflow_scripts.study.keys import Evaluation, Rollout, Sampling

# field of TRL's GRPOConfig, as text, as a number or another value of YAML, what TRL gets
TRL_VALUES = [
    ("weight_decay", "0.01", 0.01, 0.01),
    ("weight_decay", "1e-2", 1.0e-2, 0.01),
    ("weight_decay", "1", 1, 1.0),
    ("weight_decay", "-1E-2", -0.01, -0.01),
    ("adam_epsilon", ".1e-7", 1.0e-8, 1e-8),
    ("router_aux_loss_coef", "null", None, None),
    ("router_aux_loss_coef", "2", 2, 2.0),
    ("dataloader_num_workers", "2", 2, 2),
    ("ddp_timeout", "2e3", 2000.0, 2000),
    ("torch_empty_cache_steps", "~", None, None),
    ("torch_empty_cache_steps", "5", 5, 5),
    ("pad_to_multiple_of", "8", 8, 8),
    ("cast_lm_head_to_fp32", "true", True, True),
    ("cast_lm_head_to_fp32", "True", True, True),
    ("cast_lm_head_to_fp32", "FALSE", False, False),
    ("cast_lm_head_to_fp32", "off", False, False),
    ("cast_lm_head_to_fp32", "1", 1, True),
    ("tf32", "null", None, None),
    ("tf32", "yes", True, True),
    ("include_num_input_tokens_seen", "all", "all", "all"),
    ("include_num_input_tokens_seen", "true", True, True),
    ("optim", "sgd", "sgd", "sgd"),
    ("optim_args", "1", "1", "1"),
    ("optim_args", "null", None, None),
    ("run_name", "2024", "2024", "2024"),
    ("optim_target_modules", "all-linear", "all-linear", "all-linear"),
    ("optim_target_modules", "[q_proj, v_proj]", ["q_proj", "v_proj"], ["q_proj", "v_proj"]),
    ("label_names", "labels", ["labels"], ["labels"]),
    ("lr_scheduler_kwargs", "{num_cycles: 0.5, power: 1e0}", {"num_cycles": 0.5, "power": 1.0}, None),
    ("liger_kernel_config", "{rope: 'true'}", {"rope": True}, None),
    ("accelerator_config", '{"split_batches": false}', {"split_batches": False}, None),
]


def keys(config: dict[str, Any]) -> set[str]:
    """What the cache keys of all runs have of the study's settings."""
    study = load(config)
    return {stage_settings.canonical(stage_settings.train(study, arm, 0, 1)) for arm in study.arms}


def as_text(value: Any) -> Any:
    """A value as it comes from `--config`: its leaves are text."""
    if isinstance(value, dict):
        return {key: as_text(part) for key, part in value.items()}
    if isinstance(value, list):
        return [as_text(part) for part in value]
    return value if isinstance(value, str) else json.dumps(value)


@pytest.mark.parametrize("place", ["training", "arms.gapo.training"])
@pytest.mark.parametrize(("name", "text", "value", "wanted"), TRL_VALUES, ids=lambda value: str(value))
def test_a_text_and_a_number_are_one_setting_of_trl(name: str, text: str, value: Any, wanted: Any, place: str) -> None:
    one, other = (small(**{f"{place}.trl": {name: given}}) for given in (text, value))
    wanted = value if wanted is None else wanted
    arm = load(one).resolved("gapo")
    assert arm.training.trl == {name: wanted} and type(arm.training.trl[name]) is type(wanted)
    assert keys(one) == keys(other)


def test_one_and_one_point_zero_are_one_setting() -> None:
    assert keys(small(**{"training.trl": {"weight_decay": 1}})) == keys(
        small(**{"training.trl": {"weight_decay": 1.0}})
    )


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("weight_decay", "a lot", "a number"),
        ("weight_decay", "0,01", "a number"),
        ("weight_decay", "", "a number"),
        ("weight_decay", "nan", "a number"),
        ("weight_decay", ".inf", "a number"),
        ("weight_decay", "1e999", "a number"),
        ("weight_decay", "true", "a number"),
        ("weight_decay", True, "a number"),
        ("weight_decay", None, "a number"),
        ("weight_decay", "null", "a number"),
        ("weight_decay", [0.01], "a number"),
        ("weight_decay", 10**400, "a number"),
        ("router_aux_loss_coef", "none", "a number or null"),
        ("dataloader_num_workers", "2.5", "a whole number"),
        ("dataloader_num_workers", 2.5, "a whole number"),
        ("cast_lm_head_to_fp32", "2", "true or false"),
        ("cast_lm_head_to_fp32", "maybe", "true or false"),
        ("run_name", 2024, "text (what YAML reads as a number or as true or false needs quotes) or null"),
        ("optim", "adam", "one of adamw_torch, "),
        ("optim", "adamw_trch", "did you mean 'adamw_torch'?"),
        ("optim", 3, "text"),
        ("lr_scheduler_kwargs", 3, "a mapping of keys to values or text"),
        ("label_names", "3: 4", None),
        ("parallelism_config", {}, "the pipeline"),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_one_line(name: str, value: Any, allowed: str | None) -> None:
    config = small(**{"training.trl": {name: value}})
    if allowed is None:
        assert load(config).training.trl[name] == [value]
        return
    (line,) = faults(config)
    assert line.startswith(f"training.trl.{name}: ") and allowed in line, line
    (line,) = faults(small(**{"arms.gapo.training.trl": {name: value}}))
    assert line.startswith(f"arms.gapo.training.trl.{name}: ") and allowed in line, line


def test_every_field_of_trl_takes_its_own_default() -> None:
    """The types that are read from TRL's sources are those of the class itself."""
    from dataclasses import MISSING, fields

    from trl import GRPOConfig

    known = trl_fields._trainer_fields()
    declared = {field.name: field for field in fields(GRPOConfig)}
    assert set(declared) - {"_n_gpu"} <= set(known)
    for name, field in declared.items():
        if name in known and field.default is not MISSING and isinstance(field.default, (int, float, type(None))):
            # a default that the annotation does not allow is TRL's own exception
            read = trl_fields._as(known[name].kinds | {"None"}, field.default)
            assert read == field.default, name


@pytest.mark.parametrize(
    "entry",
    [
        "training={trl: {weight_decay: 0.01}}",
        "training={trl: {weight_decay: 1e-2}}",
        "training={trl: '{weight_decay: 1.0e-2}'}",
    ],
)
def test_the_command_line_of_snakemake(entry: str) -> None:
    config = yaml.safe_load(SMALL)
    update_config(config, parse_config([entry]))
    assert keys(config) == keys(small(**{"training.trl": {"weight_decay": 0.01}}))


POLICY_VALUES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("arms.gapo", {"preset": "gapo_seq", "eps_high_max": "6e-3"}, {"preset": "gapo_seq", "eps_high_max": 0.006}),
    (
        "arms.soft",
        {"preset": "gapo_seq", "surrogate": "sapo", "sapo_tau": "[1.0, 1.05]"},
        {"preset": "gapo_seq", "surrogate": "sapo", "sapo_tau": [1.0, 1.05]},
    ),
    (
        "arms.soft",
        {"preset": "gapo_seq", "surrogate": "sapo", "sapo_tau": ["1", "105e-2"]},
        {"preset": "gapo_seq", "surrogate": "sapo", "sapo_tau": [1.0, 1.05]},
    ),
    (
        "analysis.policies",
        {"wide": {"bounds": "ppo", "eps_low": "3e-3", "eps_high": "8e-3"}},
        {"wide": {"bounds": "ppo", "eps_low": 0.003, "eps_high": 0.008}},
    ),
    (
        "sets",
        {"mine": {"path": "7", "grader": "exact_answer", "revision": "null", "fields": {"question": "1", "id": "~"}}},
        {"mine": {"path": "7", "grader": "exact_answer", "fields": {"question": "1"}}},
    ),
    (
        "sets",
        {"mine": "{path: x.jsonl, grader: exact_answer}"},
        {"mine": {"path": "x.jsonl", "grader": "exact_answer"}},
    ),
    ("model.adapter", "null", None),
    ("model.adapter", {"rank": "8", "alpha": "16"}, {"rank": 8, "alpha": 16}),
    ("evaluation.samples", {"word_problems_test": "8"}, {"word_problems_test": 8}),
    ("seeds", "3", 3),
    ("seeds", ["0", "2"], [0, 2]),
    ("compute.micro_batch", "8", 8),
    ("compute.keep", {"completions": "False"}, {"completions": False}),
]


@pytest.mark.parametrize(("path", "text", "value"), POLICY_VALUES, ids=str)
def test_a_text_and_a_value_are_one_study(path: str, text: Any, value: Any) -> None:
    assert load(small(**{path: text})).model_dump() == load(small(**{path: value})).model_dump()


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("arms.gapo.eps_high_max", "wide", "arms.gapo.eps_high_max: 'wide': a number"),
        ("arms.gapo.eps_high_max", "true", "arms.gapo.eps_high_max: 'true': a number"),
        ("arms.gapo.eps_high_max", "nan", "arms.gapo.eps_high_max: 'nan': a finite number"),
        (
            "analysis.policies",
            {"wide": {"bounds": "ppo", "eps_low": "x", "eps_high": "1"}},
            "analysis.policies.wide.eps_low: 'x': ",
        ),
        (
            "sets",
            {"mine": {"path": "x", "grader": "exact_answer", "fields": {"question": {"a": 1}}}},
            "sets.mine.fields.question: {'a': 1}: a column, a template",
        ),
        ("sets", {"mine": "x.jsonl"}, "sets.mine: 'x.jsonl': a mapping"),
    ],
    ids=str,
)
def test_a_text_that_no_key_takes_is_one_line(path: str, text: Any, line: str) -> None:
    (found,) = faults(small(**{path: text}))
    assert found.startswith(line), found


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.name)
def test_a_study_of_texts_alone_is_the_same_study(path: Path) -> None:
    """Every key of the studies that come with the workflow, given as `--config` would."""
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert load(as_text(config)).model_dump() == load(config).model_dump()


def test_rollouts_and_evaluations_are_drawn_with_the_same_options() -> None:
    assert set(Sampling.model_fields) == {field.name for field in dataclasses.fields(Options)}
    assert all(issubclass(part, Sampling) for part in (Rollout, Evaluation))
