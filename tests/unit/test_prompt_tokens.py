"""Prompts are texts to go on with: none ends with what a tokenizer puts behind a text, and none begins twice."""

from collections.abc import Callable
from pathlib import Path

import pytest
from byte_tokenizers import byte_level, sentence_piece
from test_base import prepared
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from workflow_scripts import tables
from workflow_scripts.errors import UserError
from workflow_scripts.sampling.prompts import PromptError, encode

TEXT_FAMILIES = ("plain", "base", "base-boxed", "r1-zero")
TURNS = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}\n{% endfor %}"
BEGINS = "{% if add_generation_prompt %}[assistant] {% endif %}"


@pytest.mark.parametrize("family", TEXT_FAMILIES)
@pytest.mark.parametrize("kind", [byte_level, sentence_piece])
@pytest.mark.parametrize(
    ("single", "begins"),
    [
        ("$A", []),
        ("<s> $A", ["<s>"]),
        ("$A </s>", []),
        ("<s> $A </s>", ["<s>"]),
        ("[CLS] $A [SEP]", ["[CLS]"]),
        ("$A [SEP] </s>", []),
        ("$A </s> [SEP] [SEP]", []),
        ("</s> $A </s>", ["</s>"]),  # OPT begins texts with its end token
    ],
)
def test_what_a_tokenizer_appends_is_left_out(
    single: str, begins: list[str], kind: Callable[[str], PreTrainedTokenizerFast], family: str
) -> None:
    tokenizer, bare = kind(single), kind("$A")
    questions = ["Ann has 18 pens.", "A"]
    expected = encode(bare, questions, family)
    assert encode(tokenizer, questions, family) == [tokenizer.convert_tokens_to_ids(begins) + ids for ids in expected]
    assert bare.decode(expected[0]).count("Ann has 18 pens.") == 1 and encode(tokenizer, [], family) == []


def test_a_question_whose_text_ends_with_the_end_token() -> None:
    for single in ("$A", "$A </s>"):
        tokenizer = byte_level(single)
        assert tokenizer.decode(encode(tokenizer, ["How many?</s></s>"], "plain")[0]) == "How many?"


@pytest.mark.parametrize("single", ["$A", "<s> $A", "<s> $A </s>"])
def test_a_chat_template_begins_the_prompt_once_and_may_end_turns_with_the_end_token(single: str) -> None:
    tokenizer = byte_level(single)
    tokenizer.chat_template = "{{ bos_token }}" + TURNS + BEGINS
    ids = encode(tokenizer, ["How many?"], "chat-examples")[0]
    assert ids.count(tokenizer.bos_token_id) == 1 and ids[0] == tokenizer.bos_token_id
    assert ids.count(tokenizer.eos_token_id) == 6
    assert tokenizer.decode(ids).endswith("[user] How many?</s>\n[assistant] ")


@pytest.mark.parametrize("family", ["chat", "chat-examples", "abc-grpo"])
@pytest.mark.parametrize("behind", ["", " \n", "{{ eos_token }}"])
def test_a_chat_template_that_begins_no_answer_is_refused(behind: str, family: str) -> None:
    tokenizer = byte_level("<s> $A </s>")
    tokenizer.chat_template = TURNS + behind
    with pytest.raises(PromptError, match=rf"^model.prompt_family: {family}: .* with the end token </s> and .*$"):
        encode(tokenizer, ["How many?"], family)


def test_a_template_without_end_tokens_needs_no_generation_prompt() -> None:
    tokenizer = byte_level()
    tokenizer.chat_template = "{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}"
    assert tokenizer.decode(encode(tokenizer, ["How many?"], "abc-grpo")[0]).endswith("How many? [/INST]")


def base(folder: Path, tokenizer: PreTrainedTokenizerFast, ends: list[int]) -> Path:
    """A small model in a folder, with end tokens in its generation config."""
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2
        )
    )
    model.generation_config.eos_token_id = ends
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("single", "said"), [("$A [SEP] </s>", "[SEP]</s>"), ("<s> $A", None)])
def test_the_log_and_the_manifest_of_the_base_say_it_once(
    single: str, said: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = byte_level(single)
    folder = prepared(base(tmp_path / "model", tokenizer, [1]), {"prompt_family": "base"})
    lines = [line for line in capsys.readouterr().out.splitlines() if "appends" in line]
    assert lines == (
        [f"the tokenizer appends {said} to every text; prompts without a chat template leave it out"] if said else []
    )
    assert tables.provenance(folder.parent / "manifest.parquet").get("left_out_of_prompts") == said
    saved = AutoTokenizer.from_pretrained(folder)
    assert saved.eos_token_id not in encode(saved, ["How many?"], "base")[0]


def test_a_template_that_ends_with_another_end_token_of_the_model_is_refused_when_the_base_is_made(
    tmp_path: Path,
) -> None:
    tokenizer = byte_level("$A")
    tokenizer.chat_template = TURNS.replace("eos_token", "sep_token")
    folder = base(tmp_path / "model", tokenizer, [1, 2])
    with pytest.raises(UserError, match=r"^model.prompt_family: chat: .* end token \[SEP\] and does not begin .*$"):
        prepared(folder, {"prompt_family": "chat"})
