"""The five axes: golden values of the papers, and properties that must hold for every clip policy."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow_scripts.digest import keyword_arguments
from workflow_scripts.objectives import advantage, aggregation, bounds, ratio, surrogate
from workflow_scripts.objectives.aggregation import Step
from workflow_scripts.objectives.bounds import Bounds, Group
from workflow_scripts.objectives.presets import PRESETS

# arXiv:2609.00444 Eq. 11 at group size 8, eps_low 0.20, eps_high_max 0.28, for 1 to 8 correct rollouts
GAPO_WIDTHS = [0.28, 0.268571, 0.257143, 0.245714, 0.234286, 0.222857, 0.211429, 0.20]
NUMBERS = {
    "eps_low": 0.2, "eps_high": 0.28, "eps_high_max": 0.28, "eps_low_max": 0.25, "dual_clip_bound": 3.0,
    "eps_1": 0.2, "eps_2": 0.2, "eps_3": 0.2, "eps_4": 0.2,
}  # fmt: skip
POLICIES = sorted(name for name in keyword_arguments("objectives.bounds") if name not in ("Group", "Bounds"))


def group(advantage: list[float], correct: list[float], size: int = 8, q: float = 0.5) -> Group:
    a = torch.tensor(advantage, dtype=torch.float64).unsqueeze(1)
    c = torch.tensor(correct, dtype=torch.float64).unsqueeze(1)
    return Group(a, c, size, torch.full((len(advantage), 1), math.log(q), dtype=torch.float64))


def policy(name: str, where: Group, **changed: float) -> Bounds:
    required, _ = keyword_arguments("objectives.bounds")[name]
    return getattr(bounds, name)(where, **{key: (NUMBERS | changed)[key] for key in required})


def test_gapo_has_the_widths_of_the_paper() -> None:
    found = policy("gapo", group([0.1] * 8, list(range(1, 9)))).upper[:, 0] - 1
    assert torch.allclose(found, torch.tensor(GAPO_WIDTHS, dtype=torch.float64), atol=5e-7)


def test_matched_and_mirrored_have_the_mean_width_of_gapo() -> None:
    where = group([0.1] * 8, list(range(1, 9)))
    gapo, mirrored = policy("gapo", where).upper, policy("gapo_mirrored", where).upper
    matched = policy("gapo_matched", where).upper
    assert matched.unique().item() == pytest.approx(1.234286, abs=5e-7)  # at c = (2k - 1)/3 = 5
    assert torch.allclose(gapo + mirrored, 2 * matched)


def test_proportional_and_lower_widths() -> None:
    where = group([0.1] * 7, list(range(1, 8)))
    widths = policy("gapo_proportional", where).upper[:, 0] - 1
    assert torch.allclose(widths, torch.tensor([0.28, 0.24, 0.20, 0.16, 0.12, 0.08, 0.04], dtype=torch.float64))
    below = 1 - policy("gapo_lower", group([-0.1, -0.1], [1, 8])).lower[:, 0]
    assert below.tolist() == pytest.approx([0.2, 0.25])


@settings(max_examples=200, deadline=None)
@given(
    value=st.floats(0.3, 3.0),
    a=st.floats(-2, 2),
    low=st.floats(0.01, 0.5),
    high=st.floats(0.01, 0.8),
)
def test_clipped_ppo_is_the_min_form_in_value_and_gradient(value: float, a: float, low: float, high: float) -> None:
    first, second = (torch.tensor([[value]], dtype=torch.float64, requires_grad=True) for _ in range(2))
    where = group([a], [4])
    ours = surrogate.clipped(first, where.advantage, first.log(), bounds.ppo(where, eps_low=low, eps_high=high)).sum()
    theirs = -torch.min(second * where.advantage, second.clamp(1 - low, 1 + high) * where.advantage).sum()
    ours.backward()
    theirs.backward()
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-12)
    inside = not math.isclose(value, 1 - low) and not math.isclose(value, 1 + high)
    if inside:  # at a tie of the two forms any subgradient is right
        assert first.grad is not None and second.grad is not None
        assert first.grad.item() == pytest.approx(second.grad.item(), abs=1e-12)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=100, deadline=None)
@given(value=st.floats(0.05, 4.0), a=st.floats(-2, 2), correct=st.integers(1, 7), q=st.floats(0.01, 1.0))
def test_every_policy_bounds_the_gradient(name: str, value: float, a: float, correct: int, q: float) -> None:
    where = group([a], [correct], q=q)
    limits = policy(name, where)
    r = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    surrogate.clipped(r, where.advantage, r.log(), limits).sum().backward()
    assert r.grad is not None
    outside = value < limits.lower.item() or value > limits.upper.item()
    assert r.grad.item() == (0.0 if outside else pytest.approx(-a))


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("a", [0.7, -0.4])
def test_at_ratio_one_all_policies_have_the_same_gradient(name: str, a: float) -> None:
    where = group([a], [3])
    r = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
    surrogate.clipped(r, where.advantage, r.log(), policy(name, where)).sum().backward()
    assert r.grad is not None and r.grad.item() == pytest.approx(-a)


@pytest.mark.parametrize(
    "name, changed",
    [("gapo", {"eps_high_max": 0.2, "eps_high": 0.2}), ("dual_clip", {"dual_clip_bound": math.inf})],
)
def test_policies_that_become_ppo(name: str, changed: dict[str, float]) -> None:
    where = group([0.5, -0.5, 0.2], [2, 5, 8])
    one, other = policy(name, where, **changed), policy("ppo", where, **changed)
    assert torch.equal(one.lower, other.lower) and torch.allclose(one.upper, other.upper)


def test_abc_without_its_two_new_bounds_is_ppo() -> None:
    where = group([0.5, -0.5], [2, 5])
    abc = bounds.abc(where, eps_1=0.28, eps_2=math.inf, eps_3=math.inf, eps_4=0.2)
    ppo = bounds.ppo(where, eps_low=0.2, eps_high=0.28)
    assert torch.equal(abc.lower, ppo.lower) and torch.equal(abc.upper, ppo.upper)


def test_sequence_ratio_is_the_geometric_mean() -> None:
    log_ratio = torch.tensor([[0.1, 0.3, 9.0]])
    assert ratio.sequence(log_ratio, torch.tensor([[1.0, 1.0, 0.0]])).item() == pytest.approx(0.2)


def test_advantages() -> None:
    reward = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    assert advantage.none(reward)[0].tolist() == [0.75, -0.25, -0.25, -0.25]
    assert advantage.none(reward)[1].abs().sum() == 0
    assert advantage.group(reward)[0, 0].item() == pytest.approx(0.75 / (0.5 + 1e-4))
    weighted = advantage.focal(advantage.none(reward), torch.tensor([[1.0], [4.0]]), focal_gamma=2.0)
    assert weighted[0, 0].item() == pytest.approx(0.75 * 0.75**2)


@pytest.mark.parametrize("name", ["token_mean", "token_mean_step", "seq_mean_token_mean", "seq_mean_token_sum_norm"])
def test_aggregation_does_not_depend_on_the_split(name: str) -> None:
    torch.manual_seed(0)
    loss, mask = torch.randn(12, 5), (torch.rand(12, 5) > 0.3).float()
    step = Step(mask.sum() * 2, mask.sum(), minibatches=2, minibatch_rollouts=12, max_completion=5)
    function = getattr(aggregation, name)
    whole = function(loss, mask, step)
    parts = sum(function(loss[rows], mask[rows], step) for rows in (slice(0, 4), slice(4, 6), slice(6, 12)))
    assert torch.allclose(whole, parts)


def test_presets_name_only_what_exists() -> None:
    for preset in PRESETS.values():
        assert hasattr(ratio, preset["ratio"]) and hasattr(surrogate, preset["surrogate"])
        assert hasattr(aggregation, preset["aggregation"].replace("-", "_"))
        assert hasattr(advantage, preset["advantage"]["scale"])
        assert "bounds" not in preset or hasattr(bounds, preset["bounds"])
