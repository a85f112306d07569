"""Where a completion states its answer: boxes, answer tags, lines after ####, sentences and lines that begin with it.

Text in, text out, in linear time. Of several answers that a conjunction joins (``\\boxed{41} or \\boxed{42}``) all are
the answer: a list, so that naming two candidates does not pay for one.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

MOST_CHARACTERS = 1000

BOX = re.compile(r"\\(?:boxed|fbox)\s{0,4}\{|\\[{}]|[{}]")
FULL_STOPS = "。｡।॥۔።။។"  # of other scripts
SENTENCE = re.compile(rf"(?<!\.)[.．](?![\d/.]|m\b)|[{FULL_STOPS}]")
MARKER = re.compile(r"(?<!#)####(?!#)")
_BARE_BOX = re.compile(r"\\boxed\s{1,4}(\d{1,40}|[A-Za-z])(?![A-Za-z0-9])")
_THINKING = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_TAGGED = re.compile(r"<answer>([\s\S]*?)(?:</answer>|\Z)", re.IGNORECASE)
_ANNOUNCED = re.compile(
    r"\banswer\s{1,4}is\b"
    # a line that begins with it: "**Answer:** 42", "### Final Answer" above the line "42"
    r"|^[ \t>#*_-]{0,12}(?:(?:so|thus|hence|therefore),? )?(?:(?:the|my) )?(?:(?:final|correct) )?answer"
    r"[ \t]{0,4}[*_]{0,3}[ \t]{0,4}(?:[:：=]|(?=\n))",
    re.IGNORECASE | re.MULTILINE,
)
_BEFORE_ANSWER = re.compile(r"^[\s:：*_]*(?:(?:\\\[|\$\$)\s*)?")
_MOST_AFTER = 80  # characters after a box that ends a completion
_CLOSING = re.compile(r"\\(?:end\s{0,4}\{[A-Za-z]{1,20}\*?\}|[A-Za-z]+)|<[/|][^<>]{0,20}>")

_MOST_TAGS = 16
_MOST_BETWEEN = 60  # characters between two boxes of one list
_TYPESETTING = re.compile(r"\\(?:text|mathrm|textbf|quad|qquad)(?![A-Za-z])|\\[()\[\]!,;: ]|[$*_{}~\s]+")
_NAME = r"\(?[A-Za-z](?:\s?\w)?\)?\s*(?:=|:|is)"
_LISTED = re.compile(rf"(?:[\s,;/&|、和或及]|\band\b|\bor\b|\belse\b)*(?:{_NAME})?\s*")
_HEDGE = re.compile(r"\b(?:or|alternatively|otherwise|maybe|perhaps|possibly)\b|或", re.IGNORECASE)
_REVISED = re.compile(
    r"\b(?:rather|correct\w*|wait|no|not|wrong|actually|final\w*|so|thus|therefore|hence|then|simpl\w*|precisely|exactly"
    r"|that is|which|fix\w*|instead|mistake\w*|should|equivalently|better)\b|[.!?]\s",
    re.IGNORECASE,
)
_NAMED_BOX = re.compile(r"(?<![A-Za-z\\])([A-Za-z](?:_\{?\w\}?)?)\s{0,2}=\s{0,2}$")
_ANOTHER = re.compile(r"[\s$)\]\\.,;*}(]{0,12}\bor (?:maybe |perhaps |possibly )?[\\($]{0,3}\s?(-?\d[\d.,/]{0,30})")
_IN_OUTER = re.compile(r"[,;/]|\b(?:or|and)\b|或")


class Statement(NamedTuple):
    """An answer in a text: where the command or tag begins, where what it holds begins and ends, where it is over."""

    opens: int
    start: int
    end: int
    closes: int


def boxes(text: str, braces: re.Pattern[str] = BOX) -> list[Statement]:
    """All balanced boxes, by where they open. An empty box states nothing: it may quote the task."""
    opened: list[tuple[int, int, bool]] = []
    found: list[Statement] = []
    for brace in braces.finditer(text):
        if brace[0] == "}":
            if opened:
                opens, start, boxed = opened.pop()
                if boxed and text[start : brace.start()].strip():
                    found.append(Statement(opens, start, brace.start(), brace.end()))
        elif brace[0].endswith("{") and brace[0] != "\\{":
            opened.append((brace.start(), brace.end(), brace[0] != "{"))
    return sorted(found, key=lambda box: box.start)


def _joined(between: str) -> bool:
    """Whether two answers with this text between them are one list, or a choice that is left open."""
    if len(between) > _MOST_BETWEEN:
        return False
    words = _TYPESETTING.sub(" ", between).strip(" .;,")
    return bool(_LISTED.fullmatch(words) or (_HEDGE.search(words) and not _REVISED.search(words)))


def _list_of(text: str, found: list[Statement]) -> list[Statement]:
    """The last statement with those before it that a conjunction joins to it; outer boxes are left out."""
    chain = [found[-1]]
    for before in reversed(found[:-1]):
        if before.closes > chain[-1].opens:
            continue
        between = text[before.closes : chain[-1].opens]
        unlike = text[before.opens] != text[chain[-1].opens]  # a box and a tag
        if not _joined(between) or (unlike and not _TYPESETTING.sub(" ", between).strip()):
            break
        chain.append(before)
    return chain[::-1]


def _outer(text: str, inner: Statement, found: list[Statement]) -> str | None:
    r"""What a box around the last one holds if it names several answers: \boxed{41 or \boxed{42}}."""
    for box in found:
        if box.opens < inner.opens and box.end >= inner.closes:
            around = text[box.start : inner.opens] + text[inner.closes : box.end]
            if len(around) <= 2 * _MOST_BETWEEN and _IN_OUTER.search(_TYPESETTING.sub(" ", around)):
                return re.sub(r"\\[bf]box(?:ed)?(?![A-Za-z])", "", text[box.start : box.end])
    return None


def _held(text: str, statement: Statement) -> str:
    """What one box or tag holds; in a tag an answer may be stated once more."""
    inner = text[statement.start : statement.end]
    if text[statement.opens] != "<":
        return inner.strip()
    inner = inner[inner.lower().rfind("<answer>") + 8 :] if "<answer>" in inner.lower() else inner
    found = in_boxes(inner)
    if found:
        return found[0]
    sentence = announced(inner)
    return (inner if sentence is None else sentence).strip()


def in_boxes(text: str, braces: re.Pattern[str] = BOX) -> tuple[str, int] | None:
    """The answer that the last boxes or answer tags of a text hold, and where they end; None if there are none."""
    tags = list(_tags(text))[-_MOST_TAGS:] if "nswer>" in text.lower() else []
    found = boxes(text, braces) or [Statement(box.start(), *box.span(1), box.end()) for box in _BARE_BOX.finditer(text)]
    if tags:
        outside = [box for box in found if not any(tag.opens <= box.opens < tag.closes for tag in tags)]
        found = sorted([*outside, *tags])
    if not found:
        return None
    chain = _list_of(text, found)
    held = [_held(text, statement) for statement in chain]
    if len(set(held)) > 1:
        names = [_NAMED_BOX.search(text[max(0, one.opens - 20) : one.opens]) for one in chain]
        held = [f"{name[1]} = {inner}" if name else inner for name, inner in zip(names, held, strict=True)]
    elif len(chain) == 1 and (outer := _outer(text, chain[0], found)):
        held = [outer]
    if another := _ANOTHER.match(text, chain[-1].closes):
        held.append(another[1].rstrip(".,/"))
    return ", ".join(dict.fromkeys(held)), chain[-1].closes


def _tags(text: str) -> Iterator[Statement]:
    for tag in _TAGGED.finditer(text):
        if tag[1].strip():
            yield Statement(tag.start(), *tag.span(1), tag.end())


def first_line(text: str, most: int = 2 * MOST_CHARACTERS) -> str:
    """The first line of a text that is not empty."""
    return text[:most].strip().split("\n", 1)[0].strip()


def after_markers(text: str) -> Iterator[int]:
    """Where what follows each #### begins, from the last. Of two that "or" joins in one line, the first counts."""
    places = list(MARKER.finditer(text))
    while places:
        last = places.pop()
        while places and last.start() - places[-1].end() <= _MOST_BETWEEN:
            if not re.search(r"^[^\n]*\b(?:or|and)\W*$", text[places[-1].end() : last.start()]):
                break
            last = places.pop()
        yield last.end()


def announced(text: str) -> str | None:
    """The sentence after the last "answer is", or the line after the last "Answer:"; None if there is neither."""
    start = None
    for phrase in _ANNOUNCED.finditer(text):
        before = "" if start is None else text[start : phrase.start()]
        if not (before and len(before) <= _MOST_BETWEEN and re.search(r"^[^.\n]*\b(?:or|and)\b[^.\n]*$", before)):
            start = phrase.end()
    if start is None:
        return None
    rest = _BEFORE_ANSWER.sub("", text[start : start + 2 * MOST_CHARACTERS])
    return SENTENCE.split(first_line(rest), maxsplit=1)[0]


def after_thinking(completion: str) -> tuple[str | None, bool]:
    """The text after the last closed thinking block, and whether there is such a block.

    None in place of the text: the completion ends inside the thinking, so that whatever it states is a try.
    """
    tags = list(_THINKING.finditer(completion))
    if tags and not tags[-1][1]:
        return None, False
    return (completion[tags[-1].end() :], True) if tags else (completion, False)


def goes_on(after: str) -> bool:
    """Whether words or numbers follow: more than punctuation, brackets and commands that close something."""
    return len(after) > _MOST_AFTER or bool(re.search("[A-Za-z0-9]", _CLOSING.sub("", after)))


def ends_open(text: str, end: int) -> bool:
    """Whether a text ends in an answer tag that is not closed, so that a cut may have shortened what it holds."""
    return end == len(text) and not text.rstrip().endswith((">", "}"))
