"""Values of a study's keys: types with their ranges, and what is said of a value outside."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from workflow_scripts import grading
from workflow_scripts.benchmarks.fields import template_fault
from workflow_scripts.study.faults import nearest
from workflow_scripts.study.own_code import WRITTEN

_LARGEST = 10**9
_MOST_SEEDS = 10_000
_MOST_STOP_STRINGS = 16
_COMMIT = "[0-9a-f]{40}"


def _no_flag(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number, not true or false")
    return value


def _as_json(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        raise ValueError("finite numbers, texts, flags, and lists and mappings of them") from None
    return value


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", value):
        raise ValueError("a name that can be a folder: letters, digits, _ and -, at most 64, not starting with _ or -")
    if re.search(r"(.+)\1{19}$", value):  # Snakemake takes it for a loop
        raise ValueError("a name that does not end in the same characters twenty times over")
    return value


def _arm_name(value: str) -> str:
    if value == "base":
        raise ValueError("this name is reserved for the model before training; choose another")
    return _name(value)


def _own_function(value: str) -> str:
    if not WRITTEN.fullmatch(value):
        raise ValueError("a function of your own is written package.module:function")
    return value


@dataclass(frozen=True)
class Function:
    """Annotation of a text that is one of these names, or package.module:function of the user's own."""

    names: tuple[str, ...]

    def _check(self, value: str) -> str:
        if ":" in value:
            return _own_function(value)
        if value not in self.names:
            raise ValueError(f"one of {', '.join(self.names)}, or package.module:function{nearest(value, self.names)}")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"anyOf": [{"enum": list(self.names)}, {"pattern": ":"}]}


def _reward(value: str) -> str:
    if ":" in value:
        _own_function(value)
    elif value not in grading.names():
        raise ValueError(
            f"a grader ({', '.join(grading.names())}) or package.module:function{nearest(value, grading.names())}"
        )
    return value


def _grader(value: str) -> str:
    if value not in grading.names():
        raise ValueError(f"one of {', '.join(grading.names())}{nearest(value, grading.names())}")
    return value


def _column(value: str) -> str:
    if "{" in value and (fault := template_fault(value)):
        raise ValueError(fault)
    return value


def _commit(value: str) -> str:
    if not re.fullmatch(_COMMIT, value):
        raise ValueError("a commit, 40 digits of 0-9a-f: what a branch or tag names can change under the results")
    return value


def _day(value: Any) -> str:
    """YAML reads a date that is not in quotes as a date."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    try:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
            return date.fromisoformat(value).isoformat()
    except ValueError:
        pass
    raise ValueError("a date, YYYY-MM-DD")


def _count_of_seeds(value: Any) -> Any:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value[:10])
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= _MOST_SEEDS:
            raise ValueError(f"a count from 1 to {_MOST_SEEDS}, or a list of seeds")
        return list(range(value))
    if not isinstance(value, list):
        raise ValueError("a count of seeds, or a list of them")
    return value


def _distinct(values: list[Any]) -> list[Any]:
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise ValueError(f"each only once; {', '.join(map(str, twice))} stands twice")
    return values


def _or_count(word: str, number: str) -> tuple[BeforeValidator, WithJsonSchema]:
    """What makes a key a word or a whole number from 1; number: what that is called."""

    def read(value: Any) -> Any:
        if value == word:
            return value
        try:
            count = 0 if isinstance(value, (bool, float)) else int(value)
        except (TypeError, ValueError):
            count = 0
        if not 1 <= count <= _LARGEST:
            raise ValueError(f"{word}, or {number}")
        return count

    schema = {"anyOf": [{"const": word}, {"type": "integer", "minimum": 1}]}
    return BeforeValidator(read), WithJsonSchema(schema)


def _form(value: Any) -> str:
    return "<mapping>" if isinstance(value, Mapping) else "<list>" if isinstance(value, (list, tuple)) else "<one>"


def _forms(allowed: str) -> Discriminator:
    return Discriminator(_form, custom_error_type="form", custom_error_message=allowed)


_Numeric = BeforeValidator(_no_flag)
Distinct = AfterValidator(_distinct)
Number = Annotated[float, _Numeric]
Positive = Annotated[float, Field(gt=0), _Numeric]
NotNegative = Annotated[float, Field(ge=0), _Numeric]
Share = Annotated[float, Field(gt=0, lt=1), _Numeric]
LEAST = 1e-6  # of a level or a margin: below it no study could show anything
MOST_ALPHA = 0.5  # from here on two one-sided tests would place any difference within any margin
Level = Annotated[float, Field(ge=LEAST, lt=MOST_ALPHA), _Numeric]
Margin = Annotated[float, Field(ge=LEAST, lt=1), _Numeric]
TopP = Annotated[float, Field(gt=0, le=1), _Numeric]
Whole = Annotated[int, Field(ge=0, le=_LARGEST), _Numeric]
Count = Annotated[int, Field(ge=1, le=_LARGEST), _Numeric]
AtLeastTwo = Annotated[int, Field(ge=2, le=_LARGEST), _Numeric]
Text = Annotated[str, Field(min_length=1)]
Column = Annotated[str, Field(min_length=1), AfterValidator(_column)]
Columns = Annotated[
    Annotated[Column, Tag("<one>")] | Annotated[list[Column], Field(min_length=1), Tag("<list>")],
    _forms("a column, a template that joins columns, or a list of those, of which the first that a row has is taken"),
]
Commit = Annotated[str, AfterValidator(_commit), WithJsonSchema({"type": "string", "pattern": f"^{_COMMIT}$"})]
Day = Annotated[str, BeforeValidator(_day), WithJsonSchema({"type": "string", "format": "date"})]
Name = Annotated[str, AfterValidator(_name)]
ArmName = Annotated[str, AfterValidator(_arm_name)]
Grader = Annotated[str, AfterValidator(_grader)]
Reward = Annotated[str, AfterValidator(_reward)]
Json = Annotated[dict[str, Any], AfterValidator(_as_json)]
SEEDS_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "array", "items": {"type": "integer"}}]}
Seeds = Annotated[
    list[Whole],
    Field(min_length=1),
    Distinct,
    BeforeValidator(_count_of_seeds),
    WithJsonSchema(SEEDS_SCHEMA),
]
Stop = Annotated[list[Text], Field(min_length=1, max_length=_MOST_STOP_STRINGS), Distinct]
Counts = Annotated[list[Count], Field(min_length=1), Distinct]
Names = Annotated[list[Name], Distinct]
Samples = Annotated[
    Annotated[Count, Tag("<one>")] | Annotated[dict[Name, Count], Tag("<mapping>")],
    _forms("a whole number, or one for each benchmark"),
]
Targets = Annotated[
    Annotated[Text, Tag("<one>")] | Annotated[list[Text], Field(min_length=1), Tag("<list>")],
    _forms("all-linear, or a list of module names"),
]
PolicyValue = Annotated[
    Annotated[NotNegative, Tag("<one>")] | Annotated[list[Positive], Field(min_length=2, max_length=2), Tag("<list>")],
    _forms("a number, or a list of two"),
]
Checkpoint = Annotated[int | str, *_or_count("last", "the step of a checkpoint")]
BatchSize = Annotated[int | str, *_or_count("auto", "a whole number from 1")]
