"""Each preset against its equation in docs/objectives.md, computed with numpy alone.

The batch is made up: 4 prompts with 4 rollouts, of which 1, 2, 3 and none are correct, completions of 1 to 5 tokens,
and ratios on both sides of every bound. The loss is that of one of its two minibatches: as the functions that train
make it of the preset, and as the equation says.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from workflow_scripts.objectives.aggregation import Step
from workflow_scripts.objectives.bounds import Group
from workflow_scripts.objectives.presets import PRESETS
from workflow_scripts.study.keys import NEEDS_FOCAL
from workflow_scripts.training import setup

DOCS = (Path(__file__).parents[2] / "docs" / "objectives.md").read_text(encoding="utf-8")
K, PROMPTS, M, T_MAX = 4, 4, 2, 6
N = PROMPTS * K // M
GAMMA, CAP, WIDTHS = 0.5, 1.3, {"eps_low": 3e-3, "eps_high": 5e-3}
GIVEN: dict[str, dict[str, Any]] = {
    "gspo_asym": WIDTHS,
    "f_grpo": {"gamma": GAMMA},
    "f_grpo_unscaled": {"gamma": GAMMA},
    "f_gspo": {**WIDTHS, "gamma": GAMMA},
    "cispo": {"cispo_upper": CAP},
}


class Batch:
    """R and c (16,), T (16,), log_pi and log_old as lists of 16 arrays; minibatch: rollouts of the step."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.R = np.concatenate([(np.arange(K) < c).astype(float) for c in (1, 2, 3, 0)])
        self.c = np.repeat([1.0, 2.0, 3.0, 0.0], K)
        self.T = random.integers(1, 6, len(self.R))
        self.log_old = [-random.uniform(0.05, 3, t) for t in self.T]
        # whole completions and single tokens move: sequence ratios leave their bounds too, and some stay within
        scale = random.choice([1e-3, 0.3], len(self.R))
        self.log_pi = [
            old + s * (random.normal(size=t) + random.normal())
            for old, s, t in zip(self.log_old, scale, self.T, strict=True)
        ]
        self.minibatch = random.permutation(len(self.R))[:N]
        self.B = int(self.T.sum())

    def r(self, i: int) -> np.ndarray[Any, Any]:
        return np.exp(self.log_pi[i] - self.log_old[i])

    def s(self, i: int) -> float:
        return float(np.exp(np.mean(self.log_pi[i] - self.log_old[i])))

    def A(self, i: int) -> float:
        own = self.R[i // K * K : i // K * K + K]
        return float(self.R[i] - own.mean())

    def A_hat(self, i: int) -> float:
        own = self.R[i // K * K : i // K * K + K]
        return self.A(i) / (np.sqrt(((own - own.mean()) ** 2).sum() / (K - 1)) + 1e-4)

    def focal(self, i: int) -> float:
        return float((1 - self.c[i] / K) ** GAMMA)


def least(x: Any, a: float, low: float, high: float) -> Any:
    """min(x a, clip(x, 1 - low, 1 + high) a)."""
    return np.minimum(x * a, np.clip(x, 1 - low, 1 + high) * a)


def sequence_mean(b: Batch, term: Any) -> float:
    """1/N sum_i 1/T_i sum_t."""
    return sum(np.sum(term(i)) / b.T[i] for i in b.minibatch) / N


def token_mean(b: Batch, term: Any) -> float:
    """M/B sum_i sum_t."""
    return float(sum(np.sum(term(i)) for i in b.minibatch) * M / b.B)


def width(b: Batch, i: int, low: float, highest: float) -> float:
    """eps(c), of a group without success that of one success."""
    return low + (highest - low) * (K - max(b.c[i], 1)) / (K - 1)


def gate(r: Any, a: float) -> Any:
    tau = 1.0 if a > 0 else 1.05
    return 4 / tau / (1 + np.exp(-tau * (r - 1))) * a


EQUATIONS: dict[str, Any] = {
    "grpo": lambda b: sequence_mean(b, lambda i: least(b.r(i), b.A_hat(i), 0.2, 0.2)),
    "dr_grpo": lambda b: sum(np.sum(least(b.r(i), b.A(i), 0.2, 0.2)) for i in b.minibatch) / (N * T_MAX),
    "dapo_clip": lambda b: token_mean(b, lambda i: least(b.r(i), b.A_hat(i), 0.2, 0.28)),
    "gspo": lambda b: sum(least(b.s(i), b.A_hat(i), 3e-4, 4e-4) for i in b.minibatch) / N,
    "gspo_asym": lambda b: token_mean(b, lambda i: b.T[i] * least(b.s(i), b.A(i), 3e-3, 5e-3)),
    "f_grpo": lambda b: sequence_mean(b, lambda i: least(b.r(i), b.focal(i) * b.A_hat(i), 0.2, 0.2)),
    "f_grpo_unscaled": lambda b: token_mean(b, lambda i: least(b.r(i), b.focal(i) * b.A(i), 0.2, 0.2)),
    "f_gspo": lambda b: token_mean(b, lambda i: b.T[i] * least(b.s(i), b.focal(i) * b.A(i), 3e-3, 5e-3)),
    "gapo_token": lambda b: token_mean(b, lambda i: least(b.r(i), b.A(i), 0.2, width(b, i, 0.2, 0.28))),
    "gapo_seq": lambda b: token_mean(b, lambda i: b.T[i] * least(b.s(i), b.A(i), 3e-3, width(b, i, 3e-3, 5e-3))),
    "abc_grpo": lambda b: sequence_mean(b, lambda i: np.clip(b.r(i), 0.8, 1.2) * b.A(i)),
    "abc_grpo_code": lambda b: token_mean(b, lambda i: np.clip(b.r(i), 0.8, 1.2) * b.A_hat(i)),
    "cispo": lambda b: token_mean(b, lambda i: np.minimum(b.r(i), CAP) * b.A_hat(i) * b.log_pi[i]),
    "sapo": lambda b: sequence_mean(b, lambda i: gate(b.r(i), b.A_hat(i))),
}


def axes_of(preset: str) -> dict[str, Any]:
    given = dict(GIVEN.get(preset, {}))
    axes = {**PRESETS[preset], "advantage": dict(PRESETS[preset]["advantage"])}
    if "gamma" in given:
        axes["advantage"]["focal_gamma"] = given.pop("gamma")
    return axes | given


def loss_of_the_trainer(preset: str, b: Batch, **changed: float) -> float:
    """The functions that train, put together as the trainer does."""
    objective = setup.make_objective(axes_of(preset) | changed, beta=0.0)
    rows = torch.from_numpy(b.minibatch)
    longest = int(b.T.max())

    def padded(values: list[Any]) -> torch.Tensor:
        return torch.stack([torch.from_numpy(np.pad(value, (0, longest - len(value)))) for value in values])[rows]

    reward, correct = torch.from_numpy(b.R).view(-1, K), torch.from_numpy(b.c).view(-1, K)
    advantage = objective.advantage(reward, correct[:, :1]).reshape(-1, 1)[rows]
    log_pi, log_old = padded(b.log_pi), padded(b.log_old)
    mask = padded([np.ones(length) for length in b.T])
    ratio = objective.log_ratio(log_pi - log_old, mask).exp()
    group = Group(advantage, correct.reshape(-1, 1)[rows], K, log_old)
    loss = objective.surrogate(ratio, advantage, log_pi, objective.bounds(group) if objective.bounds else None)
    step = Step(torch.tensor(float(b.B)), mask.sum(), M, N, T_MAX)
    return objective.aggregate(loss, mask, step).item()


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("seed", range(4))
def test_the_loss_is_that_of_the_equation(preset: str, seed: int) -> None:
    batch = Batch(seed)
    assert loss_of_the_trainer(preset, batch) == pytest.approx(-EQUATIONS[preset](batch), rel=1e-12)


@pytest.mark.parametrize("preset", [preset for preset in PRESETS if preset != "sapo"])
def test_every_bound_acts_in_these_batches(preset: str) -> None:
    """Otherwise a wrong width would go unnoticed."""
    widths = {key: value for key, value in axes_of(preset).items() if key.startswith("eps_") or key == "cispo_upper"}
    assert widths
    for key, value in widths.items():
        losses = [loss_of_the_trainer(preset, Batch(seed)) for seed in range(4)]
        changed = [loss_of_the_trainer(preset, Batch(seed), **{key: value * 1.2}) for seed in range(4)]
        assert any(abs(loss - other) > 1e-9 for loss, other in zip(losses, changed, strict=True)), key


def test_no_two_presets_are_the_same() -> None:
    """So that a preset whose equation is another's would be noticed."""
    losses = {preset: loss_of_the_trainer(preset, Batch(0)) for preset in PRESETS}
    assert len({round(loss, 9) for loss in losses.values()}) == len(PRESETS), losses


def test_the_page_has_an_equation_and_a_row_for_each_preset() -> None:
    equations = re.findall(r"^([a-z_]+) +J = ", DOCS, flags=re.M)
    assert equations == list(PRESETS) == list(EQUATIONS)
    found = [line for line in DOCS.splitlines() if re.match(r"\| `[a-z_]+` \| (token|sequence) \|", line)]
    rows = {line.split("|")[1].strip(" `"): line for line in found}
    assert list(rows) == list(PRESETS)
    for preset, axes in PRESETS.items():
        cells = [cell.strip() for cell in rows[preset].split("|")[2:6]]
        assert cells[0] == axes["ratio"]
        assert re.split(r"[ ,]", cells[1])[0] == axes.get(
            "bounds", {"cispo": "cap", "sapo": "gate"}.get(axes["surrogate"])
        )
        assert cells[2].split(",")[0] == axes["advantage"]["scale"]
        assert ("γ" in cells[2]) == (preset in NEEDS_FOCAL)
        assert cells[3] == axes["aggregation"]
        assert "arXiv:" in rows[preset] or "github.com" in rows[preset]
