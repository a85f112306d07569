"""Stop strings: every engine ends a completion where the shortest prefix contains one, and grades what comes before."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from byte_tokenizers import KINDS, byte_level
from hypothesis import given
from hypothesis import strategies as st
from test_sampling import SIZES
from training_run import ROLLOUT, Run
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from workflow_scripts.grading import grade_many
from workflow_scripts.sampling import Completion, Options
from workflow_scripts.sampling import vllm_engine as vllm
from workflow_scripts.sampling.stop_strings import StopWatch, cut, end_at_stop
from workflow_scripts.sampling.transformers_engine import sample
from workflow_scripts.training.scored import Scored
from workflow_scripts.training.vllm_rollouts import Rollouts

TOKENIZERS = {name: make() for name, make in KINDS.items()}
STOPS = [("\n\n",), ("\n\nQuestion:",), ("n:", " 1"), ("題",), ("é",), ("8", "18"), (" ",), ("Ann has", "#")]


def defined(tokenizer: PreTrainedTokenizerFast, token_ids: list[int], stop: tuple[str, ...]) -> list[int] | None:
    """The definition: the shortest prefix whose text contains a stop string; None if there is none."""
    for count in range(1, len(token_ids) + 1):
        text = tokenizer.decode(token_ids[:count], skip_special_tokens=True)
        if any(string in text for string in stop):
            return token_ids[:count]
    return None


def ends_by_watch(tokenizer: PreTrainedTokenizerFast, token_ids: list[int], stop: tuple[str, ...]) -> list[int] | None:
    watch = StopWatch(tokenizer, stop)
    for count in range(1, len(token_ids) + 1):
        if watch.reached([token_ids[:count]])[0]:
            return token_ids[:count]
    return None


@pytest.mark.parametrize("stop", STOPS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_token_by_token_the_end_is_that_of_the_definition(kind: str, stop: tuple[str, ...], data: Any) -> None:
    tokenizer = TOKENIZERS[kind]
    pieces = [
        "#### 18",
        "\n\n",
        "\n",
        "Question:",
        " ",
        "問題",
        "é",
        "Ann has 12 pens .",
        "<s>",
        "[SEP]" * 20,
        stop[-1],
        stop[0][:1],
    ]
    drawn = data.draw(st.lists(st.sampled_from(pieces) | st.integers(0, len(tokenizer) + 3), max_size=12))
    token_ids = [
        token
        for piece in drawn
        for token in ([piece] if isinstance(piece, int) else tokenizer(piece, add_special_tokens=False)["input_ids"])
    ]
    expected = defined(tokenizer, token_ids, stop)
    assert ends_by_watch(tokenizer, token_ids, stop) == expected
    assert end_at_stop(tokenizer, token_ids, stop) == (expected or token_ids)


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("#### 18\n\nQuestion: next #### 20", ("\n\nQuestion:",), ("#### 18", True)),
        ("a b c", ("c", "b"), ("a ", True)),  # the first in the text, not in the list
        ("stop", ("stop",), ("", True)),
        ("Question:", ("\n\nQuestion:",), ("Question:", False)),
        ("anything", None, ("anything", False)),
    ],
)
def test_the_text_ends_before_the_first_stop_string(text: str, stop: Any, expected: tuple[str, bool]) -> None:
    assert cut(text, stop) == expected


def test_a_half_character_behind_a_stop_string_does_not_hide_it() -> None:
    tokenizer = byte_level(merges=0)
    token_ids = tokenizer("18:é", add_special_tokens=False)["input_ids"]
    assert end_at_stop(tokenizer, token_ids, ("8:",)) == ends_by_watch(tokenizer, token_ids, ("8:",)) == token_ids[:3]
    assert ends_by_watch(tokenizer, token_ids, ("é",)) == token_ids
    assert ends_by_watch(tokenizer, token_ids[:-1], ("é",)) is None


def random_llama(size: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES | {"vocab_size": size})).eval()


@pytest.mark.parametrize("kind", KINDS)
def test_the_transformers_engine_ends_where_the_definition_says(kind: str) -> None:
    """A completion with stop strings is that without, up to the definition's end: the seeds are the same."""
    tokenizer, prompts, seeds = TOKENIZERS[kind], [[5, 6, 7], [5, 8]] * 40, list(range(80))
    model = random_llama(len(tokenizer))
    long = Options(1.0, 1.0, 30)
    stop = tuple(tokenizer.decode([token]) for token in (len(tokenizer) - 1, len(tokenizer) // 2, 40, 41, 42))
    stop = tuple(string for string in stop if string.strip("\ufffd "))
    without = sample(model, tokenizer, prompts, seeds, long, 16)
    drawn = sample(model, tokenizer, prompts, seeds, Options(1.0, 1.0, 30, stop=stop), 16)
    ends = {model.generation_config.eos_token_id, tokenizer.eos_token_id}
    stopped = 0
    for one, whole in zip(drawn, without, strict=True):
        end = defined(tokenizer, whole.token_ids, stop)
        stopped += end is not None
        assert one.token_ids == (end or whole.token_ids)
        assert one.truncated == (end is None and whole.token_ids[-1] not in ends)
    assert 10 < stopped < 80


def test_a_stop_string_at_the_token_limit_is_no_truncation() -> None:
    tokenizer = TOKENIZERS["bytes"]
    model = random_llama(len(tokenizer))
    first = sample(model, tokenizer, [[5]], [1], Options(1.0, 1.0, 1), 1)[0]
    text = tokenizer.decode(first.token_ids)
    assert first.truncated
    assert sample(model, tokenizer, [[5]], [1], Options(1.0, 1.0, 1, stop=(text,)), 1) == [
        Completion(first.token_ids, False)
    ]


def test_without_stop_strings_nothing_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = TOKENIZERS["bytes"]
    model = random_llama(len(tokenizer))
    monkeypatch.setattr(type(tokenizer), "batch_decode", None)
    monkeypatch.setattr(StopWatch, "reached", None)
    assert len(sample(model, tokenizer, [[5]], [1], Options(1.0, 1.0, 4), 1)) == 1


# --- training ---------------------------------------------------------------------------------------------------------


def test_what_a_stop_string_ends_is_scored_without_it_and_not_truncated() -> None:
    texts = ["#### 18\n\nQuestion:", "#### 18", "#### 1", "#### 18\n\nQuestion: more"]
    scored = Scored.of(texts, ["a"] * 4, [[7, 8], [7, 1], [7, 9], [1, 1]], {1}, ("\n\nQuestion:",))
    assert scored.completions == ["#### 18", "#### 18", "#### 1", "#### 18"]
    assert scored.truncated == [False, False, True, False] and scored.tokens == [2, 2, 2, 2]
    verdicts = grade_many(
        "exact_answer", [(t, "18", c) for t, c in zip(scored.completions, scored.truncated, strict=True)]
    )
    assert [verdict.status for verdict in verdicts] == ["correct", "correct", "truncated", "correct"]
    plain = Scored.of(texts, ["a"] * 4, [[7, 8], [7, 1], [7, 9], [1, 1]], {1}, None)
    assert plain.completions == texts and plain.truncated == [True, False, True, False]


def seen(completions: list[str], **_: Any) -> list[float]:
    """A reward that would see a stop string."""
    assert not any("7" in text for text in completions)
    return [float(len(text) % 2) for text in completions]


@pytest.mark.parametrize("mask_truncated", [False, True])
def test_training_learns_from_what_a_stop_string_ends(
    mask_truncated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ROLLOUT, "stop", ["7", "more"])
    run = Run(tmp_path, reward=seen, mask_truncated=mask_truncated).train()
    records = run.records()
    rollouts, updates = records["rollouts"], records["rollout_updates"]
    end = run.trainer.processing_class.eos_token
    stopped = [row for row in rollouts if not row["truncated"]]
    assert end and 0 < len(stopped) < len(rollouts)
    assert all(row["completion_tokens"] == 8 for row in rollouts if row["truncated"])
    assert any(row["completion_tokens"] < 8 for row in stopped)
    for row in updates:
        assert (row["completion_tokens"] == 0) == (mask_truncated and row["truncated"])
    shares = [entry["completions/clipped_ratio"] for entry in run.trainer.state.log_history if "reward" in entry]
    by_batch = [[row["truncated"] for row in rollouts if row["batch"] == batch] for batch in (0, 1)]
    assert {round(share, 6) for share in shares} == {round(float(np.mean(batch)), 6) for batch in by_batch}


# --- vLLM, which is not installed everywhere: what is asked of it, and what is made of its answer ---------------------


def output(token_ids: list[int], reason: str) -> Any:
    return SimpleNamespace(outputs=[SimpleNamespace(token_ids=token_ids, finish_reason=reason)])


def test_vllm_is_asked_for_the_same_stop_strings_and_cut_at_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    module = SimpleNamespace(SamplingParams=lambda **keys: asked.append(keys) or keys)
    monkeypatch.setitem(__import__("sys").modules, "vllm", module)
    tokenizer = byte_level(merges=0)
    ids = tokenizer("18:é", add_special_tokens=False)["input_ids"]
    engine = object.__new__(vllm.VLLMEngine)
    engine.tokenizer, engine.ends, engine.adapter = tokenizer, {1}, None
    answers = [
        output(ids[:4], "stop"),
        output(ids[:3], "length"),
        output(ids[:2], "length"),
        output([*ids[:2], 1], "stop"),
    ]
    engine.llm = SimpleNamespace(generate=lambda prompts, parameters, **_: answers)
    drawn = engine.sample([[5]] * 4, [0] * 4, Options(1.0, 1.0, 4, stop=("8:",)))
    assert drawn == [
        Completion(ids[:3], False),
        Completion(ids[:3], False),
        Completion(ids[:2], True),
        Completion([*ids[:2], 1], False),
    ]
    assert asked[0]["stop"] == ["8:"] and asked[0]["detokenize"] is True
    assert vllm.sampling_parameters(Options(1.0, 1.0, 4), {1}, 0)["detokenize"] is False
    assert vllm.llm_arguments("cuda", 64, None, decodes=True)["skip_tokenizer_init"] is False
    assert vllm.llm_arguments("cuda", 64, None)["skip_tokenizer_init"] is True


def test_vllm_rollouts_and_their_log_probabilities_are_cut_together() -> None:
    tokenizer = byte_level(merges=0)
    ids = tokenizer("18:é", add_special_tokens=False)["input_ids"]
    rollouts = object.__new__(Rollouts)
    rollouts.generation_kwargs = {"stop": ["8:"]}
    rollouts.temperature, rollouts.top_p, rollouts.max_completion_length, rollouts.mode = 1.0, 1.0, 4, "server"
    rollouts.model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=1))
    rollouts.processing_class, rollouts.seeds = tokenizer, [0]
    asked = []

    def answer(prompts: Any, seeds: Any, options: Options, ends: Any) -> Any:
        asked.append(options.stop)
        return [ids[:4]], [[[-1.0], [-2.0], [-3.0], [-4.0]]], [[[token] for token in ids[:4]]]

    rollouts._from_server = answer
    drawn = rollouts.generate([[5]], None, 1)
    assert drawn == ([[5]], [ids[:3]], [[[-1.0], [-2.0], [-3.0]]], [[[token] for token in ids[:3]]])
    rollouts.generation_kwargs = {}
    assert rollouts.generate([[5]], None, 1)[1] == [ids[:4]] and asked == [("8:",), None]


# --- keys -------------------------------------------------------------------------------------------------------------


def test_options_come_from_settings_and_are_off_where_nothing_is_said() -> None:
    keys = {"temperature": 0.7, "top_p": 1.0, "max_completion": 8}
    assert Options.of(keys) == Options(0.7, 1.0, 8) and Options.of(keys).stop is None
    assert Options.of(json.loads(json.dumps(keys | {"stop": ["a", "b"]}))).stop == ("a", "b")
