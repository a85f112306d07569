"""A sentence around a value: "There are 72 ways", "The area is 72 square units". Text in, text out.

Words may lead to the value only if they leave it as it is: no number, no negation, no doubt, no operation, no bound.
"""

import re

from workflow_scripts.grading._answer_text.units import is_unit, measure

_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_LEAD = re.compile(
    r"((?:\\text\{[^{}\d\\$()]*\}|[A-Za-z' ,:-])*+)(\\text\{[^{}\d\\$()]*)?(?=[\d(\[$.\\-]|[A-J](?![A-Za-z]))"
)
_LEADS_TO = re.compile(
    r"(?:\b(?:is|are|was|were|equals?|has|have|had|gets?|got|gives?|costs?|takes?|needs?|contains?|makes?|earns?|pays?"
    r"|spends?|becomes?)\b(?:\s(?:exactly|just|only|equal\sto|given\sby|now|a\stotal\sof))?\s*:?|[A-Za-z]{3}\s?:)$",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(r"(?:and )?(?:so|thus|hence|therefore|then),?", re.IGNORECASE)
_DISTORTS = re.compile(
    r"\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand|\w+illion"
    r"|dozen|half|halves|third|quarter|(?:four|fif|six|seven|eigh|nin|ten|\w+een)th|twice|thrice|double|triple|plus|minus|times|divided|multiplied|negative"
    r"|positive|opposite|inverse|reciprocal|root|squared|cubed|squares?\sof|cubes?\sof|power|factorial|log\w*|mod\w*"
    r"|not|no|nope|never|neither|nor|none|cannot|without|or|but|if|unless|except|else|instead|than|less|more|fewer"
    r"|least|most|over|under|above|below|between|up|about|around|approx\w*|roughly|nearly|almost|maybe|perhaps|possibly"
    r"|probably|might|may|could|would|should|can|doubt|guess\w*|wrong|incorrect|false|fake|suppose|assume|let|claim\w*"
    r"|what|which|how|does|do|whether|mistake\w*|too|seems?)\b|n't\b|\?",
    re.IGNORECASE,
)
_ANSWER_WORDS = r"(?:is|are)\s+(?:the\s+)?(?:(?:final|correct)\s+)?(?:answer|solution|choice|option|correct|right)s?"
_SAID_AFTER = re.compile(rf"\s*(?:\\text\{{\s*{_ANSWER_WORDS}\s*\.?\}}|(?<=[\w)}}])\s{_ANSWER_WORDS}\s*\.?(\}}?))$")
_AFTER = re.compile(r"^(.*[\d)}°%])\s*(?:\\text\{\s*([A-Za-z' ,.-]+)\}|\s([A-Za-z' ,.-]+))(\}?)$")


def _without_purpose(text: str) -> str:
    """72 ways of "72 ways to arrange the letters": of words after a value the first, if the others do not matter."""
    found = _AFTER.match(text)
    words = (found[2] or found[3]).strip(" .") if found else ""
    if not found or not words or is_unit(words) or _DISTORTS.search(words):
        return text
    first = re.split(r"[\s,.-]", words)[0]
    if len(first) < 3 and measure(first) is None:
        return text
    return f"{found[1]} \\text{{{first}}}" if found[2] else f"{found[1]} {first}{found[4]}"


def value_in(text: str) -> str:
    """A text without the sentence around the value that it states; the text where it is no such sentence."""
    text = _SAID_AFTER.sub(lambda found: found[1] or "", text)
    found = _LEAD.match(text)
    if not found or not found[0] or "?" in text:
        return text
    opened = found[2] or ""
    lead = " ".join([*_TEXT.sub(r" \1 ", found[1]).split(), *opened[6:].split()])
    if not (_LEADS_TO.search(lead) or _CONCLUDES.fullmatch(lead)) or _DISTORTS.search(lead):
        return text
    return _without_purpose(("\\text{" if opened else "") + text[found.end() :].strip())
