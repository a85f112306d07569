r"""Answers within solutions: what ``\boxed`` holds."""

import re

_BRACES = re.compile(r"\\(?:boxed|fbox)\s*\{|\\[{}]|[{}]")
_BARE = re.compile(r"\\boxed\s+([^\s{}$.,]+)|\\boxed(\d)")  # \boxed 5, as a few solutions of MATH have it


def last_box(solution: str) -> str | None:
    r"""What the last closed ``\boxed{}`` or ``\fbox{}`` holds (of nested ones the outer); None if there is none."""
    opened: list[tuple[int, bool]] = []
    last = None
    for brace in _BRACES.finditer(solution):
        if brace[0] == "}":
            start, boxed = opened.pop() if opened else (0, False)
            if boxed:
                last = (start, brace.start())
        elif brace[0].endswith("{") and brace[0] != r"\{":
            opened.append((brace.end(), brace[0] != "{"))
    bare = [found for found in _BARE.finditer(solution) if last is None or found.start() > last[1]]
    if bare:
        return bare[-1][1] or bare[-1][2]
    return solution[last[0] : last[1]] if last else None
