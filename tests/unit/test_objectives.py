"""The five axes: numbers of the papers, properties of every registered function, and pinned values.

The pinned values lie in tests/golden/objectives.json: every policy, surrogate, ratio, aggregation, advantage scale and
the focal weight on a small grid, and what made them.
    ARMSLENGTH_REGENERATE=1 python -m pytest tests/unit/test_objectives.py -k pinned
writes today's. A value that changes is another objective under an old name: runs already trained had the old one.
"""

import json
import math
import os
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import POLICIES, SURROGATES, group, keys, policy
from torch import Tensor

from workflow_scripts.digest import keyword_arguments
from workflow_scripts.objectives import advantage, aggregation, bounds, ratio, surrogate
from workflow_scripts.objectives.aggregation import Step
from workflow_scripts.objectives.presets import PRESETS

GOLDEN = Path(__file__).parents[1] / "golden" / "objectives.json"
# arXiv:2609.00444 Eq. 11 at group size 8, eps_low 0.20, eps_high_max 0.28, for 1 to 8 correct rollouts
GAPO_WIDTHS = [0.28, 0.268571, 0.257143, 0.245714, 0.234286, 0.222857, 0.211429, 0.20]


def numbers(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def upper_widths(name: str, correct: list[float], size: int = 8, **changed: float) -> list[float]:
    return (policy(name, group([0.1] * len(correct), correct, size), **changed).upper[:, 0] - 1).tolist()


# --- numbers of the papers --------------------------------------------------------------------------------------------


def test_gapo_has_the_widths_of_the_paper() -> None:
    assert upper_widths("gapo", list(range(1, 9))) == pytest.approx(GAPO_WIDTHS, abs=5e-7)


@pytest.mark.parametrize(
    "low, high, differs", [(0.20, 0.28, 6.3e-4), (3e-3, 5e-3, 5e-7), (7e-5, 3e-4, 7e-9)], ids=["token", "seq", "r1"]
)
def test_gapo_against_the_rule_it_linearises(low: float, high: float, differs: float) -> None:
    """arXiv:2609.00444 Eq. 8: the optimal ratio is proportional to exp(A/lambda), and A = 1 - c/k is linear in c. Two
    ends fix both constants, 1 + high at c = 1 and 1 + low at c = k: 1 + width(c) = (1+high)^t (1+low)^(1-t) with
    t = (k-c)/(k-1). This is convex in c and Eq. 11 its chord: wider, nowhere by more than `differs`."""
    k = 8
    share = [(k - c) / (k - 1) for c in range(1, k + 1)]
    exact = [(1 + high) ** t * (1 + low) ** (1 - t) - 1 for t in share]
    widths = upper_widths("gapo", list(range(1, k + 1)), k, eps_low=low, eps_high_max=high)
    gaps = [ours - theirs for ours, theirs in zip(widths, exact, strict=True)]
    assert gaps[0] == pytest.approx(0, abs=1e-15) and gaps[-1] == pytest.approx(0, abs=1e-15)
    assert min(gaps[1:-1]) > 0 and 0.9 * differs < max(gaps) < 1.02 * differs


def test_matched_and_mirrored_have_the_mean_width_of_gapo() -> None:
    where = group([0.1] * 8, list(range(1, 9)))
    gapo, mirrored = policy("gapo", where).upper, policy("gapo_mirrored", where).upper
    matched = policy("gapo_matched", where).upper
    assert matched.unique().item() == pytest.approx(1.234286, abs=5e-7)  # at c = (2k - 1)/3 = 5
    assert torch.allclose(gapo + mirrored, 2 * matched)
    assert upper_widths("gapo_matched", [1, 8], mean_correct=3) == pytest.approx([0.257143] * 2, abs=5e-7)


def test_proportional_and_lower_widths() -> None:
    widths = upper_widths("gapo_proportional", list(range(1, 8)))
    assert widths == pytest.approx([0.28, 0.24, 0.20, 0.16, 0.12, 0.08, 0.04])
    below = 1 - policy("gapo_lower", group([-0.1, -0.1], [1, 8])).lower[:, 0]
    assert below.tolist() == pytest.approx([0.2, 0.25])


@pytest.mark.parametrize(
    "q, lower, upper",
    [
        (1.0, (1 + math.sqrt(0.36)) / 2, (1 + math.sqrt(1.8)) / 2),  # 0.8 and 1.170820
        (0.8, (1 + math.sqrt(0.2)) / 2, (1 + math.sqrt(2.0)) / 2),  # 0.723607 and 1.207107
        (0.64, 0.5, 1.25),  # 4 0.16/q = 1: from here down the lower bound stays at 1/2; 1 + 4 0.2/q = 1.5^2
        (0.1, 0.5, 2.0),  # 1 + 0.8/0.1 = 3^2
        (0.8 / 360, 0.5, 10.0),  # 1 + 360 = 19^2: here the cap begins
        (1e-12, 0.5, 10.0),
        (0.0, 0.5, 10.0),
    ],
)
def test_dcpo_bounds_of_the_authors_code(q: float, lower: float, upper: float) -> None:
    """lime-RL/DCPO, core_algos.get_clip_low_high with 0.16 and 0.2: low = (1 + sqrt(max(1 - 4 eps_low/q, 0)))/2,
    high = min((1 + sqrt(1 + 4 eps_high/q))/2, 10). At q = 0 itself their lower bound is 1; here it is its limit."""
    for dtype in (torch.float64, torch.float32):
        where = group([0.5, -0.5], [4, 4], q=q)
        where = bounds.Group(*(part.to(dtype) for part in (where.advantage, where.group_correct)), 8,
                             where.old_log_prob.to(dtype))  # fmt: skip
        found = policy("dcpo", where, eps_low=0.16, eps_high=0.2)
        rel = 1e-7 if dtype == torch.float64 else 1e-3  # at q = 0.64 the root of a rounding error is added
        assert found.upper[:, 0].tolist() == [pytest.approx(upper, rel=rel), math.inf]
        assert found.lower[:, 0].tolist() == [-math.inf, pytest.approx(lower, rel=rel)]


# --- properties of every clip policy ----------------------------------------------------------------------------------


@st.composite
def widths(draw: st.DrawFn) -> dict[str, float]:
    """Numbers in the order that a study must keep. eps_high_max up to 2 eps_low: gapo_mirrored is 2 mean - width, which
    at a much wider ceiling and c = 1 would end below ratio 1."""
    low, more = draw(st.floats(1e-3, 0.5)), st.floats(0, 1)
    high = {name: low * (1 + draw(more)) for name in ("eps_high", "eps_high_max", "eps_low_max")}
    free = {f"eps_{i}": draw(st.floats(1e-3, 0.6)) for i in (1, 2, 3, 4)}
    return {"eps_low": low, **high, **free, "dual_clip_bound": 1 + high["eps_high"] + draw(st.floats(0.01, 3))}


@st.composite
def places(draw: st.DrawFn) -> tuple[float, int, int, float]:
    """Advantage, correct rollouts, group size, old probability."""
    size = draw(st.integers(2, 16))
    a = draw(st.one_of(st.just(0.0), st.floats(-2, -1e-3), st.floats(1e-3, 2)))
    return a, draw(st.integers(0, size)), size, draw(st.floats(1e-6, 1.0))


def ratios(*limits: float) -> st.SearchStrategy[float]:
    """Anywhere, and at the finite bounds themselves."""
    exact = [limit for limit in limits if math.isfinite(limit)]
    return st.one_of(st.floats(0.05, 12.0), *([st.sampled_from(exact)] if exact else []))


def clipped(value: float, a: float, limits: bounds.Bounds) -> tuple[float, float]:
    """The clipped surrogate at one ratio, and its derivative."""
    r = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    loss = surrogate.clipped(r, numbers([[a]]), r.log(), limits).sum()
    loss.backward()
    assert r.grad is not None
    return loss.item(), r.grad.item()


def is_one_sided(name: str) -> bool:
    found = policy(name, group([0.5, -0.5], [3, 3]))
    return found.lower[0].item() == -math.inf and found.upper[1].item() == math.inf


@pytest.mark.parametrize("name", [name for name in POLICIES if is_one_sided(name)])
@settings(max_examples=60, deadline=None)
@given(data=st.data(), given_widths=widths(), place=places())
def test_clipped_is_the_min_form(name: str, data: st.DataObject, given_widths: dict[str, float], place: Any) -> None:
    """-min(r A, clip(r, lower, upper) A) in value and gradient, ties and A = 0 included, with the lower bound that the
    policy has for A < 0 and the upper one that it has for A > 0."""
    a, correct, size, q = place
    both = policy(name, group([1.0, -1.0], [correct, correct], size, q), **given_widths)
    lower, upper = both.lower[1].item(), both.upper[0].item()
    value = data.draw(ratios(lower, upper))
    ours = clipped(value, a, policy(name, group([a], [correct], size, q), **given_widths))
    r = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    loss = -torch.min(r * a, r.clamp(lower, upper) * a)
    loss.backward()
    assert r.grad is not None
    assert ours == (pytest.approx(loss.item(), abs=1e-14), pytest.approx(r.grad.item(), abs=1e-14))


def test_the_one_sided_policies_are_seen_as_such() -> None:
    assert {"ppo", "dcpo", *(n for n in POLICIES if n.startswith("gapo"))} <= {n for n in POLICIES if is_one_sided(n)}


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), given_widths=widths(), place=places())
def test_every_policy_bounds_the_gradient(
    name: str, data: st.DataObject, given_widths: dict[str, float], place: Any
) -> None:
    """d loss/d r is -A inside the bounds and at them, and 0 outside: never more than |A|."""
    a, correct, size, q = place
    limits = policy(name, group([a], [correct], size, q), **given_widths)
    value = data.draw(ratios(limits.lower.item(), limits.upper.item()))
    outside = value < limits.lower.item() or value > limits.upper.item()
    assert clipped(value, a, limits)[1] == (0.0 if outside else pytest.approx(-a, abs=0))


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=40, deadline=None)
@given(given_widths=widths(), place=places())
def test_at_ratio_one_all_policies_have_the_same_gradient(
    name: str, given_widths: dict[str, float], place: Any
) -> None:
    a, correct, size, q = place
    assert clipped(1.0, a, policy(name, group([a], [correct], size, q), **given_widths))[1] == -a


@pytest.mark.parametrize("name", [name for name in POLICIES if name.startswith("gapo")])
@settings(max_examples=60, deadline=None)
@given(given_widths=widths(), size=st.integers(2, 16))
def test_widths_of_gapo_and_its_controls_are_monotone_and_stay_between_their_ends(
    name: str, given_widths: dict[str, float], size: int
) -> None:
    """In the number of correct rollouts, from none to all. Upper widths fall from eps_high_max to eps_low (to 0 for a
    proportional one); the mirrored ones rise within as much around the mean; lower widths rise to eps_low_max."""
    narrow, wide, low_wide = (given_widths[key] for key in ("eps_low", "eps_high_max", "eps_low_max"))
    correct = list(range(size + 1))
    found = upper_widths(name, correct, size, **given_widths)
    ends = {"gapo_proportional": (0.0, wide)}.get(name, (narrow, wide))
    if name == "gapo_mirrored":
        found = [-width for width in found]
        mean = upper_widths("gapo_matched", [1], size, **given_widths)[0]
        ends = (narrow - 2 * mean, wide - 2 * mean)
    assert all(one >= other - 1e-12 for one, other in pairwise(found))
    assert min(found) >= ends[0] - 1e-12 and max(found) <= ends[1] + 1e-12
    below = (1 - policy(name, group([-0.1] * len(correct), correct, size), **given_widths).lower[:, 0]).tolist()
    assert below == sorted(below)
    assert narrow - 1e-12 <= below[0] and below[-1] <= (low_wide if name == "gapo_lower" else narrow) + 1e-12


@settings(max_examples=40, deadline=None)
@given(given_widths=widths(), place=places())
def test_policies_that_become_ppo(given_widths: dict[str, float], place: Any) -> None:
    a, correct, size, q = place
    where = group([a, -a], [correct, correct], size, q)
    low, high = given_widths["eps_low"], given_widths["eps_high"]
    ppo = bounds.ppo(where, eps_low=low, eps_high=high)
    flat = bounds.ppo(where, eps_low=low, eps_high=low)
    abc = bounds.abc(where, eps_1=high, eps_2=math.inf, eps_3=math.inf, eps_4=low)
    dual = bounds.dual_clip(where, eps_low=low, eps_high=high, dual_clip_bound=math.inf)
    for one, other in ((bounds.gapo(where, eps_low=low, eps_high_max=low), flat), (abc, ppo), (dual, ppo)):
        torch.testing.assert_close((one.lower, one.upper), (other.lower, other.upper), rtol=0, atol=1e-15)


# --- the other surrogates ---------------------------------------------------------------------------------------------


def by_log_prob(function: Callable[..., Tensor], log_ratio: float, a: float, **own: Any) -> float:
    """d loss/d log pi of one token, its ratio exp(log_ratio)."""
    log_prob = torch.tensor([[-1.0]], dtype=torch.float64, requires_grad=True)
    value = (log_prob + 1.0 + log_ratio).exp()
    function(value, numbers([[a]]), log_prob, None, **own).sum().backward()
    assert log_prob.grad is not None
    return log_prob.grad.item()


@settings(max_examples=60, deadline=None)
@given(log_ratio=st.floats(-2, 2), a=st.floats(-2, 2), upper=st.floats(1.0, 3.0))
def test_cispo_weighs_the_score_by_the_capped_ratio(log_ratio: float, a: float, upper: float) -> None:
    """-min(r, upper) A d log pi: beyond the cap too, where a clipped ratio has none."""
    found = by_log_prob(surrogate.cispo, log_ratio, a, cispo_upper=upper)
    assert found == pytest.approx(-min(math.exp(log_ratio), upper) * a, abs=1e-14)
    assert found != 0 or abs(a) < 1e-300  # a product that underflows


@settings(max_examples=60, deadline=None)
@given(log_ratio=st.floats(-2, 2), a=st.floats(-2, 2))
def test_sapo_is_reinforce_at_ratio_one_and_weaker_away_from_it(log_ratio: float, a: float) -> None:
    """d loss/d r = -4 p (1 - p) A with p = sigmoid(tau (r - 1)) (arXiv:2511.20347): -A at r = 1, less elsewhere."""
    assert by_log_prob(surrogate.sapo, 0.0, a) == pytest.approx(-a, abs=1e-14)
    r, tau = math.exp(log_ratio), 1.0 if a > 0 else 1.05
    p = 1 / (1 + math.exp(-tau * (r - 1)))
    assert by_log_prob(surrogate.sapo, log_ratio, a) == pytest.approx(-4 * p * (1 - p) * a * r, abs=1e-13)


# --- ratios, advantages, aggregation ----------------------------------------------------------------------------------


def test_sequence_ratio_is_the_geometric_mean() -> None:
    log_ratio = torch.tensor([[0.1, 0.3, 9.0]])
    assert ratio.sequence(log_ratio, torch.tensor([[1.0, 1.0, 0.0]])).item() == pytest.approx(0.2)


def test_advantages() -> None:
    reward = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    assert advantage.none(reward)[0].tolist() == [0.75, -0.25, -0.25, -0.25]
    assert advantage.none(reward)[1].abs().sum() == 0
    assert advantage.group(reward)[0, 0].item() == pytest.approx(0.75 / (0.5 + 1e-4))
    sd = math.sqrt((5 * 0.375**2 + 3 * 0.625**2) / 7)  # 5 of 8 rollouts have reward 1
    assert advantage.batch(reward)[0, 0].item() == pytest.approx(0.75 / (sd + 1e-4))
    weighted = advantage.focal(advantage.none(reward), torch.tensor([[1.0], [4.0]]), focal_gamma=2.0)
    assert weighted[0, 0].item() == pytest.approx(0.75 * 0.75**2)


def test_aggregations_on_two_rollouts() -> None:
    """Rollouts of 1 and 3 tokens whose losses are 1 and 2 each; the rollout batch has 8 tokens in 2 minibatches."""
    loss, mask = numbers([[1, 9, 9], [2, 2, 2]]), numbers([[1, 0, 0], [1, 1, 1]])
    step = Step(torch.tensor(8.0), torch.tensor(4.0), minibatches=2, minibatch_rollouts=2, max_completion=10)
    assert aggregation.token_mean(loss, mask, step).item() == 7 / 4
    assert aggregation.token_mean_step(loss, mask, Step(step.batch_tokens, torch.tensor(5.0), 2, 2, 10)).item() == 7 / 5
    assert aggregation.seq_mean_token_mean(loss, mask, step).item() == 1.5
    assert aggregation.seq_mean_token_sum_norm(loss, mask, step).item() == 7 / 20


def test_presets_name_only_what_exists() -> None:
    for preset in PRESETS.values():
        assert hasattr(ratio, preset["ratio"]) and hasattr(surrogate, preset["surrogate"])
        assert hasattr(aggregation, preset["aggregation"].replace("-", "_"))
        assert hasattr(advantage, preset["advantage"]["scale"])
        assert "bounds" not in preset or hasattr(bounds, preset["bounds"])


# --- pinned values ----------------------------------------------------------------------------------------------------

COUNTS = list(range(1, 9))
PROBABILITIES = [1e-6, 0.01, 0.3, 1.0]
RATIOS = [0.3, 0.75, 0.8, 1.0, 1.2, 1.25, 1.4, 4.0]
REWARDS = [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [0.5, -0.25, 1.0, 0.0]]
LOSS, MASK = [[1.0, -2.0, 0.5], [4.0, 3.0, 7.0], [5.0, 5.0, 5.0]], [[1, 1, 1], [1, 0, 0], [0, 0, 0]]


def flat(values: Tensor) -> list[float | None]:
    """To 12 digits, null for a bound that does not act: JSON has no infinity."""
    return [float(f"{value:.12g}") if math.isfinite(value) else None for value in values.detach().flatten().tolist()]


def pinned_bounds(name: str) -> dict[str, Any]:
    """By the number of correct rollouts at old probability 0.5, and by the old probability at 4 of 8 correct."""
    found: dict[str, Any] = {"keys": keys("bounds", name)}
    for sign, a in (("positive", 0.5), ("negative", -0.5)):
        counts = policy(name, group([a] * 8, COUNTS))
        old = [policy(name, group([a], [4], q=q)) for q in PROBABILITIES]
        for side in ("lower", "upper"):
            found[f"{sign}, {side} by correct"] = flat(getattr(counts, side))
            found[f"{sign}, {side} by old probability"] = flat(torch.cat([getattr(one, side) for one in old]))
    return found


def pinned_surrogate(name: str) -> dict[str, Any]:
    """Token losses and their derivative by log pi = -1, under ppo's bounds 0.8 and 1.28."""
    found: dict[str, Any] = {"keys": keys("surrogate", name)}
    for sign, a in (("positive", 0.5), ("negative", -0.5)):
        where = group([a] * len(RATIOS), [3] * len(RATIOS))
        log_prob = torch.full((len(RATIOS), 1), -1.0, dtype=torch.float64, requires_grad=True)
        value = (log_prob + 1).exp() * numbers(RATIOS).unsqueeze(1)
        loss = getattr(surrogate, name)(value, where.advantage, log_prob, policy("ppo", where), **found["keys"])
        loss.sum().backward()
        assert log_prob.grad is not None
        found |= {f"{sign}, loss": flat(loss), f"{sign}, gradient": flat(log_prob.grad)}
    return found


def pinned() -> dict[str, Any]:
    """Every registered function of the axes on the grid above."""
    loss, mask, reward = numbers(LOSS), numbers(MASK), numbers(REWARDS)
    step = Step(numbers(20), numbers(8), minibatches=2, minibatch_rollouts=6, max_completion=5)
    weighted = {
        f"focal_gamma {gamma:g}": flat(
            advantage.focal(advantage.none(reward), numbers([[1], [4], [2]]), focal_gamma=gamma)
        )
        for gamma in (0.5, 1.0, 2.0)
    }
    scales = [name for name, (required, _) in keyword_arguments("objectives.advantage").items() if not required]
    return {
        "made by": "ARMSLENGTH_REGENERATE=1 python -m pytest tests/unit/test_objectives.py -k pinned; float64",
        "grid": {
            "group size": 8, "correct": COUNTS, "old probability": PROBABILITIES, "advantage": [0.5, -0.5],
            "ratio": RATIOS, "reward": REWARDS, "loss": LOSS, "mask": MASK,
            "step": "20 tokens in the rollout batch, 8 in the step; 2 minibatches of 6 rollouts of at most 5 tokens",
        },
        "bounds": {name: pinned_bounds(name) for name in POLICIES},
        "surrogate": {name: pinned_surrogate(name) for name in SURROGATES},
        "ratio": {n: flat(getattr(ratio, n)(loss, mask)) for n in keyword_arguments("objectives.ratio")},
        "aggregation": {
            n: flat(getattr(aggregation, n)(loss, mask, step)) for n in keyword_arguments("objectives.aggregation")
        },
        "advantage": {n: flat(getattr(advantage, n)(reward)) for n in scales} | weighted,
    }  # fmt: skip


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every number of a nested value by its path."""
    if isinstance(value, (dict, list)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return {key: leaf for name, part in pairs for key, leaf in leaves(part, f"{path}/{name}").items()}
    return {path: value}


def test_pinned_values() -> None:
    today = pinned()
    if os.environ.get("ARMSLENGTH_REGENERATE"):
        text = json.dumps(today, indent=1, allow_nan=False)
        for numbers_only in sorted(set(re.findall(r"\[[^\[\]{}]*\]", text)), key=len, reverse=True):
            text = text.replace(numbers_only, "[" + " ".join(numbers_only[1:-1].split()) + "]")
        GOLDEN.write_text(text + "\n", encoding="utf-8")
        return
    found, wanted = leaves(today), leaves(json.loads(GOLDEN.read_text(encoding="utf-8")))
    wrong = {
        path: (wanted.get(path), found.get(path))
        for path in sorted(found.keys() | wanted.keys())
        if path not in found or path not in wanted or found[path] != approximately(wanted[path])
    }
    assert not wrong, f"(pinned, today): {wrong}; if meant, regenerate (see the top of this file)"


def approximately(value: Any) -> Any:
    return pytest.approx(value, rel=1e-10, abs=1e-12) if isinstance(value, float) else value
