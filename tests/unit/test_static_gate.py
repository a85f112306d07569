"""Which comparisons are refused before training because they can show nothing, and proof by the trainer's own loss.

A case is a study of a few arms. Where it is refused, or where its objectives differ, the trainer computes the gradients
of both arms on the same rollouts, with all weights of a small model: at ratio 1 where there is one update per rollout
batch, far from it where there are several.
"""

import copy
import math
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import yaml
from policies import POLICIES, group, keys
from test_faithfulness import GROUP, LONGEST, ROLLOUTS, STEP, exact, loss_and_gradient, minibatch  # noqa: F401

from workflow_scripts.objectives import bounds
from workflow_scripts.study import StudyFaults, load, static_gate
from workflow_scripts.study.static_gate import Setting, certainly_differ
from workflow_scripts.study.trl_fields import _WITHOUT_EFFECT, _trainer_fields, reaching_the_weights
from workflow_scripts.training import setup
from workflow_scripts.training.trainer import Trainer

ROOT = Path(__file__).parents[2]
STUDIES = [ROOT / "config.yaml", *sorted((ROOT / "studies").glob("*.yaml"))]
BASE = yaml.safe_load((ROOT / "studies" / "embedded-zoo.yaml").read_text(encoding="utf-8"))
ONE, FOUR = {"rollout": {"minibatches": 1, "epochs": 1}}, {"rollout": {"minibatches": 2, "epochs": 2}}
BRANCHES = {"training": {"checkpoints": [24, 48]}}
LATE = {"branch_from": {"arm": "a", "step": 24}}
OWN_REWARD = {"training": {"reward": "rewards:mine", "success_threshold": 0.5}}
D = {"preset": "dapo_clip"}
TOKEN = {"preset": "gapo_token", "bounds": "ppo"}
FIXED = {"preset": "gspo_asym", "eps_low": 3e-3, "eps_high": 5e-3}


class Case(NamedTuple):
    """arms: the first is the baseline; base: keys of the study; because: what the line says, None where accepted."""

    title: str
    base: dict[str, Any]
    arms: dict[str, Any]
    because: str | None


def pair(one: dict[str, Any], **other: Any) -> dict[str, Any]:
    return {"a": one, "b": {**one, **other}}


RATIO, SAME, NEVER = "the ratio is always 1", "equal at every ratio", "never reach the weights"
CASES = [
    # one update per rollout batch
    Case("other bounds", ONE, pair(D, eps_high=0.4), RATIO),
    Case("gapo, ppo", ONE, {"a": {**TOKEN, "eps_high": 0.28}, "b": {"preset": "gapo_token"}}, RATIO),
    Case("a logging field too", ONE, pair(D, eps_high=0.4, training={"trl": {"logging_first_step": True}}), RATIO),
    Case("checkpoints too", ONE, pair(D, eps_high=0.4, training={"checkpoints": [24, 48]}), RATIO),
    Case("seeds too", ONE, pair(D, eps_high=0.4, seeds=[7, 8]), RATIO),
    Case("cispo", ONE, {"a": D, "b": {"preset": "cispo", "cispo_upper": 5.0}}, RATIO),
    Case("sapo, token mean", ONE, {"a": D, "b": {"preset": "sapo", "aggregation": "token-mean"}}, RATIO),
    Case("sapo, cispo", ONE, {"a": {"preset": "sapo"},
         "b": {"preset": "cispo", "cispo_upper": 5.0, "aggregation": "seq-mean-token-mean"}}, RATIO),
    Case("sapo of other temperatures", ONE, pair({"preset": "sapo"}, sapo_tau=[2.0, 3.0]), RATIO),
    Case("sequence and token ratio", ONE, {"a": {**TOKEN, "eps_high": 0.28}, "b": FIXED}, RATIO),
    *(Case(f"sequence and token ratio, {mean}", ONE,
           {"a": {**TOKEN, "eps_high": 0.28, "aggregation": mean}, "b": {**FIXED, "aggregation": mean}}, RATIO)
      for mean in ("token-mean-step", "seq-mean-token-mean", "seq-mean-token-sum-norm")),
    Case("gspo, grpo", ONE, {"a": {"preset": "grpo"}, "b": {"preset": "gspo"}}, RATIO),
    Case("abc_grpo_code, dapo_clip", ONE, {"a": D, "b": {"preset": "abc_grpo_code"}}, RATIO),
    Case("dcpo", ONE, pair(D, bounds="dcpo", eps_low=0.16, eps_high=0.2), RATIO),
    Case("bounds under a KL penalty", {**ONE, "training": {"beta": 0.04}}, pair({**D, "kl": "k3"}, eps_high=0.4),
         RATIO),
    Case("bounds under k3_importance", {**ONE, "training": {"beta": 0.04}},
         pair({**D, "kl": "k3_importance"}, eps_high=0.4), RATIO),
    Case("no focal weight and one of 0", ONE,
         pair(D, eps_high=0.4, advantage={"scale": "group", "focal_gamma": 0.0}), RATIO),
    Case("token means of one minibatch", ONE, pair(D, aggregation="token-mean-step"), RATIO),
    Case("scales of one prompt", {"rollout": {"prompts": 1, "minibatches": 1, "epochs": 1}},
         pair(D, advantage={"scale": "batch"}), RATIO),
    Case("bounds of shaped rewards", {**ONE, **OWN_REWARD}, pair(D, eps_high=0.4), RATIO),
    Case("a branch that carries the optimizer", {**ONE, **BRANCHES}, pair(D, eps_high=0.4, **LATE), RATIO),
    Case("reset branches", {**ONE, **BRANCHES},
         {"a": D, "r": {**D, **LATE, "optimizer": "reset"},
         "b": {**D, **LATE, "optimizer": "reset", "eps_high": 0.4}}, RATIO),
    Case("two arms that both differ from the baseline", ONE,
         {"a": {"preset": "grpo"}, "b": D, "c": {**D, "eps_high": 0.4}}, RATIO),
    Case("sequence and token ratio under vLLM's weights", {**ONE, "compute": {"engine": "vllm"}},
         {"a": {**TOKEN, "eps_high": 0.28}, "b": FIXED}, None),
    Case("k3 and k3_importance", {**ONE, "training": {"beta": 0.04}}, pair({**D, "kl": "k3"}, kl="k3_importance"),
         None),
    Case("ratios under k3_importance", {**ONE, "training": {"beta": 0.04}},
         {"a": {**TOKEN, "eps_high": 0.28, "kl": "k3_importance"}, "b": {**FIXED, "kl": "k3_importance"}}, None),
    Case("beta", {**ONE, "training": {"beta": 0.04}}, pair(D, training={"beta": 0.08}), None),
    Case("focal weights", ONE, {"a": {"preset": "f_grpo", "advantage": {"focal_gamma": 1.0}},
                                "b": {"preset": "f_grpo", "advantage": {"focal_gamma": 2.0}}}, None),
    Case("scales", ONE, pair(D, advantage={"scale": "none"}), None),
    Case("scales of the batch", ONE, pair(D, advantage={"scale": "batch"}), None),
    Case("aggregations", ONE, pair(D, aggregation="seq-mean-token-mean"), None),
    Case("gspo and gspo_asym", ONE, {"a": FIXED, "b": {"preset": "gspo"}}, None),
    Case("learning rates", ONE, pair(D, training={"learning_rate": 1e-4}), None),
    Case("weight decay", ONE, pair(D, training={"trl": {"weight_decay": 0.1}}), None),
    Case("temperatures", ONE, pair(D, rollout={"temperature": 0.8}), None),
    Case("an arm with several updates", ONE, pair(D, eps_high=0.4, rollout={"epochs": 4}), None),
    Case("a branch with a new optimizer", {**ONE, **BRANCHES}, pair(D, eps_high=0.4, optimizer="reset", **LATE), None),
    # several
    Case("gapo of equal ends", FOUR, {"a": {**TOKEN, "eps_high": 0.2},
         "b": {"preset": "gapo_token", "eps_high_max": 0.2}}, SAME),
    Case("gapo_mirrored of equal ends", FOUR,
         {"a": {**TOKEN, "eps_high": 0.2}, "b": {**TOKEN, "bounds": "gapo_mirrored", "eps_high_max": 0.2}}, SAME),
    Case("gapo_lower of equal ends", FOUR, {"a": {"preset": "gapo_token"},
         "b": {"preset": "gapo_token", "bounds": "gapo_lower", "eps_low_max": 0.2}}, SAME),
    Case("gapo_matched of a fixed width", FOUR, {"a": {**TOKEN, "eps_high": 0.24},
         "b": {"preset": "gapo_token", "bounds": "gapo_matched", "mean_correct": 4.5}}, SAME),
    Case("gapo_matched at its own mean", FOUR,
         pair({"preset": "gapo_seq", "bounds": "gapo_matched"}, mean_correct=5.0), SAME),
    Case("gapo_matched by two roads", FOUR,
         {"a": {"preset": "gapo_token", "bounds": "gapo_matched", "mean_correct": 4.5},
         "b": {"preset": "gapo_token", "bounds": "gapo_matched", "eps_high_max": 0.24, "mean_correct": 1.0}}, SAME),
    Case("dual_clip far away", FOUR, pair(D, bounds="dual_clip", dual_clip_bound=1e9), SAME),
    Case("abc with GRPO's two bounds", FOUR,
         {"a": {**TOKEN, "eps_high": 0.2},
         "b": {**TOKEN, "bounds": "abc", "eps_1": 0.2, "eps_2": 1.0, "eps_3": 1e8, "eps_4": 0.2}}, SAME),
    Case("nothing is clipped", FOUR,
         pair(D, eps_low=1.0, eps_high=1e8) | {"a": {**D, "eps_low": 1.0, "eps_high": 1e9}}, SAME),
    Case("cispo without a cap, nothing clipped", FOUR,
         {"a": {**D, "eps_low": 1.0, "eps_high": 1e9}, "b": {"preset": "cispo", "cispo_upper": 1e9}}, SAME),
    Case("cispo of two caps out of reach", FOUR, {"a": {"preset": "cispo", "cispo_upper": 1e8},
                                                  "b": {"preset": "cispo", "cispo_upper": 1e9}}, SAME),
    Case("sapo's own temperatures", FOUR, pair({"preset": "sapo"}, sapo_tau=[1.0, 1.05]), SAME),
    Case("bounds closer than float32 resolves", FOUR, pair({**TOKEN, "eps_high": 0.24}, eps_high=0.24 + 1e-9), SAME),
    Case("completions of one token", {"rollout": {"max_completion": 1}}, {"a": {**FIXED},
         "b": {**FIXED, "ratio": "token"}}, SAME),
    Case("aggregations of one token", {"rollout": {"max_completion": 1}},
         pair(FIXED, aggregation="seq-mean-token-sum-norm"), SAME),
    Case("token means of one minibatch, two epochs", {"rollout": {"minibatches": 1, "epochs": 2}},
         pair(D, aggregation="token-mean-step"), SAME),
    Case("a carried branch of the same function", {**FOUR, **BRANCHES},
         {"a": {**TOKEN, "eps_high": 0.2}, "b": {"preset": "gapo_token", "eps_high_max": 0.2, **LATE}}, SAME),
    Case("a threshold that nothing asks for", {**FOUR, **OWN_REWARD}, pair(D, training={"success_threshold": 0.9}),
         SAME),
    Case("a threshold that gapo asks for", {**FOUR, **OWN_REWARD},
         pair({"preset": "gapo_token"}, training={"success_threshold": 0.9}), None),
    Case("other bounds, U = 2, pairs", {"rollout": {"minibatches": 2, "epochs": 1, "group_size": 2}},
         pair(D, eps_high=0.4), None),
    Case("lower bounds at .01 and 0", FOUR, {"a": {**D, "eps_low": 0.99, "eps_high": 100.0},
                                             "b": {**D, "eps_low": 1.0, "eps_high": 100.0}}, None),
    Case("gapo, ppo of its ceiling", FOUR, {"a": {**TOKEN, "eps_high": 0.28}, "b": {"preset": "gapo_token"}}, None),
    Case("gapo, gapo_matched", FOUR, pair({"preset": "gapo_seq"}, bounds="gapo_matched"), None),
    Case("gapo_matched of nearly a fixed width", FOUR, {"a": {**TOKEN, "eps_high": 0.2400005},
         "b": {"preset": "gapo_token", "bounds": "gapo_matched", "mean_correct": 4.5}}, None),
    Case("dual_clip within reach", FOUR, pair(D, bounds="dual_clip", dual_clip_bound=3.0), None),
    Case("cispo, dapo", FOUR, {"a": D, "b": {"preset": "cispo", "cispo_upper": 5.0}}, None),
    Case("sapo, dapo", FOUR, {"a": D, "b": {"preset": "sapo", "aggregation": "token-mean"}}, None),
    Case("sequence and token ratio, U = 4", FOUR, {"a": {**FIXED}, "b": {**FIXED, "ratio": "token"}}, None),
    Case("token means of two minibatches", FOUR, pair(D, aggregation="token-mean-step"), None),
    # How far a learning rate moves a weight is not known before: the checks after the runs see that no bound fired.
    Case("a tiny learning rate", {**FOUR, "training": {"learning_rate": 1e-12}}, pair(D, eps_high=0.4), None),
    # whatever the updates
    *(case for u, keys in (("1", ONE), ("4", FOUR)) for case in (
        Case(f"a logging field alone, U = {u}", keys, pair(D, seeds=[7, 8],
             training={"trl": {"log_completions": True}}), NEVER),
        Case(f"a default alone, U = {u}", keys, pair(D, seeds=[7, 8], training={"trl": {"weight_decay": 0.0}}), NEVER),
        Case(f"vLLM's weights without vLLM, U = {u}", keys,
             pair(D, training={"trl": {"vllm_importance_sampling_clip_max": 5.0}}), NEVER),
        Case(f"checkpoints alone, U = {u}", keys, pair(D, training={"checkpoints": [24, 48]}), NEVER),
        Case(f"a schedule without its warm-up, U = {u}", keys, pair(D,
             training={"schedule": "constant_with_warmup"}), NEVER),
        Case(f"seeds alone, U = {u}", keys, pair(D, seeds=[7, 8]), "role: placebo"),
        Case(f"a branch that changes nothing, U = {u}", {**keys, **BRANCHES}, pair(D, **LATE), "repeats its parent"),
        Case(f"a placebo, U = {u}", keys, pair(D, seeds=[7, 8], role="placebo"), None),
    )),
    Case("more seeds of another arm", FOUR, {"a": D, "b": {**D, "eps_high": 0.4},
         "c": {**D, "eps_high": 0.4, "seeds": [7, 8]}}, None),
]  # fmt: skip


def config(case: Case) -> dict[str, Any]:
    found = copy.deepcopy(BASE)
    del found["analysis"]
    found |= {"arms": case.arms, "baseline": next(iter(case.arms)), "seeds": 2}
    for section, values in case.base.items():
        found[section] = {**found.get(section, {}), **values}
    return found


def last_two(case: Case) -> list[str]:
    return list(case.arms)[-2:]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_what_is_refused(case: Case) -> None:
    """One line that names both arms, a key that differs, and the way out."""
    if case.because is None:
        load(config(case))
        return
    with pytest.raises(StudyFaults) as caught:
        load(config(case))
    (line,) = caught.value.lines
    other, arm = last_two(case)
    assert line.startswith(f"arms.{arm}.") and f"cannot differ from {other}: " in line
    assert case.because in line and "analysis.allow_unreachable: true" in line
    allowed = config(case) | {"analysis": {"allow_unreachable": True}}
    assert load(allowed).resolved(arm).name == arm


def rollouts(trainer: Trainer, seed: int, at_one: bool) -> dict[str, Any]:
    """Rollouts of one step; old log-probabilities today's own, or as far from them as the bounds of the cases lie."""
    inputs = minibatch(trainer, seed)
    if at_one:
        return inputs | {"old_per_token_logps": None}
    ids, attended = (torch.cat([inputs[f"prompt_{name}"], inputs[f"completion_{name}"]], 1) for name in ("ids", "mask"))
    with torch.no_grad():
        log_prob, *_ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, attended, LONGEST, compute_entropy=True
        )
    random = torch.Generator().manual_seed(seed)
    scale = torch.tensor([3e-3, 0.3, 4.0], dtype=log_prob.dtype)[torch.arange(len(log_prob)) % 3, None]
    moved = torch.randn(log_prob.shape, generator=random, dtype=log_prob.dtype) + torch.randn(
        (len(log_prob), 1), generator=random, dtype=log_prob.dtype
    )
    return inputs | {"old_per_token_logps": (log_prob + scale * moved) * inputs["completion_mask"]}


def gradient(trainer: Trainer, axes: dict[str, Any], inputs: dict[str, Any], threshold: float) -> torch.Tensor:
    """Of all weights, from the trainer's own loss."""
    objective = setup.make_objective(axes, axes.get("beta", 0.0))
    trainer.objective = objective
    random = torch.Generator().manual_seed(int(inputs["reward_seed"]))
    reward = torch.randint(0, 2, (ROLLOUTS // GROUP, GROUP), generator=random).double()
    if "shaped" in inputs:  # some rewards lie between the thresholds of two arms
        reward *= 0.5 + 0.5 * torch.rand(reward.shape, generator=random, dtype=torch.float64)
    correct = (reward >= threshold).sum(1, keepdim=True).double()
    own = {
        "advantages": objective.advantage(reward, correct).reshape(-1)[:STEP],
        "group_correct": correct.expand_as(reward).reshape(-1)[:STEP],
    }
    known = {key: value for key, value in inputs.items() if key not in ("reward_seed", "shaped")}
    return loss_and_gradient(trainer, Trainer._compute_loss, known | own)[1]


# The trainer of this test has groups of 4 in 2 minibatches, completions of up to 8 tokens: some cases are of others.
ELSEWHERE = {
    "gapo_matched at its own mean", "scales of one prompt", "scales of the batch", "a branch with a new optimizer",
    "an arm with several updates",
}  # fmt: skip
PROVED = [
    case
    for case in CASES
    if load(config(case) | {"analysis": {"allow_unreachable": True}}).resolved(last_two(case)[1]).objective
    != load(config(case) | {"analysis": {"allow_unreachable": True}}).resolved(last_two(case)[0]).objective
    and "one minibatch" not in case.title
    and "of one token" not in case.title
    and "mean_correct" not in str(case.arms)
    and "float32" not in case.title
    and "vLLM" not in case.title
    and case.title not in ELSEWHERE
]


@pytest.mark.parametrize("case", PROVED, ids=lambda case: case.title)
def test_the_trainer_agrees(exact: Trainer, case: Case) -> None:  # noqa: F811
    """Gradients of all weights are equal where the study is refused, and differ where it is not."""
    study = load(config(case) | {"analysis": {"allow_unreachable": True}})
    arms = [study.resolved(name) for name in last_two(case)]
    seeds = range(3) if case.because else range(200)  # what differs rarely is found among more rollouts
    for seed in seeds:
        inputs = rollouts(exact, seed, at_one=arms[0].updates_per_batch == 1) | {"reward_seed": seed}
        if ":" in study.training.reward:
            inputs["shaped"] = True
        found = [gradient(exact, arm.objective, inputs, arm.training.success_threshold or 1.0) for arm in arms]
        largest = found[0].abs().max().item()
        if not torch.allclose(*found, rtol=1e-9, atol=1e-10 * largest):
            assert case.because is None
            return
    assert case.because is not None


# --- what is asked before torch is imported ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_bounds_in_plain_numbers_are_those_of_the_policies(name: str) -> None:
    for size in (3, 8, 16):
        own = keys("bounds", name, {"mean_correct": 2.5})
        for correct in range(1, size):
            where = group([0.5, -0.5], [correct] * 2, size)
            found = getattr(bounds, name)(where, **own)
            plain = static_gate._plain_bounds({"bounds": name, **own}, correct, size)
            if plain is None:
                continue  # a policy added later: its function is asked
            limits = [*(side[0].item() for side in (found.lower, found.upper)),
                      *(side[1].item() for side in (found.lower, found.upper))]  # fmt: skip
            assert [max(limit, 0.0) for limit in limits] == pytest.approx([max(limit, 0.0) for limit in plain])


def test_every_policy_of_today_is_known_in_plain_numbers() -> None:
    """One that is not is no fault, but makes reading a study slower."""
    known = [name for name in POLICIES if static_gate._plain_bounds({"bounds": name, **keys("bounds", name)}, 2, 8)]
    assert known == POLICIES


@pytest.mark.parametrize("updates", [1, 4])
def test_arithmetic_never_tells_apart_what_is_equal(updates: int) -> None:
    """Over all pairs of the zoo's arms: where the quick answer is that they differ, the gradients do."""
    from workflow_scripts.study.equal_gradients import equal

    study = load(BASE)
    setting = Setting(8, 32, 2 if updates > 1 else 1, updates, 32, True, "transformers")
    objectives = [study.resolved(arm).objective for arm in study.arms]
    quick = 0
    for one, other in combinations(objectives, 2):
        if certainly_differ(one, other, setting):
            quick += 1
            assert not equal(one, other, setting, (1.0, 1.0)), (one, other)
    assert quick == math.comb(len(objectives), 2) or updates == 1


def test_reading_the_studies_imports_no_torch() -> None:
    script = (
        "import sys, yaml; from workflow_scripts.study import load;"
        "[load(yaml.safe_load(open(path, encoding='utf-8'))) for path in sys.argv[1:]];"
        "assert not {'torch', 'numpy'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", script, *map(str, STUDIES)], check=True, cwd=ROOT)


def test_fields_without_effect_are_fields_of_trl() -> None:
    assert not _WITHOUT_EFFECT - _trainer_fields().keys()


def test_fields_that_reach_the_weights() -> None:
    given = {
        "logging_first_step": True,
        "weight_decay": 0.0,
        "adam_beta2": 0.95,
        "vllm_importance_sampling_clip_max": 3.0,
    }
    assert reaching_the_weights(given, "transformers") == {"adam_beta2": 0.95}
    assert reaching_the_weights(given, "vllm") == {"adam_beta2": 0.95, "vllm_importance_sampling_clip_max": 3.0}


def test_a_logging_field_is_no_difference_beside_bounds() -> None:
    """Decisive tokens are counted between arms that differ only in bounds."""
    logs = Case("", FOUR, pair(D, eps_high=0.4, training={"trl": {"log_completions": True}}), None)
    decays = Case("", FOUR, pair(D, eps_high=0.4, training={"trl": {"weight_decay": 0.1}}), None)
    assert load(config(logs)).only_bounds("b", "a") and not load(config(decays)).only_bounds("b", "a")


def test_the_baseline_is_never_the_arm_to_change() -> None:
    """Wherever it stands among the arms."""
    study = config(Case("", ONE, {"b": {**D, "eps_high": 0.4}, "c": {"preset": "grpo"}, "a": D}, None))
    with pytest.raises(StudyFaults) as caught:
        load(study | {"baseline": "a"})
    (line,) = caught.value.lines
    assert line.startswith("arms.b.eps_high: 0.4: this arm cannot differ from a: ")
