"""Times of day and dates, whatever their spelling."""

import re

_TIME = re.compile(r"(\d{1,2})(?::(\d{2}))?\s*([ap])\.?\s?m\.?", re.IGNORECASE | re.ASCII)
_CLOCK = re.compile(r"(\d{1,2})(?::(\d{2}))?", re.ASCII)
_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
           "december")  # fmt: skip
_MONTH = r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sept?|oct|nov|dec|" + "|".join(_MONTHS) + r")\.?"
_DAY = r"(?P<day>\d{1,2})(?:\s?\^?\s?\{?\s?(?:st|nd|rd|th)\s?\}?)?"
_YEAR = r"(?:\s*,?\s*(?P<year>\d{4}))?"
_DATES = [
    re.compile(pattern, re.IGNORECASE | re.ASCII)
    for pattern in (rf"(?:on )?{_MONTH}\s*{_DAY}{_YEAR}", rf"(?:on )?(?:the )?{_DAY}\s+(?:of\s+)?{_MONTH}{_YEAR}")
]


def time_of_day(text: str) -> int | None:
    """Minutes since midnight of a time with a.m. or p.m.; None for any other text."""
    found = _TIME.fullmatch(re.sub(r"\\text\{([^{}]*)\}|[{}]", r" \1 ", text).replace(" :", ":").strip())
    if not found or not 1 <= int(found[1]) <= 12 or int(found[2] or 0) > 59:
        return None
    return int(found[1]) % 12 * 60 + int(found[2] or 0) + 720 * (found[3] in "pP")


def on_the_clock(minutes: int, text: str) -> bool:
    """Whether 5:30 or 17:30 is the time that is so many minutes after midnight; 05:30 is one before noon."""
    found = _CLOCK.fullmatch(text)
    if not found or int(found[2] or 0) != minutes % 60:
        return False
    hours, twelfth = int(found[1]), minutes // 60 % 12
    return hours == minutes // 60 or (not found[1].startswith("0") and 1 <= hours <= 12 and hours % 12 == twelfth)


def date(text: str) -> str | None:
    """Month, day and perhaps year in one order, in lower case; None for any other text."""
    for pattern in _DATES:
        if found := pattern.fullmatch(text):
            month = next(name for name in _MONTHS if name.startswith(found["month"].lower()[:3]))
            return " ".join(filter(None, (month, str(int(found["day"])), found["year"])))
    return None
