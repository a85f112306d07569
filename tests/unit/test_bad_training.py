"""Rewards, ratios and completions that are not as they should be: a clear error, or what is defined for them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import training_run
from training_run import PPO, Run, half_right
from transformers import Gemma3Config, MixtralConfig, MixtralForCausalLM, OPTConfig, OPTForCausalLM
from trl import GRPOTrainer

from workflow_scripts.analysis import dynamics
from workflow_scripts.launch import sources
from workflow_scripts.models import weights
from workflow_scripts.objectives import advantage, bounds
from workflow_scripts.training import TESTED_TRL, callbacks, trainer
from workflow_scripts.training.errors import TrainingError

GAPO = {key: value for key, value in PPO.items() if key != "eps_high"} | {"bounds": "gapo", "eps_high_max": 0.28}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_reward_that_is_no_number_stops_the_run(bad: float, tmp_path: Path) -> None:
    def second_batch_is_bad(completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
        rewards = half_right(completions)
        return [*rewards[:5], bad, *rewards[6:]] if trainer_state.global_step == 4 else rewards

    with pytest.raises(TrainingError, match=rf"training.reward: rollout 5 of batch 1 has reward \[{bad}\]"):
        Run(tmp_path, reward=second_batch_is_bad).train()


class FarFromOld(trainer.Trainer):
    """From step 3 on, one rollout was drawn by a policy to which its tokens were all but impossible."""

    shift = -100.0

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        old = inputs["old_per_token_logps"].clone()
        if self.state.global_step >= 2:
            old[1] += self.shift
        return super()._compute_loss(model, {**inputs, "old_per_token_logps": old})


@pytest.mark.parametrize("shift", [-100.0, float("nan")])
@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_a_ratio_that_is_no_number_is_named_before_the_optimizer_moves(
    ratio: str, shift: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FarFromOld, "shift", shift)
    run = Run(tmp_path, {**PPO, "ratio": ratio}, kind=FarFromOld)
    said = r"importance ratio is not finite at step 3: rollout \d of prompt \d in batch 0, update 2 of it"
    with pytest.raises(TrainingError, match=said):
        run.train()
    assert run.trainer.state.global_step == 2
    assert all(torch.isfinite(parameter).all() for parameter in run.trainer.model.parameters())


def test_completions_that_are_all_cut_off_and_masked_teach_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(training_run.ROLLOUT, "max_completion", 1)
    run = Run(tmp_path, mask_truncated=True, seed=3)  # no completion ends with its first token
    before = run.weights
    records = run.train().records()
    assert all(row["truncated"] and row["completion_tokens"] == 1 for row in records["rollouts"])
    assert any(row["advantage"] for row in records["rollouts"])  # rewards and counts are of what was written
    for row in records["rollout_updates"]:
        assert row["completion_tokens"] == row["clipped_upper_tokens"] == row["clipped_lower_tokens"] == 0
        assert row["mean_log_ratio"] == row["sum_abs_ratio_deviation"] == row["sum_entropy"] == 0
    assert run.weights == before


def test_truncated_completions_count_in_their_group_and_not_in_the_loss(tmp_path: Path) -> None:
    masked, whole = (Run(tmp_path / str(m), mask_truncated=m).train().records() for m in (True, False))
    first = [[r for r in records["rollouts"] if r["batch"] == 0] for records in (masked, whole)]
    for mine, theirs in zip(*first, strict=True):  # what is masked carries no loss, and its tokens count for no bound
        kept, drawn = mine.pop("old_log_prob"), theirs.pop("old_log_prob")
        assert kept == ([] if mine["truncated"] else drawn) and len(drawn) == theirs["completion_tokens"]
    assert first[0] == first[1] and {row["truncated"] for row in first[0]} == {True, False}
    for row, other in zip(masked["rollout_updates"], whole["rollout_updates"], strict=True):
        if row["step"] == 1:
            assert row["completion_tokens"] == (0 if row["truncated"] else other["completion_tokens"])
            assert row["group_correct"] == other["group_correct"] and row["advantage"] == other["advantage"]


def test_a_masked_completion_has_a_length_and_no_ratio(tmp_path: Path) -> None:
    run = Run(tmp_path, mask_truncated=True).train()
    folder = tmp_path / "kept"
    folder.mkdir()
    run.recorder.save(folder)
    records = run.records()
    updates = pd.DataFrame(records["rollout_updates"])
    found = dynamics.summarise(updates, dynamics.read_rollouts(str(folder / "rollouts.parquet")))
    lengths = {(r["batch"], r["prompt_position"], r["rollout"]): r["completion_tokens"] for r in records["rollouts"]}
    longer: list[bool] = []
    for row in found[found["group_correct"].isna()].itertuples():
        rows = updates[updates["step"] == row.step]
        whole = [
            lengths[key] for key in rows[["batch", "prompt_position", "rollout"]].itertuples(index=False, name=None)
        ]
        assert row.mean_completion_tokens == pytest.approx(np.mean(whole))
        longer.append(row.mean_completion_tokens > rows["completion_tokens"].mean())
        told = rows[rows["completion_tokens"] > 0]
        deviation = (told["sum_abs_ratio_deviation"] / told["completion_tokens"]).mean()
        assert row.mean_abs_ratio_deviation == pytest.approx(deviation, nan_ok=True)
    assert any(longer)


@pytest.mark.parametrize("kl", ["k3", "k3_importance"])
def test_the_kl_is_logged_as_trl_has_it(kl: str, tmp_path: Path) -> None:
    runs = [Run(tmp_path / str(n), {**PPO, "kl": kl}, beta=0.1, micro_batch=n).train() for n in (2, 8)]
    logs = [[e["kl"] for e in run.trainer.state.log_history if "kl" in e] for run in runs]
    assert logs[0] == pytest.approx(logs[1], rel=1e-3, abs=1e-7) and len(logs[0]) == 8
    assert logs[0][0] == 0 and logs[0][-1] > 1e-3
    assert not any("kl" in entry for entry in Run(tmp_path / "none").train().trainer.state.log_history)


def test_flat_groups_are_logged_as_they_are(tmp_path: Path) -> None:
    run = Run(tmp_path, reward=lambda completions, **_: [0.3] * len(completions)).train()
    assert {e["frac_reward_zero_std"] for e in run.trainer.state.log_history if "reward" in e} == {1.0}


async def fails_later(**_: Any) -> list[float]:
    raise KeyError("later")


BAD_REWARDS = {
    "none": (lambda **_: None, "TypeError: 'NoneType' object is not iterable"),
    "text": (lambda completions, **_: completions, "ValueError: could not convert string to float"),
    "short": (lambda **_: [1.0], "returned 1 rewards for 16 completions"),
    "raises": (lambda **_: {}["boom"], "KeyError: 'boom'"),
    "signature": (lambda texts: [1.0], "TypeError: "),
    "waits": (fails_later, "KeyError: 'later'"),
}


@pytest.mark.parametrize("name", BAD_REWARDS)
def test_what_a_reward_function_does_wrong_is_one_line(name: str, tmp_path: Path) -> None:
    reward, said = BAD_REWARDS[name]
    with pytest.raises(TrainingError) as caught:
        Run(tmp_path, reward=reward).train()
    assert str(caught.value).startswith(f"training.reward: {reward.__name__}: {said}") and "\n" not in str(caught.value)


def nan_width(group: bounds.Group) -> bounds.Bounds:
    return bounds.ppo(group, eps_low=float("nan"), eps_high=0.2)


def flat_width(group: bounds.Group) -> bounds.Bounds:
    found = bounds.ppo(group, eps_low=0.2, eps_high=0.2)
    return bounds.Bounds(found.lower[:, 0], found.upper)


def no_bounds(group: bounds.Group) -> tuple[float, float]:
    return 0.8, 1.2


def fails(group: bounds.Group) -> bounds.Bounds:
    raise KeyError("eps")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (nan_width, "nan_width: a bound is nan"),
        (flat_width, r"flat_width: lower is \(4,\), not \(4,1\) or \(4,\d\)"),
        (no_bounds, "no_bounds: returned tuple, not Bounds"),
        (fails, "fails: KeyError: 'eps'"),
    ],
)
def test_a_clip_policy_that_is_none_is_named(policy: Any, said: str, tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.trainer.objective = replace(run.trainer.objective, bounds=policy)
    with pytest.raises(TrainingError, match=f"clip policy {said}"):
        run.train()


def test_empty_completions_have_no_part_in_ratio_and_loss() -> None:
    log_ratio, mask = torch.tensor([[0.3, 0.1], [5.0, 5.0]]), torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    objective = training_run.setup.make_objective({**PPO, "ratio": "sequence"}, 0.0)
    assert objective.log_ratio(log_ratio, mask)[:, 0].tolist() == pytest.approx([0.2, 0.0])
    step = trainer.Step(torch.tensor(2.0), torch.tensor(2.0), 1, 2, 8)
    for name in ("token-mean", "token-mean-step", "seq-mean-token-mean", "seq-mean-token-sum-norm"):
        made = training_run.setup.make_objective({**PPO, "aggregation": name}, 0.0)
        both, alone = (made.aggregate(torch.full((2, 2), loss), mask, step) for loss in (1.0, 1.0))
        assert torch.isfinite(both) and both == alone == made.aggregate(torch.tensor([[1.0, 1.0], [9, 9]]), mask, step)


def test_success_comes_from_the_threshold_not_from_the_sign_of_the_advantage(tmp_path: Path) -> None:
    """A shaped reward, of which at least .4 is a success."""

    def shaped(completions: list[str], **_: Any) -> list[float]:
        return [(len(text) % 8) / 8 for text in completions]

    records = Run(tmp_path, GAPO, reward=shaped, success_threshold=0.4).train().records()
    rollouts = records["rollouts"]
    groups: dict[tuple[int, int], list[dict]] = {}
    for row in rollouts:
        groups.setdefault((row["batch"], row["prompt_position"]), []).append(row)
    for rows in groups.values():
        assert {row["group_correct"] for row in rows} == {sum(row["reward"] >= 0.4 for row in rows)}
    assert any(row["success"] and row["advantage"] < 0 for row in rollouts)
    assert any(not row["success"] and row["advantage"] > 0 for row in rollouts)
    seen = set()
    for row in records["rollout_updates"]:
        if row["advantage"] > 0:
            correct = max(row["group_correct"], 1)  # no success: the ceiling, not beyond it
            assert row["upper_bound"] == pytest.approx(1.2 + 0.08 * (4 - correct) / 3)
            seen.add(row["group_correct"])
    assert {0, 4} & seen  # groups that rewards of 0 and 1 would leave without an advantage


@pytest.mark.parametrize("scale", ["none", "group", "batch"])
def test_groups_of_one_reward_teach_nothing_whatever_it_is(scale: str, tmp_path: Path) -> None:
    """The mean of 8 times 0.3 is not 0.3 in float32, and Adam makes whole steps of what is left."""
    run = Run(
        tmp_path, {**PPO, "advantage": {"scale": scale}}, reward=lambda completions, **_: [0.3] * len(completions)
    )
    before = run.weights
    records = run.train().records()
    assert {row["advantage"] for row in records["rollouts"]} == {0.0}
    assert run.weights == before
    for size, value in ((7, 0.1), (8, 0.3), (8, 0.7), (7, 0.9)):
        assert not getattr(advantage, scale)(torch.full((3, size), value)).any()


def test_a_completion_without_a_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = trainer.sample

    def one_empty(*args: Any, **kwargs: Any) -> Any:
        drawn = real(*args, **kwargs)
        return [*drawn[:6], replace(drawn[6], token_ids=[]), *drawn[7:]]

    monkeypatch.setattr(trainer, "sample", one_empty)
    with pytest.raises(TrainingError, match="rollout 2 of prompt 1 in batch 0 is empty: no token was drawn"):
        Run(tmp_path).train()


@pytest.mark.parametrize("shape", [(4,), (4, 1), (2, 2, 2)])
def test_advantages_are_of_groups(shape: tuple[int, ...]) -> None:
    for scale in (advantage.none, advantage.group, advantage.batch):
        with pytest.raises(ValueError, match=r"rewards are \(G,k\), groups of k >= 2 rollouts"):
            scale(torch.zeros(shape))
        with pytest.raises(ValueError, match="rewards are finite, not nan"):
            scale(torch.tensor([[1.0, float("nan")]]))


def test_a_group_for_bounds_has_its_shapes() -> None:
    column, tokens = torch.zeros(3, 1), torch.zeros(3, 5)
    bounds.Group(column, column, 8, tokens)
    for wrong in ((column[:, 0], column, 8, tokens), (column, column[:2], 8, tokens), (column, column, 8, tokens[0])):
        with pytest.raises(ValueError, match=r"is|are"):
            bounds.Group(*wrong)
    with pytest.raises(ValueError, match="a group has at least 2 rollouts, not 1"):
        bounds.Group(column, column, 1, tokens)


def test_another_trl_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sources.other_trl() == []
    for module in (sources, trainer):
        monkeypatch.setattr(module, "TESTED_TRL", "1.15.0")
    assert sources.other_trl() == [f"trl: {TESTED_TRL} is here; the trainer is tested with 1.15.0 alone"]
    with pytest.raises(TrainingError, match=f"trl {TESTED_TRL} is installed; the trainer is tested with 1.15.0 alone"):
        Run(tmp_path)


@pytest.mark.parametrize("optimizer", ["carry", "reset"])
def test_a_branch_starts_from_the_weights_of_its_parent(optimizer: str, tmp_path: Path) -> None:
    parent = Run(tmp_path / "parent", branches=(4,)).train()
    assert list(parent.keeper.weights) == ["0", "4", "8"] and len(set(parent.keeper.weights.values())) == 3
    branch = Run(tmp_path / optimizer, GAPO)
    folder = callbacks.unpack(parent.state.branch_state(4), tmp_path / optimizer / "branch", optimizer)
    assert (folder / "optimizer.pt").exists() == (optimizer == "carry")
    branch.train(folder)
    assert branch.keeper.weights["4"] == parent.keeper.weights["4"]
    assert branch.weights != parent.weights
    steps = {row["step"] for row in branch.records()["rollout_updates"]}
    assert steps == {5, 6, 7, 8}
    mine, theirs = (
        [(r["problem_id"], r["completion"]) for r in run.records()["rollouts"] if r["batch"] == 1]
        for run in (branch, parent)
    )
    assert mine == theirs  # the same prompts and streams, drawn by the same weights


def test_a_branch_that_carries_the_optimizer_without_another_change_is_its_parent(tmp_path: Path) -> None:
    parent = Run(tmp_path / "parent", branches=(4,)).train()
    for optimizer, equal in (("carry", True), ("reset", False)):
        branch = Run(tmp_path / optimizer)
        branch.train(callbacks.unpack(parent.state.branch_state(4), tmp_path / optimizer / "branch", optimizer))
        assert (branch.weights == parent.weights) is equal


def opt_with_dropout(tokenizer: Any, seed: int) -> OPTForCausalLM:
    """It drops as a function, which no search for dropout modules finds."""
    torch.manual_seed(seed)
    config = OPTConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, ffn_dim=64, num_attention_heads=2, dropout=0.5,
        attention_dropout=0.5, layerdrop=0.5, word_embed_proj_dim=32, max_position_embeddings=128,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    return OPTForCausalLM(config)


def test_dropout_of_a_models_configuration_is_off(tmp_path: Path) -> None:
    updates = Run(tmp_path, base=opt_with_dropout).train().records()["rollout_updates"]
    first = [row["sum_abs_ratio_deviation"] / row["completion_tokens"] for row in updates if row["update_index"] == 0]
    assert max(first) < 1e-5
    assert any(row["sum_abs_ratio_deviation"] > 0.01 for row in updates if row["update_index"])


def test_rates_below_the_top_of_a_configuration_are_off_too() -> None:
    config = Gemma3Config(text_config={"attention_dropout": 0.1})
    config.router_jitter_noise = 0.01
    weights._drop_nothing(config)
    assert config.text_config.attention_dropout == 0.0 and config.router_jitter_noise == 0.0


def experts(tokenizer: Any, seed: int) -> MixtralForCausalLM:
    """A mixture of experts, whose routers have a loss of their own."""
    torch.manual_seed(seed)
    config = MixtralConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, intermediate_size=32, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=4, router_aux_loss_coef=0.5, output_router_logits=True,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    return MixtralForCausalLM(config)


class BesideTRL(trainer.Trainer):
    """Computes each loss with TRL's code too."""

    pairs: list[tuple[float, float]]

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        ours = super()._compute_loss(model, inputs)
        self.pairs.append((ours.item(), GRPOTrainer._compute_loss(self, model, inputs).item()))
        return ours


def test_the_routers_of_a_mixture_of_experts_keep_their_loss(tmp_path: Path) -> None:
    run = Run(tmp_path, base=experts, kind=BesideTRL)
    run.trainer.pairs, run.trainer.epsilon_high = [], 0.28
    run.train()
    assert run.trainer.aux_loss_enabled and len(run.trainer.pairs) == 16
    for ours, theirs in run.trainer.pairs:
        assert ours == pytest.approx(theirs, rel=1e-5)
    assert min(ours for ours, _ in run.trainer.pairs) > 0.2  # about .5 times the routers' 1, in halves of a step


def test_dcpo_of_a_token_that_was_all_but_impossible() -> None:
    column = torch.tensor([[1.0], [-1.0]])
    for eps_low, eps_high, lower, upper in ((0.0, 0.0, 1.0, 1.0), (0.16, 0.2, 0.5, 10.0)):
        group = bounds.Group(column, column.abs(), 8, torch.full((2, 1), -200.0))  # its probability is 0 in float32
        found = bounds.dcpo(group, eps_low=eps_low, eps_high=eps_high)
        assert (found.upper[0].item(), found.lower[1].item()) == (upper, lower)
