"""Any combination of the five axes: the study takes it, and the trainer's objective of it is a finite loss."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import keys
from test_study import small

from workflow_scripts.objectives.aggregation import Step
from workflow_scripts.objectives.bounds import Group
from workflow_scripts.study import StudyFaults, load
from workflow_scripts.study.keys import AGGREGATIONS, POLICIES, RATIOS, SCALES, SURROGATES
from workflow_scripts.training import setup


@st.composite
def arms(draw: st.DrawFn) -> dict[str, Any]:
    """An arm that says every axis itself."""
    surrogate = draw(st.sampled_from(list(SURROGATES)))
    chosen = draw(st.sampled_from(list(POLICIES))) if surrogate == "clipped" else surrogate
    focal = draw(st.none() | st.floats(0, 3))
    return {
        "ratio": draw(st.sampled_from(RATIOS)),
        "surrogate": surrogate,
        **({"bounds": chosen} if surrogate == "clipped" else {}),
        "advantage": {"scale": draw(st.sampled_from(SCALES)), **({} if focal is None else {"focal_gamma": focal})},
        "aggregation": draw(st.sampled_from(AGGREGATIONS)),
        **keys("bounds" if surrogate == "clipped" else "surrogate", chosen),
    }


@settings(max_examples=100, deadline=None)
@given(arm=arms(), beta=st.sampled_from([0.0, 0.1]), seed=st.integers(0, 99))
def test_any_combination_is_an_objective(arm: dict[str, Any], beta: float, seed: int) -> None:
    config = small(**{"arms.gapo": arm, "training.beta": beta})
    if arm.get("bounds") == "dcpo" and arm["ratio"] == "sequence":
        with pytest.raises(StudyFaults, match="probability of each token"):
            load(config)
        return
    axes = load(config).resolved("gapo").objective
    assert {key: axes[key] for key in arm} == arm
    objective = setup.make_objective(axes, beta)
    random = torch.Generator().manual_seed(seed)
    reward = torch.randint(0, 2, (2, 4), generator=random, dtype=torch.float64)
    correct = reward.sum(1, keepdim=True)
    advantage = objective.advantage(reward, correct).reshape(-1, 1)
    log_prob = (-torch.rand(8, 5, generator=random, dtype=torch.float64)).requires_grad_()
    old, mask = log_prob.detach() - 0.1, (torch.rand(8, 5, generator=random) > 0.2).double()
    importance = torch.exp(objective.log_ratio(log_prob - old, mask))
    limits = (
        objective.bounds(Group(advantage, correct.expand(2, 4).reshape(-1, 1), 4, old)) if objective.bounds else None
    )
    loss = objective.surrogate(importance, advantage, log_prob, limits)
    step = Step(mask.sum(), mask.sum(), minibatches=1, minibatch_rollouts=8, max_completion=5)
    total = objective.aggregate(loss, mask, step)
    total.backward()
    assert torch.isfinite(total) and log_prob.grad is not None and torch.isfinite(log_prob.grad).all()
    if (reward.std(1) == 0).all():
        assert total == 0
