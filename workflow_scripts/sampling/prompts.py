"""From a question to the token ids a model is given: one function per prompt family, the same in training and
evaluation."""

import json
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerBase


class PromptError(Exception):
    """The tokenizer cannot make prompts of this family; one line for the user."""


def _families() -> dict[str, dict[str, Any]]:
    return json.loads(Path(__file__).with_name("prompts.json").read_text(encoding="utf-8"))


def encode(tokenizer: PreTrainedTokenizerBase, questions: list[str], family: str) -> list[list[int]]:
    """Token ids of each question in a prompt family: a text template, or the tokenizer's own chat template.

    Raises PromptError if the family needs a chat template and the tokenizer has none.
    """
    form = _families()[family]
    texts = [form["question"].replace("{question}", question) for question in questions]
    if "system" not in form:
        return tokenizer(texts)["input_ids"]
    if tokenizer.chat_template is None:
        raise PromptError(f"model.prompt_family: {family}: the tokenizer has no chat template; use plain or base")
    before = [{"role": "system", "content": form["system"]}] if form["system"] else []
    for question, answer in form.get("examples", []):
        before += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    try:
        return _templated(tokenizer, before, texts)
    except TemplateError as error:
        raise PromptError(f"model.prompt_family: {family}: the tokenizer's chat template fails: {error}") from None


def _templated(tokenizer: PreTrainedTokenizerBase, before: list[dict[str, str]], texts: list[str]) -> list[list[int]]:
    chats = [[*before, {"role": "user", "content": text}] for text in texts]
    return tokenizer.apply_chat_template(chats, add_generation_prompt=True, tokenize=True, return_dict=True)[
        "input_ids"
    ]
