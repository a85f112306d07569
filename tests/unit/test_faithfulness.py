"""The trainer's loss and gradients against TRL's own, against any other split of the same step, and against two
derivations by hand.

Batches are random: prompts padded on the left, completions of different lengths, some cut off and masked, some without
advantage, old log-probabilities away from today's (as after several updates on a rollout batch). Both losses get the
same inputs and model, once in float32 (rtol 1e-5: the study's small Llama and TRL's own head) and once in float64
(1e-10), where Llama will not do: its norms, its rotary table and TRL's head compute in float32 whatever the dtype.
There an OPT model stands in, with log_softmax as its head.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import POLICIES, keys
from torch import Tensor
from training_run import LORA, PPO, ROLLOUT, Run
from transformers import OPTConfig, OPTForCausalLM, PreTrainedTokenizerBase
from trl import GRPOTrainer

from workflow_scripts.objectives.aggregation import Step
from workflow_scripts.objectives.bounds import Group
from workflow_scripts.training import setup
from workflow_scripts.training.records import Recorder
from workflow_scripts.training.trainer import Trainer

GROUP, MINIBATCHES, LONGEST = (ROLLOUT[key] for key in ("group_size", "minibatches", "max_completion"))
ROLLOUTS = ROLLOUT["prompts"] * GROUP
STEP = ROLLOUTS // MINIBATCHES
RTOL = {torch.float32: 1e-5, torch.float64: 1e-10}
# TRL's torch.where(A > 0, 1.0, 1.05) is a float32 tensor, also where the model is float64.
SAPO_NEGATIVE = torch.tensor(1.05, dtype=torch.float32).item()
# Name -> keys of the arm that differ from `PPO` (and beta), attributes of TRL's trainer or of its arguments.
_CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dapo": ({"aggregation": "token-mean"}, {"loss_type": "dapo"}),
    "bnpo": ({"aggregation": "token-mean-step"}, {"loss_type": "bnpo"}),  # with one micro-batch; see below
    "grpo": ({"aggregation": "seq-mean-token-mean"}, {"loss_type": "grpo"}),
    "dr_grpo": ({"aggregation": "seq-mean-token-sum-norm"}, {"loss_type": "dr_grpo"}),
    "dual_clip": ({"bounds": "dual_clip", "dual_clip_bound": 1.4}, {"delta": 1.4}),
    "cispo": ({"surrogate": "cispo", "cispo_upper": 1.2}, {"loss_type": "cispo", "epsilon_high": 1.2}),
    "sapo": (
        {"surrogate": "sapo", "sapo_tau": [1.0, SAPO_NEGATIVE], "aggregation": "seq-mean-token-mean"},
        {"loss_type": "sapo"},
    ),
    "k3": ({"kl": "k3", "beta": 0.05}, {"beta": 0.05}),
    "k3_importance": ({"kl": "k3_importance", "beta": 0.05}, {"beta": 0.05, "use_bias_correction_kl": True}),
    "vllm": ({}, {"use_vllm": True}),  # its importance correction, passed through
}
CASES = {
    f"{name}-{level}": (ours | {"ratio": level}, theirs)
    for name, (ours, theirs) in _CASES.items()
    for level in ("token", "sequence")
}


def small_opt(tokenizer: PreTrainedTokenizerBase, seed: int) -> OPTForCausalLM:
    """A model whose every operation keeps the dtype of its weights, and whose positions do not count padding."""
    torch.manual_seed(seed)
    config = OPTConfig(
        vocab_size=len(tokenizer), hidden_size=16, word_embed_proj_dim=16, ffn_dim=32, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=64, init_std=0.3, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None, eos_token_id=tokenizer.eos_token_id, dropout=0.0,
    )  # fmt: skip
    return OPTForCausalLM(config)


def log_softmax_head(model: Any, ids: Tensor, attended: Tensor, keep: int, **_: Any) -> tuple[Tensor, Tensor, None]:
    """As `GRPOTrainer._get_per_token_logps_and_entropies`, in the dtype of the model; 0 at padding, as there."""
    log_prob = model(input_ids=ids, attention_mask=attended).logits[:, -keep - 1 : -1].log_softmax(-1)
    chosen = log_prob.gather(-1, ids[:, -keep:, None])[..., 0] * attended[:, -keep:]
    return chosen, -(log_prob.exp() * log_prob).sum(-1), None


@pytest.fixture(
    scope="module",
    params=[(torch.float32, None), (torch.float32, LORA), (torch.float64, None), (torch.float64, LORA)],
    ids=["float32-full", "float32-lora", "float64-full", "float64-lora"],
)
def trainer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return _trainer(*request.param, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """The trainer in float64, all weights trained."""
    return _trainer(torch.float64, None, tmp_path_factory.mktemp("run"))


def _trainer(dtype: torch.dtype, adapter: dict[str, Any] | None, folder: Path) -> Trainer:
    if dtype == torch.float32:
        made = Run(folder, adapter=adapter).trainer
    else:
        targets = adapter and {**adapter, "targets": ["q_proj", "v_proj", "out_proj"]}
        made = Run(folder, adapter=targets, base=small_opt).trainer
        made.model.double()
        made._get_per_token_logps_and_entropies = log_softmax_head
    made.model.train()
    if adapter:  # an adapter starts at 0, where half of its gradient is 0
        random = torch.Generator().manual_seed(1)
        for parameter in weights(made):
            parameter.data.copy_(0.3 * torch.randn(parameter.shape, generator=random, dtype=torch.float64))
    return made


def weights(trainer: Trainer) -> list[Tensor]:
    return [parameter for parameter in trainer.model.parameters() if parameter.requires_grad]


def choose(trainer: Trainer, changed: dict[str, Any], trl: dict[str, Any], micro_batches: int) -> None:
    """Set the arm's objective, and TRL's own to the same, for a step in so many micro-batches."""
    axes = {key: value for key, value in {**PPO, **changed}.items() if key not in ("eps_low", "eps_high", "beta")}
    if axes["surrogate"] == "clipped":
        axes = keys("bounds", axes["bounds"], changed) | axes
    else:
        del axes["bounds"]
    trainer.objective = setup.make_objective(axes, changed.get("beta", 0.0))
    theirs = {
        "loss_type": "dapo", "epsilon_low": 0.2, "epsilon_high": 0.28, "beta": 0.0, "use_vllm": False, "delta": None,
        "use_bias_correction_kl": False, **trl, "importance_sampling_level": axes["ratio"],
        "current_gradient_accumulation_steps": micro_batches, "steps_per_generation": MINIBATCHES * micro_batches,
    }  # fmt: skip
    for name, value in theirs.items():
        setattr(
            trainer.args if name in ("delta", "use_bias_correction_kl", "steps_per_generation") else trainer,
            name,
            value,
        )


def minibatch(trainer: Trainer, seed: int) -> dict[str, Any]:
    """Random inputs of one optimizer step: half of a rollout batch."""
    random = torch.Generator().manual_seed(seed)
    dtype = weights(trainer)[0].dtype

    def integers(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=random)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64).to(dtype)

    prompt_mask = (torch.arange(6) >= 6 - integers(2, 7, ROLLOUTS, 1)).long()
    mask = (torch.arange(LONGEST) < integers(1, LONGEST + 1, ROLLOUTS, 1)).long()
    mask[3] = mask[10] = 0  # cut off, with mask_truncated_completions
    ids = integers(3, trainer.model.config.vocab_size, ROLLOUTS, 6 + LONGEST)
    attended = torch.cat([prompt_mask, mask], 1)
    with torch.no_grad():
        log_prob, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, attended, LONGEST, compute_entropy=True
        )
    moved = 0.4 * normal(ROLLOUTS, LONGEST) + 0.4 * normal(ROLLOUTS, 1)  # sequence ratios leave their bounds too
    advantages = normal(ROLLOUTS)
    advantages[torch.tensor([1, 6, 12])] = 0
    whole = {
        "prompt_ids": ids[:, :6], "prompt_mask": prompt_mask, "completion_ids": ids[:, 6:], "completion_mask": mask,
        "old_per_token_logps": (log_prob + moved) * mask,
        "ref_per_token_logps": (log_prob + 0.5 * normal(ROLLOUTS, LONGEST)) * mask,
        "importance_sampling_ratio": torch.rand(ROLLOUTS, LONGEST, generator=random).to(dtype) * 2,
        "advantages": advantages, "group_correct": integers(1, GROUP, ROLLOUTS).to(dtype),
        "prompt_position": torch.arange(ROLLOUTS).float() // GROUP, "rollout": torch.arange(ROLLOUTS).float() % GROUP,
        "reward": torch.zeros(ROLLOUTS), "truncated": torch.zeros(ROLLOUTS),
    }  # fmt: skip
    step = taken(whole, torch.arange(STEP))
    return step | {"num_items_in_batch": mask.sum(), "step_tokens": step["completion_mask"].sum().repeat(STEP).float()}


def taken(inputs: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    return {key: value[rows] if value.dim() else value for key, value in inputs.items()}


def loss_and_gradient(trainer: Trainer, loss: Callable[..., Tensor], inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Loss of one micro-batch, and its gradient with respect to all trained weights as one vector."""
    trainer.recorder = Recorder(GROUP, MINIBATCHES * ROLLOUT["epochs"], MINIBATCHES)
    value = loss(trainer, trainer.model, inputs)
    return value.detach(), torch.cat([g.flatten() for g in torch.autograd.grad(value, weights(trainer))])


def assert_equal(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor], rtol: float) -> None:
    """The gradient's entries to within rtol of its largest: an entry is a sum, and may be small by cancellation."""
    torch.testing.assert_close(ours[0], theirs[0], rtol=rtol, atol=0)
    torch.testing.assert_close(ours[1], theirs[1], rtol=rtol, atol=rtol * theirs[1].abs().max().item())


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_equal_those_of_trl(trainer: Trainer, name: str) -> None:
    """Every micro-batch of a step; and so their sum, which is what the optimizer gets."""
    ours, theirs = CASES[name]
    micro_batches = 1 if theirs.get("loss_type") == "bnpo" else 2
    choose(trainer, ours, theirs, micro_batches)
    for seed in (0, 1):
        inputs = minibatch(trainer, seed)
        for rows in torch.arange(STEP).chunk(micro_batches):
            part = taken(inputs, rows)
            found, wanted = (loss_and_gradient(trainer, k._compute_loss, part) for k in (Trainer, GRPOTrainer))
            assert_equal(found, wanted, RTOL[found[1].dtype])
            assert wanted[1].abs().max() > 1e-3
    if theirs.get("loss_type", "dapo") not in ("cispo", "sapo"):  # some of it was clipped, and not all
        assert 0 < trainer._metrics["train"]["clip_ratio/region_mean"][-1] < 1


def test_no_two_of_these_losses_are_the_same(exact: Trainer) -> None:
    """Otherwise a setting would have reached neither side."""
    losses = []
    for name in CASES:
        choose(exact, *CASES[name], 1)
        losses.append(loss_and_gradient(exact, Trainer._compute_loss, minibatch(exact, 0))[0].item())
    assert len({round(loss, 6) for loss in losses}) == len(CASES)


def test_what_bnpo_of_trl_makes_of_several_micro_batches(trainer: Trainer) -> None:
    """TRL divides micro-batch i's token sum by its own tokens T_i and by n micro-batches, we by the step's tokens T:
    theirs is T / (n T_i) times ours, hence a different sum whenever the T_i differ."""
    choose(trainer, {"aggregation": "token-mean-step"}, {"loss_type": "bnpo"}, 4)
    inputs, factors = minibatch(trainer, 0), []
    for rows in torch.arange(STEP).chunk(4):
        part = taken(inputs, rows)
        factors.append((part["step_tokens"][0] / (4 * part["completion_mask"].sum())).item())
        (loss, gradient), theirs = (loss_and_gradient(trainer, k._compute_loss, part) for k in (Trainer, GRPOTrainer))
        assert_equal((loss * factors[-1], gradient * factors[-1]), theirs, max(RTOL[gradient.dtype], 1e-7))
    assert max(factors) > 1.2 * min(factors)


STEPS = {name: ours for name, (ours, _) in CASES.items()} | {
    f"{name}-token": {"bounds": name, "ratio": "token"} for name in POLICIES
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_split_order_and_padding_never_change_a_step(exact: Trainer, name: str, data: st.DataObject) -> None:
    """Loss and gradient summed over any micro-batches, equal in size or not, in any order, padded to any width with
    anything, equal those of the step at once. Some micro-batches are without any advantage, or any unmasked token."""
    choose(exact, STEPS[name], {}, 1)
    inputs = minibatch(exact, data.draw(st.integers(0, 10**6)))
    whole = loss_and_gradient(exact, Trainer._compute_loss, inputs)
    order = torch.tensor(data.draw(st.permutations(range(STEP))))
    cuts = sorted(data.draw(st.sets(st.integers(1, STEP - 1))))
    parts = []
    for rows in order.tensor_split(cuts):
        left, right = data.draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
        parts.append(loss_and_gradient(exact, Trainer._compute_loss, padded(taken(inputs, rows), left, right)))
    losses, gradients = zip(*parts, strict=True)
    assert_equal((sum(losses), sum(gradients)), whole, RTOL[torch.float64])


def padded(inputs: dict[str, Any], left: int, right: int) -> dict[str, Any]:
    """Wider, with values at the new places that must not matter."""
    sides = {"prompt_ids": (left, 0), "prompt_mask": (left, 0)} | dict.fromkeys(
        (
            "completion_ids",
            "completion_mask",
            "old_per_token_logps",
            "ref_per_token_logps",
            "importance_sampling_ratio",
        ),
        (0, right),
    )
    fill = {"prompt_ids": 5, "completion_ids": 7, "old_per_token_logps": -0.7, "ref_per_token_logps": 0.3}
    wider = {k: torch.nn.functional.pad(inputs[k], side, value=fill.get(k, 0)) for k, side in sides.items()}
    return inputs | wider


class Compared(Trainer):
    """Computes each loss of a run with TRL's own code too."""

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        ours, theirs = super()._compute_loss(model, inputs), GRPOTrainer._compute_loss(self, model, inputs)
        pairs = (torch.autograd.grad(loss, weights(self), retain_graph=True) for loss in (ours, theirs))
        gradients = [torch.cat([g.flatten() for g in one]) for one in pairs]
        assert_equal((ours.detach(), gradients[0]), (theirs.detach(), gradients[1]), RTOL[torch.float32])
        self.compared = getattr(self, "compared", 0) + 1
        return ours


def test_a_whole_run_has_the_losses_of_trl(tmp_path: Path) -> None:
    """Rollouts, old and reference log-probabilities as TRL makes them: U = 4, two micro-batches, masked truncation."""
    run = Run(tmp_path, PPO | {"kl": "k3"}, kind=Compared, steps=8, beta=0.05, mask_truncated=True)
    run.trainer.epsilon_low, run.trainer.epsilon_high = PPO["eps_low"], PPO["eps_high"]
    run.trainer.args.use_bias_correction_kl = False
    run.train()
    updates = run.records()["rollout_updates"]
    assert run.trainer.compared == 16
    assert {row["completion_tokens"] == 0 for row in updates} == {True, False}
    assert sum(row["clipped_upper_tokens"] + row["clipped_lower_tokens"] for row in updates) > 0


def uneven(completions: list[str], **_: Any) -> list[float]:
    """Shaped rewards: neither 0 nor 1, some negative."""
    return [len(text) % 7 / 3 - 0.5 for text in completions]


@pytest.mark.parametrize("scale", ["none", "group", "batch"])
def test_advantages_equal_those_of_trl(scale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against what TRL itself made of the same rewards."""
    trainer = Run(tmp_path, PPO | {"advantage": {"scale": scale}}, reward=uneven).trainer
    trainer.scale_rewards = scale
    generate, theirs = GRPOTrainer._generate_and_score_completions, []

    def noted(self: Any, rows: Any) -> Any:
        output = generate(self, rows)
        theirs.append(output["advantages"].clone())
        return output

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", noted)
    output = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    torch.testing.assert_close(output["advantages"], theirs[0], rtol=1e-5, atol=1e-6)
    assert output["advantages"].abs().max() > 0.1


# --- by hand ----------------------------------------------------------------------------------------------------------

A, B = 0, 1  # a vocabulary of two tokens
NOW, BEFORE = (0.6, -0.2), (0.1, 0.3)  # logits of the policy and of the old policy, the same at every position


def by_hand(
    level: str, completion: tuple[int, int], advantage: float, lower: float, upper: float
) -> tuple[list[float], list[bool]]:
    """Gradient with respect to the two logits, and which ratios are clipped.

    pi = softmax(theta), so d log pi(y)/d theta_j = 1[j = y] - pi_j. With r = pi(y)/pi_old(y), dr/d theta_j =
    r (1[j = y] - pi_j). The loss of a token is -clamp(r, lower, upper) A, its derivative by r is -A inside the bounds
    and 0 outside. Over the two tokens y_t of a completion, averaged:

        token     dL/d theta_j = -A/2 sum_t 1[lower <= r_t <= upper] r_t (1[j = y_t] - pi_j)
        sequence  s = (r_1 r_2)^(1/2), ds/d theta_j = s 1/2 sum_t (1[j = y_t] - pi_j), so
                  dL/d theta_j = -A 1[lower <= s <= upper] s 1/2 sum_t (1[j = y_t] - pi_j)
    """
    pi, old = ([math.exp(x) / (math.exp(v[A]) + math.exp(v[B])) for x in v] for v in (NOW, BEFORE))
    ratios = [pi[y] / old[y] for y in completion]
    if level == "sequence":
        ratios = [math.sqrt(ratios[0] * ratios[1])] * 2
    inside = [lower <= r <= upper for r in ratios]
    gradient = [
        -advantage / 2 * sum(r * ((j == y) - pi[j]) * ok for y, r, ok in zip(completion, ratios, inside, strict=True))
        for j in (A, B)
    ]
    return gradient, [not ok for ok in inside]


GAPO = {"bounds": "gapo", "eps_low": 0.2, "eps_high_max": 0.5}  # of 4 rollouts, 1, 2, 3 right: 1.5, 1.4, 1.3
ABC = {"bounds": "abc", "eps_1": 0.5, "eps_2": 0.3, "eps_3": 0.4, "eps_4": 0.1}
# r(A) = 1.5322, r(B) = 0.5641; of (A, A), (A, B), (B, B): s = 1.5322, 0.9297, 0.5641
EXAMPLES = [
    (GAPO, "token", (A, B), 0.75, 1, (-math.inf, 1.5), [True, False]),
    (GAPO, "token", (A, B), 0.25, 3, (-math.inf, 1.3), [True, False]),
    (GAPO, "token", (A, B), -0.25, 1, (0.8, math.inf), [False, True]),
    (GAPO | {"eps_high_max": 0.6}, "token", (A, A), 0.75, 1, (-math.inf, 1.6), [False, False]),
    (GAPO | {"eps_high_max": 0.6}, "token", (A, A), 0.5, 2, (-math.inf, 0.2 + 0.4 * 2 / 3 + 1), [True, True]),
    (GAPO, "sequence", (A, B), 0.75, 1, (-math.inf, 1.5), [False, False]),
    (GAPO, "sequence", (A, A), 0.75, 1, (-math.inf, 1.5), [True, True]),
    (GAPO, "sequence", (B, B), -0.25, 1, (0.8, math.inf), [True, True]),
    (GAPO, "sequence", (A, A), -0.25, 1, (0.8, math.inf), [False, False]),
    (ABC, "token", (A, B), 0.75, 1, (0.7, 1.5), [True, True]),
    (ABC | {"eps_1": 0.6}, "token", (A, B), 0.75, 1, (0.7, 1.6), [False, True]),
    (ABC, "token", (A, B), -0.25, 1, (0.9, 1.4), [True, True]),
    (ABC | {"eps_3": 0.6}, "token", (A, B), -0.25, 1, (0.9, 1.6), [False, True]),
    (ABC, "sequence", (A, B), -0.25, 1, (0.9, 1.4), [False, False]),
    (ABC, "sequence", (A, A), -0.25, 1, (0.9, 1.4), [True, True]),
    (ABC, "sequence", (B, B), 0.75, 1, (0.7, 1.5), [True, True]),
]


@pytest.mark.parametrize("axes, level, completion, advantage, correct, bounds, clipped", EXAMPLES)
def test_gradients_equal_those_derived_by_hand(
    axes: dict[str, Any], level: str, completion: tuple[int, int], advantage: float, correct: int,
    bounds: tuple[float, float], clipped: list[bool],
) -> None:  # fmt: skip
    gradient, outside = by_hand(level, completion, advantage, *bounds)
    assert outside == clipped
    objective = setup.make_objective(
        axes
        | {"ratio": level, "surrogate": "clipped", "advantage": {"scale": "none"}, "aggregation": "token-mean-step"},
        beta=0.0,
    )
    theta = torch.tensor(NOW, dtype=torch.float64, requires_grad=True)
    chosen = torch.tensor([completion])
    log_prob = theta.log_softmax(0)[chosen]
    old = torch.tensor(BEFORE, dtype=torch.float64).log_softmax(0)[chosen]
    mask = torch.ones(1, 2, dtype=torch.float64)
    ratio = objective.log_ratio(log_prob - old, mask).exp()
    a, c = (torch.tensor([[value]], dtype=torch.float64) for value in (advantage, correct))
    assert objective.bounds is not None
    loss = objective.surrogate(ratio, a, log_prob, objective.bounds(Group(a, c, 4, old)))
    two = torch.tensor(2.0)
    objective.aggregate(loss, mask, Step(two, two, 1, 1, 2)).backward()
    assert theta.grad is not None and theta.grad.tolist() == pytest.approx(gradient, rel=1e-12, abs=1e-15)
