"""Whether two objectives have the same gradients wherever training can take them, by evaluating both.

The objectives are evaluated with the functions that train, on rollouts made up so that every count of correct ones,
both signs of the advantage and both sides of every bound occur. The gradient is that of the loss of an optimizer step
with respect to the log-probability of each token. Importing this module imports torch, which takes longer than reading
a study, so `static_gate` calls it only for arms that may be equal.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from workflow_scripts.objectives import advantage as advantages
from workflow_scripts.objectives import aggregation, ratio
from workflow_scripts.objectives.bounds import Bounds, Group
from workflow_scripts.objectives.checked import PolicyError, checked
from workflow_scripts.objectives.lookup import keywords, named
from workflow_scripts.study.static_gate import FARTHEST, RESOLUTION, Setting

LARGEST_GROUP, MOST_COUNTS, MOST_BOUNDS, LONGEST = 4096, 16, 400, 5
EDGE = 1e-5  # how far from a bound, in log ratio, both of its sides are tried
PROBABILITIES = (1e-6, 0.01, 0.1, 0.3, 0.5, 0.64, 0.8, 0.95, 1.0)
EQUAL = 1e-6  # relative; a gradient in float32 is no more exact


@dataclass(frozen=True)
class _Rollouts:
    """Rollouts of one optimizer step: advantage and correct (B,1), of which each objective has its own; log_ratio, old,
    reference, sampled and mask (B,T)."""

    advantage: Tensor
    correct: Tensor
    log_ratio: Tensor
    old: Tensor
    reference: Tensor
    sampled: Tensor
    mask: Tensor

    def repeated(self, log_ratios: Tensor) -> "_Rollouts":
        """Each rollout at each of these log ratios, the same for all of its tokens."""
        parts = {name: value.repeat(len(log_ratios), 1) for name, value in vars(self).items()}
        at = log_ratios.repeat_interleave(len(self.mask)).unsqueeze(1).expand_as(parts["mask"])
        return _Rollouts(**parts | {"log_ratio": at.clone()})


def _policy(objective: dict[str, Any]) -> Any:
    if "bounds" not in objective:
        return None
    policy = named("bounds", objective["bounds"])
    return partial(policy, **keywords(policy, objective))


def _bounds(objective: dict[str, Any], rollouts: _Rollouts, group_size: int) -> Bounds | None:
    policy = _policy(objective)
    old = rollouts.old.masked_fill(rollouts.mask == 0, 0.0)
    group = Group(rollouts.advantage, rollouts.correct, group_size, old, rollouts.mask)
    return None if policy is None else checked(policy, group)


def _gradient(objective: dict[str, Any], rollouts: _Rollouts, setting: Setting) -> Tensor:
    """(B,T): d loss / d log-probability of each token."""
    log_prob = (rollouts.old + rollouts.log_ratio).requires_grad_()
    mask, minibatches = rollouts.mask, setting.minibatches
    level = {"token": ratio.token, "sequence": ratio.sequence}[objective["ratio"]]
    importance = torch.exp(level((log_prob - rollouts.old) * mask, mask))
    function = named("surrogate", objective["surrogate"])
    limits = _bounds(objective, rollouts, setting.group_size)
    loss = function(importance, rollouts.advantage, log_prob, limits, **keywords(function, objective))
    if setting.engine == "vllm":
        loss = loss * rollouts.sampled
    if objective.get("beta"):
        difference = rollouts.reference - log_prob
        kl = torch.exp(difference) - difference - 1
        loss = loss + objective["beta"] * (kl * importance if objective["kl"] == "k3_importance" else kl)
    tokens = mask.sum()
    # the other minibatches of a rollout batch hold other rollouts, longer or shorter ones where lengths can differ
    others = (minibatches - 1) * (tokens * 1.3 if setting.max_completion > 1 else tokens)
    step = aggregation.Step(tokens + others, tokens, minibatches, len(mask), setting.max_completion)
    aggregate = getattr(aggregation, objective["aggregation"].replace("-", "_"))
    (gradient,) = torch.autograd.grad(aggregate(loss, mask, step), log_prob)
    return gradient


def _rewards(setting: Setting, thresholds: tuple[float, ...]) -> Tensor:
    """(G,k): groups with every number of correct rollouts that gives an advantage; of shaped rewards also others."""
    size = setting.group_size
    counts = torch.linspace(1, size - 1, min(size - 1, MOST_COUNTS)).round().long().unique().tolist()
    if setting.binary_reward:
        return torch.stack([(torch.arange(size) < count).double() for count in counts])
    low, high = min(thresholds), max(thresholds)
    steps = torch.arange(size, dtype=torch.float64) / size
    groups = [
        torch.where(torch.arange(size) < count, top + steps, low - 1 - 0.5 * steps)
        for count in (0, *counts, size)
        for top in dict.fromkeys((low, high))
    ]
    return torch.stack(groups)


def _advantage(objective: dict[str, Any], reward: Tensor, correct: Tensor) -> Tensor:
    chosen = objective["advantage"]
    value: Tensor = named("advantage", chosen["scale"])(reward)
    gamma = chosen.get("focal_gamma")
    return value if gamma is None else advantages.focal(value, correct, focal_gamma=gamma)


def _rollouts(objective: dict[str, Any], reward: Tensor, threshold: float, setting: Setting) -> _Rollouts:
    """The first and the last two rollouts of each group: of binary rewards, right and wrong ones."""
    success = reward >= threshold
    correct = success.sum(1, keepdim=True).double()
    size = reward.shape[1]
    taken = sorted({0, min(1, size - 1), max(size - 2, 0), size - 1})
    a = _advantage(objective, reward, correct)[:, taken].reshape(-1, 1)
    count = correct.expand(-1, len(taken)).reshape(-1, 1)
    longest = min(setting.max_completion, LONGEST)
    random = torch.Generator().manual_seed(0)
    shape = (len(a), longest)
    mask = (torch.arange(longest) < (torch.arange(len(a)) % longest + 1).unsqueeze(1)).double()
    old = torch.tensor(PROBABILITIES, dtype=torch.float64).log().repeat(len(a) * longest)[: len(a) * longest]
    reference = old.view(shape) - 0.5 * torch.randn(shape, generator=random, dtype=torch.float64)
    sampled = 0.5 + torch.rand(shape, generator=random, dtype=torch.float64)
    return _Rollouts(a, count, torch.zeros(shape, dtype=torch.float64), old.view(shape), reference, sampled, mask)


def _log_ratios(limits: list[Bounds | None]) -> Tensor:
    """Where to look: everywhere coarsely, on both sides of every bound, and between each two neighbouring bounds."""
    finite = [b for both in limits if both is not None for b in (both.lower.flatten(), both.upper.flatten())]
    edges = torch.cat(finite) if finite else torch.empty(0, dtype=torch.float64)
    edges = edges[torch.isfinite(edges) & (edges > 0)].double().log().unique()
    edges = edges[edges.abs() < FARTHEST]
    if len(edges) > 1:
        edges = edges[torch.cat([torch.tensor([True]), edges.diff() > RESOLUTION])]
    if len(edges) > MOST_BOUNDS:
        edges = edges[torch.linspace(0, len(edges) - 1, MOST_BOUNDS).long()]
    coarse = torch.linspace(-FARTHEST, FARTHEST, 33, dtype=torch.float64)
    return torch.cat([coarse, edges - EDGE, edges + EDGE, (edges[1:] + edges[:-1]) / 2])


def equal(one: dict[str, Any], other: dict[str, Any], setting: Setting, thresholds: tuple[float, float]) -> bool:
    """Whether the objectives of two arms, alike in all else, have equal gradients. thresholds: from which reward on a
    rollout of the one and of the other counts as correct. False where a policy fails, and for larger groups than anyone
    trains on."""
    if setting.group_size > LARGEST_GROUP:
        return False
    rewards = _rewards(setting, thresholds)
    batches = rewards.split(1) if setting.prompts == 1 else [rewards]  # one group's standard deviation is the batch's
    try:
        return all(_equal_on(reward, (one, other), setting, thresholds) for reward in batches)
    except PolicyError:
        return False


def _equal_on(
    reward: Tensor, objectives: tuple[dict[str, Any], ...], setting: Setting, thresholds: tuple[float, ...]
) -> bool:
    at_one = [_rollouts(*each, setting) for each in zip(objectives, (reward, reward), thresholds, strict=True)]
    places = [at_one]
    if setting.updates > 1:
        limits = [_bounds(*each, setting.group_size) for each in zip(objectives, at_one, strict=True)]
        moved = _log_ratios(limits)
        places.append([rollouts.repeated(moved) for rollouts in at_one])
        places.append([replace(rollouts, log_ratio=0.3 * (rollouts.sampled - 1)) for rollouts in at_one])
    for pair in places:
        first, second = (_gradient(*each, setting) for each in zip(objectives, pair, strict=True))
        if not torch.allclose(first, second, rtol=EQUAL, atol=0):
            return False
    return True
