"""Units of measure, number words, and words that are none: what may follow a number without changing it.

Two spellings of one unit are equal, two units are not, nothing is converted.
"""

import re

_SPELLINGS = """
mm: millimeter millimetre; cm: centimeter centimetre; dm: decimeter; m: meter metre; km: kilometer kilometre
in: inch; ft: foot feet; yd: yard; mi: mile
mg: milligram; g: gram gm; kg: kilogram; oz: ounce; lb: pound lbs
ml: milliliter millilitre; l: liter litre L; gal: gallon; qt: quart; pt: pint; acre: ; hectare: ha
ms: millisecond; s: second sec; min: minute; h: hour hr; day: ; week: ; month: ; year: yr
cent: ¢; dollar: usd; euro: eur; gbp: £; yen: jpy; rupee: rs
degree: deg; rad: radian; mph: ; kmh: kph kmph; hz: hertz; j: joule J; n: newton N; w: watt W; v: volt V; ev: eV
am: a.m.; pm: p.m.; th: st nd rd; au: ; ly: ; pc: parsec; pa: pascal; mol: mole; cc: ; sr: ; db: ; hp: ; rpm: ; psi:
"""
_CASED = {"n", "j", "w", "v"}  # units in upper case alone: a small letter is a variable

NUMBER_WORDS = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
MEASURES: dict[str, str] = {}  # spelling -> unit
for _entry in re.split(r"[;\n]", _SPELLINGS):
    _unit, _, _others = _entry.strip().partition(":")
    for _spelling in (_unit, *_others.split()):
        if _spelling and _spelling not in _CASED:
            MEASURES[_spelling] = _unit
            if len(_spelling) > 1:
                MEASURES[_spelling + "s"] = _unit
MEASURES["inches"] = "in"
for _base in ("m", "g", "s", "J", "N", "W", "V", "Hz", "Pa", "eV", "mol"):
    for _prefix in ("k", "M", "G", "m", "c", "n", "\\mu "):
        MEASURES.setdefault(_prefix + _base, _prefix + _base)

_NUMBERS = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\\w+teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty"
    "|hundred|thousand|million|billion|trillion|mil|bil|dozen|score|gross|half|halves|quarter|third|fourth|fifth|sixth"
    "|seventh|eighth|ninth|tenth|eleventh|twelfth|googol|lakh|crore|\\w+teenth|\\w+tieth|hundredth|thousandth|millionth|billionth|pi|infinity"
)
_OPERATIONS = (
    "plus|minus|times|over|by|divided|multiplied|less|more|fewer|greater|than|negative|factorial|cubed|squared|root"
    "|power|raised|double|twice|triple|thrice|inverse|reciprocal|mod|modulo|remainder|out|sin|cos|tan|log|ln|exp"
    "|gcd|lcm|max|min|lim|inf|least|most|to|under|below|above|beneath|added|subtracted|sqrt|squareroot"
    "|alpha|beta|gamma|theta|lambda|sigma|omega"
)
_DOUBTS = (
    "not|no|nope|never|wrong|incorrect|false|maybe|perhaps|probably|possibly|except|unless|if|else|or|and|but|either|neither|nor"
    "|instead|without|is|isn|are|was|then|rather|actually|otherwise|unknown|undefined"
)
_VALUE = re.compile(rf"(?<![A-Za-z])(?:{_NUMBERS}|{_OPERATIONS}|{_DOUBTS})s?(?![A-Za-z])", re.IGNORECASE)
_ALTERS = re.compile(
    r"(?<![A-Za-z])(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|plus|minus|times|divided|negative|root|half|twice"
    r"|double|triple|squared|cubed|inverse|reciprocal|not|never|wrong|incorrect|false|if|unless|except|log)(?![A-Za-z])",
    re.IGNORECASE,
)
_SHORT = {"of", "on", "at", "in", "an", "us", "kg"}
_MOST_WORDS = 4


def alters(words: str) -> bool:
    """Whether words before an equals sign make of the right side another number: half of it, not x, six."""
    return bool(_ALTERS.search(words))


def measure(word: str) -> str | None:
    """The unit that a word or symbol is; symbols of one letter as they are, longer ones in any case."""
    word = word.strip(" .")
    return MEASURES.get(word) or (MEASURES.get(word.lower()) if len(word) > 1 else None)


def unit(words: str) -> str:
    """The unit of measure that words after a number name, or "" for any other words, which do not count."""
    words = re.sub(r"per cent", "percent", words, flags=re.IGNORECASE).strip(" .,")
    words = re.sub(r"\s*\bper\b\s*|\s*/\s*", "/", words)
    words = re.sub(r"\b(?:[Ss]quare|[Ss]q\.?)\s+(\S+)|\b(\S+)\s+squared", r"\1\2^2", words)
    words = re.sub(r"\b(?:[Cc]ubic|[Cc]u\.?)\s+(\S+)|\b(\S+)\s+cubed", r"\1\2^3", words)
    parts = []
    for part in words.split("/"):
        name, _, power = part.strip().partition("^")
        known = measure(name)
        if known is None:
            return ""
        parts.append(known + (f"^{power.strip(' {}')}" if power else ""))
    return {"mi/h": "mph", "km/h": "kmh"}.get("/".join(parts), "/".join(parts))


def is_unit(words: str) -> bool:
    """Whether words after a number leave it as it is: a known unit, or a few words for what is counted.

    Not numbers (5 dozen), operations (5 minus six), doubts and conditions (5 if lucky), letters (5 k).
    """
    if not words or unit(words):
        return True
    if _VALUE.search(words) or not re.fullmatch(r"[A-Za-z^\d{}./() '-]+", words):
        return False
    found = re.findall(r"[A-Za-z]+", words)
    return len(found) <= _MOST_WORDS and all(len(w) > 2 or w.lower() in _SHORT or measure(w) for w in found)
