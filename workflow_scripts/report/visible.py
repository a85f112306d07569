"""Characters that would act instead of being seen: the same ones that examples.js names."""

import re

# C0 and C1 controls but tab and line feed; marks and overrides of direction; separators and joiners without width
_ACTING = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)


def visible(text: str) -> str:
    """The text with such characters named: a U+202E would turn round all that follows it."""
    return _ACTING.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", text)
