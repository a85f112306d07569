"""Brackets of a text in tidy LaTeX, and its parts between separators outside them."""

import re

OPEN, CLOSE = "([{", ")]}"
_TOKEN = re.compile(r"\\text\{[^{}]*\}|\\begin\{\w+\*?\}|\\end\{\w+\*?\}|\\[A-Za-z]+|\\.|.", re.DOTALL)
_BRACKETS = {("(", ")"): "()", ("[", "]"): "[]", ("(", "]"): "(]", ("[", ")"): "[)", ("\\{", "\\}"): "{}",
             ("\\langle", "\\rangle"): "()"}  # fmt: skip


def split(text: str, separators: set[str]) -> tuple[list[str], list[str]]:
    """Parts of a text between separators outside all brackets, and the separators."""
    parts, found, depth = [""], [], 0
    for token in _TOKEN.findall(text):
        if token.startswith("\\begin"):
            depth += 1
        elif token.startswith("\\end"):
            depth -= 1
        elif (token[-1] in OPEN and len(token) <= 2) or token in ("\\langle", "\\lfloor", "\\lceil"):
            depth += 1
        elif (token[-1] in CLOSE and len(token) <= 2) or token in ("\\rangle", "\\rfloor", "\\rceil"):
            depth -= 1
        if depth == 0 and token in separators:
            parts.append("")
            found.append(token)
        else:
            parts[-1] += token
    return [part.strip() for part in parts], found


def inside(text: str) -> tuple[str, str] | None:
    """Brackets that enclose the whole text, and what is inside."""
    tokens = _TOKEN.findall(text)
    kind = _BRACKETS.get((tokens[0], tokens[-1])) if len(tokens) > 1 else None
    if kind is None:
        return None
    depth = 0
    for place, token in enumerate(tokens):
        if token.startswith(("\\text", "\\begin", "\\end")):
            continue
        if token[-1] in OPEN or token == "\\langle":
            depth += 1
        elif token[-1] in CLOSE or token == "\\rangle":
            depth -= 1
        if not depth and place < len(tokens) - 1:
            return None
    return kind, "".join(tokens[1:-1]).strip()


def depth_at(text: str, at: int) -> int:
    return sum(1 if c in OPEN else -1 for c in text[:at] if c in OPEN + CLOSE)
