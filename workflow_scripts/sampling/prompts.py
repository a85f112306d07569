"""From a question to the token ids a model is given: one function per prompt family, the same in training and
evaluation."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerBase

from workflow_scripts.errors import UserError
from workflow_scripts.sampling import TEMPLATE_DATE

_RANDOM = re.compile(r"\|\s*random\b|\blipsum\b")  # what of Jinja is not the same at every call


class PromptError(UserError):
    """The tokenizer cannot make prompts of this family; one line for the user."""


def _families() -> dict[str, dict[str, Any]]:
    return json.loads(Path(__file__).with_name("prompts.json").read_text(encoding="utf-8"))


def encode(
    tokenizer: PreTrainedTokenizerBase, questions: list[str], family: str, date: str | None = None
) -> list[list[int]]:
    """Token ids of each question in a prompt family: a text template, or the tokenizer's own chat template.

    A prompt is a text to continue: what the tokenizer appends to a text, such as its end token, is left out.
    date (YYYY-MM-DD; None: TEMPLATE_DATE): what a chat template that asks for the current date is told; the clock is
    never read.
    Raises PromptError if the family needs a chat template and the tokenizer has none, or has one that draws at random
    or ends a prompt with the end token instead of starting the answer.
    """
    form = _families()[family]
    texts = [form["question"].replace("{question}", question) for question in questions]
    if "system" not in form:
        return _without_end(tokenizer, tokenizer(texts)["input_ids"] if texts else [])
    if tokenizer.chat_template is None:
        raise PromptError(f"model.prompt_family: {family}: the tokenizer has no chat template; use plain or base")
    if _RANDOM.search(str(tokenizer.chat_template)):
        raise PromptError(
            f"model.prompt_family: {family}: the tokenizer's chat template draws at random (random or lipsum), and its "
            "prompts would differ from run to run; use plain or base, or give the tokenizer another chat template"
        )
    before = [{"role": "system", "content": form["system"]}] if form["system"] else []
    for question, answer in form.get("examples", []):
        before += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    try:
        prompts = _templated(tokenizer, before, texts, date or TEMPLATE_DATE)
    except TemplateError as error:
        raise PromptError(f"model.prompt_family: {family}: the tokenizer's chat template fails: {error}") from None
    for ids in prompts:
        refuse_ended(tokenizer, ids, {tokenizer.eos_token_id}, family)
    return prompts


def refuse_ended(tokenizer: PreTrainedTokenizerBase, ids: list[int], ends: set[int], family: str) -> None:
    """Raises PromptError for a prompt in which only white space follows one of these end tokens."""
    for token in reversed(ids):
        if token in ends:
            raise PromptError(
                f"model.prompt_family: {family}: the tokenizer's chat template ends the prompt with the end token "
                f"{tokenizer.decode([token])} and does not begin the answer; use plain or base, or give the tokenizer "
                "a chat template that follows add_generation_prompt"
            )
        if tokenizer.decode([token]).strip():
            return


def check_positions(config: Any, prompts: list[list[int]], key: str, completion: int) -> None:
    """Raises PromptError where the longest prompt with a whole completion is longer than the model can take."""
    limit = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    prompt = max(map(len, prompts), default=0)
    if limit is not None and prompt + completion > limit:
        left = limit - completion
        shorter = key.startswith("rollout.") and left >= min(map(len, prompts))
        out = f"; or rollout.max_prompt: {left}, which leaves out the problems with longer prompts" if shorter else ""
        raise PromptError(
            f"{key}: {completion}: at most {limit - prompt}: the longest prompt has {prompt} tokens, and the model "
            f"takes {limit} tokens{out}"
        )


def appended(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens that the tokenizer appends to every text."""
    probe = "1"
    text, whole = (tokenizer(probe, add_special_tokens=special)["input_ids"] for special in (False, True))
    for start in range(len(whole) - len(text) + 1):
        if whole[start : start + len(text)] == text:
            return list(whole[start + len(text) :])
    return []


def _without_end(tokenizer: PreTrainedTokenizerBase, prompts: list[list[int]]) -> list[list[int]]:
    """Without what the tokenizer appends, and without end tokens that a question's own text may end with."""
    behind = len(appended(tokenizer))
    kept = []
    for ids in prompts:
        end = len(ids) - behind
        while end > 0 and ids[end - 1] == tokenizer.eos_token_id:
            end -= 1
        kept.append(list(ids[:end]))
    return kept


def _templated(
    tokenizer: PreTrainedTokenizerBase, before: list[dict[str, str]], texts: list[str], date: str
) -> list[list[int]]:
    """strftime_now is the one thing that transformers gives a template and that reads the clock; it is replaced."""
    chats = [[*before, {"role": "user", "content": text}] for text in texts]
    midnight = datetime.fromisoformat(date)
    return tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, tokenize=True, return_dict=True, strftime_now=midnight.strftime
    )["input_ids"]
