"""Units of measure and number words: two spellings of one unit are equal, two units are not, nothing is converted."""

import re

_SPELLINGS = """
mm: millimeter millimetre; cm: centimeter centimetre; dm: decimeter; m: meter metre; km: kilometer kilometre
in: inch; ft: foot feet; yd: yard; mi: mile
mg: milligram; g: gram gm; kg: kilogram; oz: ounce; lb: pound lbs
ml: milliliter millilitre; l: liter litre; gal: gallon; qt: quart; pt: pint; acre: ; hectare: ha
ms: millisecond; s: second sec; min: minute; h: hour hr; day: ; week: ; month: ; year: yr
cent: ¢; dollar: usd; euro: eur; rupee: rs
degree: deg; rad: radian; mph: ; kmh: kph kmph; hz: hertz; j: joule; n: newton; w: watt; v: volt; ev:
"""

NUMBER_WORDS = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
MEASURES: dict[str, str] = {}  # spelling -> unit
for _entry in re.split(r"[;\n]", _SPELLINGS):
    _unit, _, _others = _entry.strip().partition(":")
    for _spelling in (_unit, *_others.split()):
        if _spelling:
            MEASURES[_spelling] = _unit
            if len(_spelling) > 1:
                MEASURES[_spelling + "s"] = _unit
MEASURES["inches"] = "in"


def unit(words: str) -> str:
    """The unit of measure that words after a number name, or "" for any other words, which do not count."""
    words = words.lower().replace("per cent", "percent").strip(" .,")
    words = re.sub(r"\s*\bper\b\s*|\s*/\s*", "/", words)
    words = re.sub(r"\b(?:square|sq\.?)\s+(\S+)", r"\1^2", words)
    words = re.sub(r"\b(?:cubic|cu\.?)\s+(\S+)", r"\1^3", words)
    parts = []
    for part in words.split("/"):
        name, _, power = part.strip().partition("^")
        if name.strip() not in MEASURES:
            return ""
        parts.append(MEASURES[name.strip()] + (f"^{power.strip(' {}')}" if power else ""))
    return {"mi/h": "mph", "km/h": "kmh"}.get("/".join(parts), "/".join(parts))
