"""The trainer: its random streams, its records, its memory, and what a resumed run comes to."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from training_run import LORA, PPO, ROLLOUT, TRAINING, Run, half_right
from trl import GRPOTrainer
from trl.trainer import utils as trl_utils

from workflow_scripts import tables
from workflow_scripts.benchmarks import word_problems
from workflow_scripts.models import warm_start, weights
from workflow_scripts.training import memory, setup
from workflow_scripts.training.state import StateFolder, weights_hash
from workflow_scripts.training.trainer import Trainer, TrainingError


def test_equal_seeds_give_equal_weights_and_records_and_others_do_not(tmp_path: Path) -> None:
    first, again, other = (Run(tmp_path / n, seed=s).train() for n, s in (("a", 0), ("b", 0), ("c", 1)))
    assert first.weights == again.weights != other.weights
    assert first.records() == again.records()
    assert first.keeper.manifest == again.keeper.manifest


def test_records_say_what_happened(tmp_path: Path) -> None:
    records = Run(tmp_path).train().records()
    rollouts, updates = records["rollouts"], records["rollout_updates"]
    assert len(rollouts) == 2 * 16 and len(updates) == 8 * 8
    for row in rollouts:
        group = [r for r in rollouts if (r["batch"], r["prompt_position"]) == (row["batch"], row["prompt_position"])]
        assert len({r["problem_id"] for r in group}) == 1
        assert row["group_correct"] == sum(r["success"] for r in group)
        assert row["reward"] == half_right([row["completion"]])[0]
        assert row["advantage"] == pytest.approx(row["reward"] - row["group_correct"] / 4)
    drawn = {(r["batch"], r["prompt_position"], r["rollout"]): r for r in rollouts}
    for row in updates:
        rollout = drawn[row["batch"], row["prompt_position"], row["rollout"]]
        assert all(row[key] == rollout[key] for key in ("reward", "advantage", "group_correct", "truncated"))
        assert row["step"] == row["batch"] * 4 + row["update_index"] + 1
        assert (row["epoch"], row["minibatch"]) == divmod(row["update_index"], 2)
        assert row["upper_bound"] == (pytest.approx(1.28) if row["advantage"] > 0 else None)
        if row["update_index"] == 0:
            assert row["sum_abs_ratio_deviation"] == row["clipped_upper_tokens"] == row["clipped_lower_tokens"] == 0
    assert any(row["sum_abs_ratio_deviation"] > 0 for row in updates)
    assert any(row["clipped_upper_tokens"] > 0 for row in updates)  # the learning rate is high
    by_batch = [
        sorted((r["prompt_position"], r["rollout"]) for r in updates if r["step"] in (s, s + 1)) for s in (1, 3)
    ]
    assert by_batch[0] == by_batch[1] == sorted((p, r) for p in range(4) for r in range(4))
    assert {abs(row["log_ratio"]) > tables.TAIL_LOG_RATIO for row in records["tail_tokens"]} == {True}


def test_the_split_into_micro_batches_changes_neither_records_nor_course(tmp_path: Path) -> None:
    small, large = Run(tmp_path / "a", micro_batch=2).train(), Run(tmp_path / "b", micro_batch=8).train()
    assert [r["completion"] for r in small.records()["rollouts"]] == [
        r["completion"] for r in large.records()["rollouts"]
    ]
    for one, other in zip(small.records()["rollout_updates"], large.records()["rollout_updates"], strict=True):
        for key, value in one.items():
            assert value == (pytest.approx(other[key], rel=1e-3, abs=1e-4) if isinstance(value, float) else other[key])


class Everything(Trainer):
    """Sends every rollout through the backward pass."""

    def _log_probs(self, model: Any, inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        return super()._log_probs(model, inputs | {"advantages": torch.ones_like(inputs["advantages"])})


def rarely_right(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
    """Groups of every second prompt get the same reward throughout."""
    return [float(len(text) % 2 == 0 or len(p) % 2) for p, text in zip(prompts, completions, strict=True)]


def test_rollouts_without_advantage_are_recorded_without_a_backward_pass(tmp_path: Path) -> None:
    # SGD: Adam would make of a rounding error a step of the size of the learning rate
    sgd = {"learning_rate": 0.1, "trl": {"optim": "sgd"}}
    one, other = (Run(tmp_path / k.__name__, kind=k, reward=rarely_right, **sgd) for k in (Trainer, Everything))
    rows: list[int] = []
    forward = one.trainer.model.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            rows.append(len(kwargs["input_ids"]))
        return forward(*args, **kwargs)

    one.trainer.model.forward = counted
    one.train(), other.train()
    updates = one.records()["rollout_updates"]
    flat = sum(row["advantage"] == 0 for row in updates)
    assert 0.2 * len(updates) < flat and sum(rows) < len(updates) - flat / 2
    for mine, theirs in zip(updates, other.records()["rollout_updates"], strict=True):
        for key, value in mine.items():
            assert value == (
                pytest.approx(theirs[key], rel=1e-3, abs=1e-5) if isinstance(value, float) else theirs[key]
            )
    for mine, theirs in zip(one.trainer.model.parameters(), other.trainer.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)


def test_arms_with_the_same_seed_see_the_same_prompts_and_first_rollouts(tmp_path: Path) -> None:
    gapo = {key: value for key, value in PPO.items() if key != "eps_high"} | {"bounds": "gapo", "eps_high_max": 0.25}
    one, other = Run(tmp_path / "a").train().records(), Run(tmp_path / "b", gapo).train().records()
    same = ("problem_id", "completion", "reward")
    first = [[{k: r[k] for k in same} for r in records["rollouts"] if r["batch"] == 0] for records in (one, other)]
    assert first[0] == first[1]
    problems = [[r["problem_id"] for r in records["rollouts"]] for records in (one, other)]
    assert problems[0] == problems[1]


@pytest.mark.parametrize("adapter", [None, LORA], ids=["full", "lora"])
def test_a_resumed_run_equals_an_undisturbed_one(adapter: dict[str, Any] | None, tmp_path: Path) -> None:
    whole = Run(tmp_path / "whole", adapter=adapter).train()
    half = Run(tmp_path / "cut", adapter=adapter, steps=4, checkpoints=[4]).train()
    saved = half.state.newest(8, [4, 8], [], half.folder)
    assert saved is not None and saved[1]["step"] == 4
    rest = Run(tmp_path / "cut", adapter=adapter)
    rest.recorder.load(saved[0])
    rest.keeper.manifest = saved[1]["checkpoints"]
    rest.train(saved[0])
    assert rest.weights == whole.weights
    assert rest.records() == whole.records()
    assert rest.keeper.manifest == whole.keeper.manifest


def test_a_state_is_refused_when_it_is_another_runs_or_half_written_or_lost_its_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path, steps=4, checkpoints=[4]).train()
    assert run.state.newest(8, [4], [], tmp_path) is not None
    assert StateFolder(tmp_path / "state", "b").newest(8, [4], [], tmp_path) is None
    assert run.state.newest(8, [4], [4], tmp_path) is None  # no branch state was left there
    assert (
        run.state.newest(8, [2, 4], [], tmp_path) is None
    )  # a checkpoint is asked for that the saved run did not keep
    weights = tmp_path / "checkpoints" / "step-4" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    assert run.state.newest(8, [4], [], tmp_path) is None
    weights.write_bytes(content)
    (run.state.folder / "checkpoint-4" / "state.json").unlink()
    assert run.state.newest(8, [4], [], tmp_path) is None


def test_equal_states_for_branches_are_equal_files(tmp_path: Path) -> None:
    one, other = (
        Run(tmp_path / name, micro_batch=micro_batch, steps=4, checkpoints=[4], branches=(4,)).train()
        for name, micro_batch in (("a", 8), ("b", 8))
    )
    packed = one.state.branch_state(4).read_bytes()
    assert packed == other.state.branch_state(4).read_bytes()
    assert str(tmp_path).encode() not in packed
    assert one.state.newest(8, [4], [4], one.folder) is not None


def test_lora_checkpoints_hold_the_adapter_alone_and_are_equal_files(tmp_path: Path) -> None:
    one, other = (Run(tmp_path / name, adapter=LORA).train() for name in "ab")
    assert one.keeper.manifest == other.keeper.manifest
    assert {Path(row["file"]).name for row in one.keeper.manifest} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    text = (one.folder / "checkpoints" / "step-8" / "adapter_config.json").read_text()
    assert str(tmp_path) not in text and '"base"' in text
    base, _ = weights.load_base(one.folder / "base", "float32")
    before = weights_hash(base, trainable=True)
    loaded = weights.load_checkpoint(base, one.folder / "checkpoints" / "step-8", "float32")
    assert weights_hash(weights.load_base(one.folder / "base", "float32")[0], trainable=True) == before
    ids = torch.tensor([[5, 6, 7]])
    torch.testing.assert_close(loaded(ids).logits, one.trainer.model.eval()(ids).logits)


@pytest.mark.parametrize("adapter", [None, LORA], ids=["full", "lora"])
def test_gradient_checkpointing_changes_nothing_but_memory(adapter: dict[str, Any] | None, tmp_path: Path) -> None:
    plain = Run(tmp_path / "plain", adapter=adapter).train()
    run = Run(tmp_path / "checkpointed", adapter=adapter, compute={"gradient_checkpointing": True})
    calls = []
    layer = run.trainer.model.get_base_model().model.layers[0] if adapter else run.trainer.model.model.layers[0]
    layer.mlp.register_forward_pre_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    run.train()
    assert sum(calls) == 2 * 8 * 2  # each of 8 steps has two micro-batches, and each is computed twice
    assert run.records() == plain.records()
    assert run.weights == plain.weights


class LargestTensor(TorchDispatchMode):
    """Notes the most numbers that one result of an operation held."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and function is not torch.ops.aten._reshape_alias.default:
            self.largest = max(self.largest, out.untyped_storage().nbytes() // out.element_size())
        return out


def test_no_logits_of_a_whole_micro_batch_are_ever_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for the old and the reference policy nor in training, forward and backward; with tiles in the proportion
    to this vocabulary that TRL's have to a large one."""
    monkeypatch.setattr(trl_utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", 1000)
    run = Run(tmp_path, micro_batch=8, steps=4, checkpoints=[4], beta=0.05, words=5000)
    trainer, seen, shapes = run.trainer, [], []
    whole = trainer._get_per_token_logps_and_entropies

    def noted(model: Any, ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        shapes.append((kwargs.get("batch_size") or len(ids), ids.shape[1]))
        return whole(model, ids, *args, **kwargs)

    monkeypatch.setattr(trainer, "_get_per_token_logps_and_entropies", noted)
    step = GRPOTrainer.training_step

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        with LargestTensor() as mode:
            result = step(self, *args, **kwargs)
        seen.append(mode.largest)
        return result

    monkeypatch.setattr(GRPOTrainer, "training_step", watched)
    run.train()
    rollouts, tokens = shapes[0]
    assert {count for count, _ in shapes} == {rollouts} == {8}  # of the 16 of a batch
    assert max(seen) < rollouts * tokens * trainer.model.config.vocab_size / 3


def test_updates_too_small_for_bfloat16_are_not_lost(tmp_path: Path) -> None:
    """Half a unit in the last place of bfloat16 is 2e-3 of a weight; the usual learning rates move it by 1e-6."""
    run = Run(tmp_path, dtype="bfloat16", learning_rate=1e-6)
    before = {name: value.detach().clone() for name, value in run.trainer.model.named_parameters()}
    kinds = set()
    run.trainer.model.model.layers[0].mlp.down_proj.register_forward_hook(lambda *a: kinds.add(a[2].dtype))
    run.train()
    after = dict(run.trainer.model.named_parameters())
    moved = torch.cat([(after[name] != value).flatten() for name, value in before.items()])
    assert moved.float().mean() > 0.9
    assert {value.dtype for value in after.values()} == {torch.float32}
    assert kinds == {torch.bfloat16}  # rollouts as well as training
    update = run.records()["rollout_updates"][0]
    assert update["sum_abs_ratio_deviation"] == 0


def test_under_an_adapter_the_base_is_bfloat16_and_the_adapter_float32(tmp_path: Path) -> None:
    run = Run(tmp_path, dtype="bfloat16", adapter=LORA, learning_rate=1e-6)
    frozen = weights_hash(run.trainer.model, trainable=False)
    before = run.weights
    run.train()
    kinds = {(parameter.requires_grad, parameter.dtype) for parameter in run.trainer.model.parameters()}
    assert kinds == {(True, torch.float32), (False, torch.bfloat16)}
    assert run.weights != before and weights_hash(run.trainer.model, trainable=False) == frozen


def test_the_micro_batch_is_estimated_from_memory(tmp_path: Path) -> None:
    """The estimate of what a token keeps, against what autograd does keep."""
    tokenizer = warm_start.word_tokenizer(word_problems.vocabulary())
    model = warm_start.small_llama(tokenizer, seed=0)
    ids = torch.randint(3, model.config.vocab_size, (4, 50))
    kept: dict[int, int] = {}
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def pack(value: torch.Tensor) -> torch.Tensor:
        if value.untyped_storage().data_ptr() not in weights:
            kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    measured = sum(kept.values()) / ids.numel()
    del hidden
    estimate = memory.activations(model, 4, checkpointing=False)
    assert measured < estimate < 2 * measured
    assert memory.activations(model, 4, checkpointing=True) < estimate
    plain = {"tokens": 500, "compute_bytes": 4, "adapter": False, "copies": 1, "reference": True}
    plenty, scarce = (
        [memory.rollouts_at_once(model, available=size, checkpointing=saving, **plain) for saving in (False, True)]
        for size in (10**9, 10**8)
    )
    assert 1 < plenty[0] < plenty[1]
    assert scarce == [1, 1]


def test_of_a_shipped_generation_config_only_special_tokens_stay(tmp_path: Path) -> None:
    tokenizer = warm_start.word_tokenizer(word_problems.vocabulary())
    model = warm_start.small_llama(tokenizer, seed=0)
    model.generation_config.repetition_penalty = 1.3
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded, _ = weights.load_base(tmp_path, "float32")
    assert loaded.generation_config.repetition_penalty in (None, 1.0)
    assert loaded.generation_config.eos_token_id == tokenizer.eos_token_id


def test_a_reward_that_is_no_number_stops_the_run(tmp_path: Path) -> None:
    def broken(completions: list[str], **_: Any) -> list[float]:
        return [float("nan")] * len(completions)

    with pytest.raises(TrainingError, match=r"training.reward: rollout 0 of batch 0"):
        Run(tmp_path, reward=broken).train()


def test_batch_arguments_of_trl() -> None:
    plan = setup.rollout_plan({"rollout": ROLLOUT, "training": TRAINING, "model": {"prompt_family": "plain"}})
    arguments = replace(plan, prompts=6, group_size=8, minibatches=2).trl_arguments(micro_batch=10, processes=1)
    assert arguments["per_device_train_batch_size"] == 8  # of 24 rollouts, the largest divisor not above 10
    assert arguments["gradient_accumulation_steps"] == 3 and arguments["steps_per_generation"] == 6
    shared = replace(plan, prompts=6, group_size=8, minibatches=2).trl_arguments(micro_batch=64, processes=2)
    assert shared["per_device_train_batch_size"] == 12 and shared["gradient_accumulation_steps"] == 1


def test_prompt_order_uses_every_row_once_per_pass() -> None:
    order = setup.prompt_order(rows=10, prompts=3, batches=7, seed=5)
    assert len(set(order[:9])) == 9 and len(set(order[9:18])) == 9 and len(order) == 21
    assert order == setup.prompt_order(10, 3, 9, 5)[:21]  # more steps go on where fewer ended
    assert order != setup.prompt_order(10, 3, 7, 6)


def test_progress_says_what_the_clip_stopped_where_it_could(tmp_path: Path) -> None:
    run = Run(tmp_path).train()
    said = json.loads((run.state.run / "progress.json").read_text())
    updates = [row for row in run.records()["rollout_updates"] if row["update_index"] and row["step"] < 8]
    steps = {row["step"] for row in updates}  # the last step is logged after its progress is told
    shares = [
        sum(row["clipped_upper_tokens"] + row["clipped_lower_tokens"] for row in updates if row["step"] == step)
        / sum(row["completion_tokens"] for row in updates if row["step"] == step)
        for step in steps
    ]
    assert said["clipped"] == pytest.approx(sum(shares) / len(shares)) and said["clipped"] > 0.01
