"""Clip policies of whole completions, replayed on the records of a training; and what a policy may ask a Group for."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pytest
import torch
import yaml
from test_policies import AXES, CLIPPED, ROOT, TOKEN, records_of, trained
from training_run import Run

from workflow_scripts.analysis import policies as policies_of
from workflow_scripts.objectives import bounds
from workflow_scripts.objectives.bounds import Bounds, Group

# Clip policies that anyone might write, whose bounds are no elementwise function of the old log-probability: of the
# length, the mean probability, the position, and the sum of a window; and one that looks at other rollouts.


def length_width(group: Group, *, eps_low: float, eps_high: float) -> Bounds:
    return bounds._one_sided(group, 1 - eps_low, 1 + eps_high / (1 + group.completion_tokens / 20))


def counted_length(group: Group, *, eps_low: float, eps_high: float) -> Bounds:
    length = (group.old_log_prob != 0).sum(1, keepdim=True).to(group.advantage.dtype)  # 0 behind the end
    return bounds._one_sided(group, 1 - eps_low, 1 + eps_high / (1 + length / 20))


def prob_width(group: Group, *, eps_low: float, eps_high: float) -> Bounds:
    return bounds._one_sided(group, 1 - eps_low, 1 + eps_high * (1.1 - group.old_log_prob.exp()))


def mean_prob(group: Group, *, eps_low: float, eps_high: float) -> Bounds:
    mean = (group.old_log_prob.exp() * group.mask).sum(1, keepdim=True) / group.completion_tokens.clamp(min=1)
    return bounds._one_sided(group, 1 - eps_low, 1 + eps_high * (1.1 - mean))


def late_tokens(group: Group, *, eps_low: float, eps_high: float) -> Bounds:
    return bounds._one_sided(group, 1 - eps_low, 1 + eps_high * (1.1 - torch.exp(-group.position / 5)))


def so_far(group: Group, *, eps_low: float, eps_high: float) -> Bounds:
    return bounds._one_sided(group, 1 - eps_low, 1 + eps_high / (1 - group.old_log_prob.cumsum(1) / 50))


def crowded(group: Group, *, eps_low: float, eps_high: float) -> Bounds:
    return bounds._one_sided(group, 1 - eps_low, 1 + eps_high * group.advantage.abs().sum() / 8)


WHOLE = {f.__name__: f for f in (length_width, counted_length, prob_width, mean_prob, late_tokens, so_far)}
OF_OTHERS = {f.__name__: f for f in (crowded,)}
WIDTHS = {"token": {"eps_low": 0.2, "eps_high": 0.28}, "sequence": {"eps_low": 0.02, "eps_high": 0.06}}


@contextmanager
def registered(name: str) -> Iterator[dict[str, dict[str, Any]]]:
    """As if the function stood in objectives/bounds.py; by ratio, the policies of that name and `ppo`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, name, (WHOLE | OF_OTHERS)[name], raising=False)
        yield {
            ratio: {name: {"bounds": name, **widths}, "ppo": {"bounds": "ppo", **widths}}
            for ratio, widths in WIDTHS.items()
        }


@lru_cache(None)
def trained_with(ratio: str, name: str) -> dict[str, pd.DataFrame]:
    with registered(name) as policies, TemporaryDirectory() as folder:
        objective = {**AXES, "ratio": ratio, **policies[ratio][name]}
        run = Run(Path(folder), objective, steps=8, checkpoints=[8]).train()
        return {table: rows.to_pandas() for table, (_, rows) in run.recorder.tables().items()}


@pytest.mark.parametrize("ratio", ["token", "sequence"])
@pytest.mark.parametrize("name", WHOLE)
def test_a_policy_of_whole_completions_gives_back_what_training_recorded(ratio: str, name: str) -> None:
    run = trained_with(ratio, name)
    assert run["rollouts"]["completion_tokens"].nunique() > 1
    recorded = run["rollout_updates"].query("update_index >= 1").reset_index(drop=True)
    with registered(name) as policies:
        records = records_of(run, ratio)
        assert records.contradiction(policies[ratio][name]) is None
        assert records.ask(policies[ratio][name])[CLIPPED].to_numpy().tolist() == recorded[CLIPPED].to_numpy().tolist()
        assert recorded[CLIPPED].to_numpy().sum() > 0
        rows = policies_of.ask(records, policies[ratio][name], policies[ratio])
    assert rows["reason"].isna().all() and rows["decisive_tokens"].notna().all()


@pytest.mark.parametrize("ratio", ["token", "sequence"])
@pytest.mark.parametrize("name", WHOLE)
def test_without_the_old_log_probabilities_an_answer_is_right_or_null(ratio: str, name: str) -> None:
    """With compute.keep.rollouts: false only those of the tail are there."""
    run = trained_with(ratio, name)
    recorded = run["rollout_updates"].query("update_index >= 1").reset_index(drop=True)
    with registered(name) as policies:
        records = records_of(run, ratio, kept=False)
        try:
            found = records.ask(policies[ratio][name])
        except policies_of.Unanswerable as why:
            assert str(why).endswith("this run did not keep all old log-probabilities (compute.keep.rollouts: false)")
            answered = False
        else:
            assert found[CLIPPED].to_numpy().tolist() == recorded[CLIPPED].to_numpy().tolist()
            answered = True
        # the length is known, and so is the probability of a token in the tail, its place too
        elementwise = {"length_width", "counted_length"} | (
            {"prob_width", "late_tokens"} if ratio == "token" else set()
        )
        assert answered == (name in elementwise)


@pytest.mark.parametrize("ratio", ["token", "sequence"])
@pytest.mark.parametrize("name", OF_OTHERS)
def test_records_that_contradict_their_own_policy_answer_no_other(ratio: str, name: str) -> None:
    """A bound that depends on the micro-batch, that is, on its other rollouts, cannot be replayed."""
    run = trained_with(ratio, name)
    with registered(name) as policies:
        rows = policies_of.ask(records_of(run, ratio), policies[ratio][name], policies[ratio])
    assert (rows["tokens"] > 0).all()
    assert rows["clipped_quadrant_1_tokens"].isna().all() and rows["decisive_tokens"].isna().all()
    said = f"the records do not reproduce the run's own clip policy, {name}: training clipped "
    assert rows["reason"].str.startswith(said).all()


def test_rounding_is_no_contradiction_and_one_token_is(tmp_path: Path) -> None:
    """A GPU's exponential may put a ratio on the other side of a bound that is its neighbour in float32."""
    run = trained("token", "ppo")
    tail, later = run["tail_tokens"].copy(), run["rollout_updates"]
    keys = ["step", "prompt_position", "rollout"]
    ratio = tail.merge(later[later["advantage"] > 0], on=keys, how="left")["advantage"].notna()
    above = tail[ratio & (tail["log_ratio"] > math.log(1.28)) & (tail["step"] % 4 != 1)].index[0]
    for log_ratio, contradicts in ((math.log(1.28) - 1e-7, False), (math.log(1.28) - 1e-3, True)):
        moved = tail.assign(log_ratio=tail["log_ratio"].where(tail.index != above, log_ratio).astype("float32"))
        replay = policies_of.Records(later, moved, "token", run["rollouts"])
        assert bool(replay.contradiction(TOKEN["ppo"])) == contradicts


ASKING = """
def curious(group, *, half_width: float):
    return _one_sided(group, 1 - half_width, 1 + half_width * group.entropy)

def indirect(group, *, half_width: float):
    return _one_sided(group, 1 - half_width, 1 + half_width * _step(group))

def _step(here: Group):
    return here.step

def given(group, *, half_width: float):
    here = group
    return _one_sided(group, 1 - half_width, 1 + half_width * _reward(2, value=here))

def _reward(scale, *, value):
    return scale * getattr(value, "reward")

def counted(group, *, half_width: float):
    return _one_sided(group, 1 - half_width, 1 + half_width * (1 - 0.5 * (_length(group) > 20)))

def _length(completions):
    return (completions.old_log_prob != 0).sum(1, keepdim=True)

def modest(group, *, half_width: float):
    return _one_sided(group, 1 - half_width, 1 + half_width * group.completion_tokens * group.mask.shape[1])
"""


def test_a_policy_that_asks_for_what_a_group_lacks_is_refused() -> None:
    """In the policy itself or in a helper of it; before anything is trained. `counted` differs from the baseline's
    fixed width only for completions longer than those on which gradients are compared."""
    configs = []
    for name in ("curious", "indirect", "given", "counted", "modest"):
        config = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
        config["arms"]["gspo_asym"] |= {"eps_low": 0.1, "eps_high": 0.1}
        config["arms"]["gapo"] = {"preset": "gapo_seq", "bounds": name, "half_width": 0.1}
        configs.append(config)
    script = (
        "import ast, json, sys; from workflow_scripts import digest;"
        "policies, configs = json.load(sys.stdin);"
        "from workflow_scripts.objectives import bounds; exec(policies, vars(bounds));"
        "digest._tree('workflow_scripts.objectives.bounds').body.extend(ast.parse(policies).body);"
        "from workflow_scripts.study import StudyFaults, load\n"
        "for config in configs:\n"
        "    try: load(config)\n"
        "    except StudyFaults as error: print(error)"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], check=True, cwd=ROOT, capture_output=True, text=True,
        input=json.dumps([ASKING, configs]),
    ).stdout  # fmt: skip
    holds = "which a Group does not hold; a Group holds advantage, group_correct, group_size, old_log_prob, mask"
    assert [line.partition(", completion_tokens")[0] for line in said.splitlines()] == [
        f"arms.gapo.bounds: 'curious': it reads group.entropy, {holds}",
        f"arms.gapo.bounds: 'indirect': it reads group.step, {holds}",
        f"arms.gapo.bounds: 'given': it reads group.reward, {holds}",
    ]
