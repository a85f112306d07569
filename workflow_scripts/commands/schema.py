"""`armslength schema`: write the JSON schema of the study file, by which editors check it and explain its keys."""

import argparse
import json
import re
from typing import Any

from workflow_scripts.launch.study_file import DEFAULT_STUDY
from workflow_scripts.study import Study

SCHEMA = DEFAULT_STUDY.parent / "rules" / "schemas" / "study.schema.json"
_KEY = re.compile(r"(?P<indent> *)(?P<key>\w+):.*?(?: # (?P<comment>.*))?")


def _comments(text: str) -> dict[tuple[str, ...], str]:
    """The comment behind each key of a YAML file in block style, by the key's path."""
    found: dict[tuple[str, ...], str] = {}
    path: list[str] = []
    for match in filter(None, map(_KEY.fullmatch, text.splitlines())):
        path = [*path[: len(match["indent"]) // 2], match["key"]]
        if match["comment"]:
            found[tuple(path)] = match["comment"]
    return found


def _describe(node: dict[str, Any], path: tuple[str, ...], schema: dict[str, Any], comments: dict[Any, str]) -> None:
    """Put the comments of config.yaml into the schema, down to the keys of sections."""
    name = node.get("$ref", "").rpartition("/")[2]
    for key, part in schema["$defs"].get(name, node).get("properties", {}).items():
        if (*path, key) in comments:
            part["description"] = comments[(*path, key)]
        _describe(part, (*path, key), schema, comments)


def text() -> str:
    """The schema: the same study/ and config.yaml give the same bytes."""
    schema = Study.model_json_schema()
    schema |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A study of Armslength"}
    for part in (schema, *schema["$defs"].values()):
        part.pop("description", None)  # the docstring of the class
        for key in part.get("properties", {}).values():
            key.pop("title", None)  # the key's name again
    _describe(schema, (), schema, _comments(DEFAULT_STUDY.read_text(encoding="utf-8")))
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write the schema, or only compare it; exit code 1 if it is out of date."""
    parser = argparse.ArgumentParser(prog="armslength schema", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is out of date")
    if not parser.parse_args(arguments).check:
        SCHEMA.parent.mkdir(parents=True, exist_ok=True)
        SCHEMA.write_text(text(), encoding="utf-8")
    elif not SCHEMA.is_file() or SCHEMA.read_text(encoding="utf-8") != text():
        print("rules/schemas/study.schema.json is out of date: run `python -m workflow_scripts schema`")
        return 1
    return 0
