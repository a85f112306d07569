"""The studies after papers: what their arms come to, against what the papers say."""

from math import inf
from typing import Any, NamedTuple

import pytest
import torch
import yaml
from copies import REPOSITORY

from workflow_scripts import stage_settings
from workflow_scripts.objectives import bounds
from workflow_scripts.study import Study, load


class Paper(NamedTuple):
    """An arm of a paper. lower: the bound for A < 0; upper: for A > 0 with one correct rollout and with all."""

    ratio: str
    lower: float
    upper: tuple[float, float]
    scale: str = "none"
    aggregation: str = "token-mean"
    gamma: float | None = None
    group_size: int = 8


# GAPO, arXiv:2609.00444: Eq. 11 (adaptive), Eq. 13 (sequence ratio), setup (no std, token mean), Tables 4, 5 (widths)
FIXED, GAPO = Paper("sequence", 0.997, (1.005, 1.005)), Paper("sequence", 0.997, (1.005, 1.003))
SYMMETRIC, FOCAL = FIXED._replace(upper=(1.003, 1.003)), FIXED._replace(gamma=1.0)
MATCHED = GAPO._replace(upper=(1.003 + 0.002 * 3 / 7,) * 2)  # Eq. 11 at the mean count, (2k - 1) / 3 = 5
TOKEN = Paper("token", 0.8, (1.28, 1.28))
STD_TOKEN, FOCAL_TOKEN = TOKEN._replace(scale="group"), TOKEN._replace(gamma=1.0)
DISTILL = Paper("sequence", 1 - 7e-5, (1 + 3e-4, 1 + 3e-4))  # Tables 4 and 5: smaller for distilled models
GRPO = Paper("token", 0.8, (1.2, 1.2), "group")  # ABC-GRPO, arXiv:2601.03895, and its recipes

ARMS: dict[str, dict[str, Paper]] = {
    "gapo-qwen-math": {  # Table 3
        "gspo_asym": FIXED,
        "gspo_sym": SYMMETRIC,
        "f_gspo": FOCAL,
        "gapo": GAPO,
        "gapo_matched": MATCHED,
        "grpo": STD_TOKEN,
        "dr_grpo": TOKEN._replace(aggregation="seq-mean-token-sum-norm"),
        "f_grpo": FOCAL_TOKEN,
        "gapo_token": TOKEN._replace(upper=(1.28, 1.2)),
        "fixed_token": TOKEN,
    },
    "gapo-llama": {  # Table 3
        "gspo_asym": FIXED,
        "gspo_sym": SYMMETRIC,
        "f_gspo": FOCAL,
        "gapo": GAPO,
        "gapo_matched": MATCHED,
        "grpo": STD_TOKEN,
        "f_grpo": FOCAL_TOKEN,
    },
    "gapo-distill": {  # Table 1
        "gspo_asym": DISTILL,
        "f_gspo": DISTILL._replace(gamma=1.0),
        "gapo": DISTILL._replace(upper=(1 + 3e-4, 1 + 7e-5)),
        "gapo_matched": DISTILL._replace(upper=(1 + 7e-5 + 2.3e-4 * 3 / 7,) * 2),
    },
    "gapo-ablations": {  # Table 8; Fig. 6
        "fixed_5": FIXED,
        "fixed_7": FIXED._replace(upper=(1.007, 1.007)),
        "gapo_3": SYMMETRIC,
        "gapo_5": GAPO,
        "gapo_525": GAPO._replace(upper=(1.00525, 1.003)),
        "gapo_7": GAPO._replace(upper=(1.007, 1.003)),
        "fixed_k4": FIXED._replace(group_size=4),
        "gapo_k4": GAPO._replace(group_size=4),
        "fixed_k16": FIXED._replace(group_size=16),
        "gapo_k16": GAPO._replace(group_size=16),
    },
    "gapo-intervention": {  # Fig. 7
        "gspo_asym": FIXED,
        "gapo_late": GAPO,
        "gapo_late_reset": GAPO,
        "fixed_reset": FIXED,
        "gapo": GAPO,
    },
    "abc-grpo-1.7b": {"grpo": GRPO, "abc_grpo": GRPO, "abc_q4": GRPO},  # Fig. 3; the other two bounds below
}
# Prompts, group size, updates of a batch, learning rate, samples of a problem: GAPO's Tables 4 and 5; ABC-GRPO's logs
SETTINGS = {
    **dict.fromkeys(ARMS, (256, 8, 4, 1e-6, 256)),
    "gapo-distill": (256, 8, 4, 1e-6, 16),
    "abc-grpo-1.7b": (512, 8, 4, 1e-6, 64),
}


def study(name: str) -> Study:
    return load(yaml.safe_load((REPOSITORY / "studies" / f"{name}.yaml").read_text(encoding="utf-8")))


def clips(objective: dict[str, Any], size: int) -> list[tuple[float, float]]:
    """(lower, upper) of a wrong rollout, and of a right one among 1 and among all of the group."""
    keys = {key: value for key, value in objective.items() if key.startswith("eps_")}
    advantage, correct = torch.tensor([[-1.0], [1], [1]]), torch.tensor([[1.0], [1], [size]])
    group = bounds.Group(advantage.double(), correct.double(), size, torch.zeros(3, 1, dtype=torch.float64))
    found = getattr(bounds, objective["bounds"])(group, **keys)
    return list(zip(*(side.expand(3, 1).flatten().tolist() for side in (found.lower, found.upper)), strict=True))


@pytest.mark.parametrize("name", ARMS)
def test_arms_are_those_of_the_paper(name: str) -> None:
    found = study(name)
    assert {arm for arm, role in found.roles().items() if role == "comparison"} == ARMS[name].keys()
    for arm, paper in ARMS[name].items():
        objective, size = found.resolved(arm).objective, found.resolved(arm).rollout.group_size
        (lower, _), (_, rare), (_, common) = clips(objective, size)
        advantage = objective["advantage"]
        assert (objective["ratio"], objective["surrogate"], size) == (paper.ratio, "clipped", paper.group_size), arm
        assert (advantage["scale"], advantage.get("focal_gamma")) == (paper.scale, paper.gamma), arm
        assert objective["aggregation"] == paper.aggregation, arm
        assert [lower, rare, common] == pytest.approx([paper.lower, *paper.upper], abs=1e-9), arm
        assert "beta" not in objective, arm


@pytest.mark.parametrize("name", ARMS)
def test_settings_are_those_of_the_paper(name: str) -> None:
    found = study(name)
    rollout, training = found.rollout, found.training
    samples = {found.samples_of(benchmark) for benchmark in found.reported}
    seen = (rollout.prompts, rollout.group_size, rollout.updates_per_batch, training.learning_rate, *samples)
    assert seen == SETTINGS[name]
    assert training.reward == "math_answer"
    assert set(found.reported) <= set(found.data.decontaminate_against)
    assert found.looks == [3, 5]


def test_lengths_and_what_is_drawn_from_reach_the_jobs_of_these_studies_alone() -> None:
    found = {name: study(name) for name in ARMS}
    rollouts = {name: stage_settings.train(s, s.baseline, 0, 1)["rollout"] for name, s in found.items()}
    most = {name: rollout["max_prompt"] + rollout["max_completion"] for name, rollout in rollouts.items()
            if "max_prompt" in rollout}  # fmt: skip
    assert most == dict.fromkeys(("gapo-qwen-math", "gapo-ablations", "gapo-intervention"), 4096)  # all the model takes
    assert {name for name in found if "max_prompt" in stage_settings.report(found[name])} == most.keys()
    sampled = {name: stage_settings.sample_base(s, 0, "aime24") for name, s in found.items()}
    assert {name: s["top_k"] for name, s in sampled.items() if "top_k" in s} == {"abc-grpo-1.7b": 20}
    assert not any("top_k" in rollout for rollout in rollouts.values())


def test_abc_bounds_both_signs_on_both_sides() -> None:
    """Fig. 3: with A < 0 from .8 to 1.2, with A > 0 as well; abc_q4 leaves what GRPO leaves open for A > 0."""
    found = study("abc-grpo-1.7b")
    grpo, abc, q4 = (clips(found.resolved(arm).objective, 8) for arm in ("grpo", "abc_grpo", "abc_q4"))
    assert grpo == [pytest.approx(pair) for pair in [(0.8, inf), (-inf, 1.2), (-inf, 1.2)]]
    assert abc == [pytest.approx((0.8, 1.2))] * 3
    assert q4 == [pytest.approx(pair) for pair in [(0.8, 1.2), (0, 1.2), (0, 1.2)]]


def test_the_intervention_starts_where_the_clip_begins_to_fire() -> None:
    """Fig. 7: step 600, in rollout batches; the branch is its parent but for the bounds."""
    found = study("gapo-intervention")
    late = found.resolved("gapo_late")
    assert late.branch_from is not None
    assert late.branch_from.step == 600 * found.rollout.updates_per_batch
    assert late.optimizer == "carry"
    assert found.only_bounds("gapo_late", late.branch_from.arm)


def test_the_token_arm_has_a_partner_that_differs_in_bounds_alone() -> None:
    """No baseline of Table 3 is one: GRPO scales by std, Dr.GRPO aggregates otherwise, F-GRPO weighs advantages."""
    found = study("gapo-qwen-math")
    partners = [arm for arm in ARMS["gapo-qwen-math"] if found.only_bounds("gapo_token", arm)]
    assert partners == ["fixed_token"]


def test_evaluation_may_ask_in_another_way_than_training() -> None:
    keys = yaml.safe_load((REPOSITORY / "studies/abc-grpo-1.7b.yaml").read_text(encoding="utf-8"))
    assert (keys["model"]["prompt_family"], keys["evaluation"]["prompt_family"]) == ("abc-grpo", "qwen-math")

    def found(family: str | None) -> tuple[Any, ...]:
        study = load({**keys, "evaluation": {**keys["evaluation"], "prompt_family": family}})
        sampled = [
            stage_settings.sample_base(study, 0, "amc23"),
            stage_settings.sample_checkpoints(study, "grpo", 0, "amc23"),
        ]
        trained = (stage_settings.train(study, "grpo", 0, 1), stage_settings.train_roots(study, "grpo"))
        return trained, sampled, stage_settings.prompt_root(study), stage_settings.fits(study)["prompt_family"]

    trained, sampled, root, fits = found("qwen-math")
    assert [part["model"].pop("prompt_family") for part in sampled] == ["qwen-math"] * 2
    assert (root, fits) == ("sampling/prompts.json:qwen-math", "qwen-math")  # a system prompt asks for more than none
    alike = found(None)
    assert found("abc-grpo") == alike
    assert [part["model"].pop("prompt_family") for part in alike[1]] == ["abc-grpo"] * 2
    assert (trained, sampled) == alike[:2]
    assert trained[1][-1] == alike[2] == "sampling/prompts.json:abc-grpo"
    assert found("base-boxed")[3] == "abc-grpo"  # a chat template
