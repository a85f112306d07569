"""How a fault of a study is said: one line that names the key, the value, what is allowed, the nearest name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import yaml
from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from workflow_scripts.errors import UserError

Path = tuple[str | int, ...]

_ALLOWED = {
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "finite_number": "a finite number",
    "string_type": "text (what YAML reads as a number or as true or false needs quotes)",
    "string_too_short": "text that is not empty",
    "too_short": "at least {min_length} of them",
    "too_long": "at most {max_length} of them",
    "model_type": "a mapping of keys to values",
    "dict_type": "a mapping of keys to values",
    "list_type": "a list",
}
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}


class StudyFaults(UserError):
    """All that is wrong with a study, one line each."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def nearest(name: object, names: Iterable[str], unless_near: str = "") -> str:
    """'; did you mean …?' where one of the names is near, else `unless_near`."""
    near = get_close_matches(str(name), list(names), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else unless_near


def shown(value: object) -> str:
    """A value on one short line, as YAML would have it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value.model_dump() if isinstance(value, BaseModel) else value)
    return text if len(text) <= 60 else text[:59] + "…"


def _dotted(path: Path) -> str:
    names = (str(key) for key in path)
    return ".".join(name if name.isprintable() else shown(name) for name in names)


def line(path: str | Path, value: object, allowed: str) -> str:
    """One fault."""
    return f"{path if isinstance(path, str) else _dotted(path)}: {shown(value)}: {allowed}"


@dataclass(frozen=True)
class OneOf:
    """Annotation of a text that must be one of these names."""

    names: tuple[str, ...]

    def _check(self, value: str) -> str:
        if value not in self.names:
            raise ValueError(f"one of {', '.join(self.names)}{nearest(value, self.names)}")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"enum": list(self.names)}


def overlap(path: Path, others: Iterable[Path]) -> bool:
    """Whether one of the paths is this one, lies below it, or above it."""
    return any(path[: len(other)] == other[: len(path)] for other in others)


def path_of(error: Mapping[str, Any]) -> Path:
    """The key an error is about. In pydantic's own path stand also tags of alternatives (here in angle brackets)."""
    path = tuple(key for key in error["loc"] if not str(key).startswith("<"))
    return (*path[:-2], error["input"]) if path[-1:] == ("[key]",) else path


def _wording(error: Mapping[str, Any], known: Iterable[str]) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "extra_forbidden":
        known = list(known)
        return "unknown key" + nearest(error["loc"][-1], known, f"; allowed: {', '.join(known)}")
    if kind in ("invalid_key", "string_type") and error["loc"][-1] in ("[key]", str(error["input"])):
        return "a key must be text (YAML reads on, off, yes and no as true or false): quote it, or choose another"
    if kind in _ALLOWED:
        return _ALLOWED[kind].format(**context)
    return _KINDS.get(kind.partition("_")[0], error["msg"])


def said(path: Path, error: Mapping[str, Any], known: Iterable[str]) -> str:
    """One line for what pydantic found at a path. known: names of the keys that may stand there."""
    if error["type"] == "missing":
        return f"{_dotted(path)}: missing: this key has no default"
    return line(path, error["input"], _wording(error, known))


def repeated_keys(text: str) -> list[str]:
    """A line for each key that stands twice in a mapping of a YAML text: a reader would silently take the last."""
    lines, nodes = [], [yaml.compose(text)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if key.value in seen:
                    lines.append(f"{key.value}: stands twice, again in line {key.start_mark.line + 1}: each only once")
                seen.add(str(key.value))
                nodes.append(value)
        elif isinstance(node, yaml.SequenceNode):
            nodes += node.value
    return lines
