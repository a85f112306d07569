"""Units of measure, number words, and words that are none: what may follow a number without changing it.

Two spellings of one unit are equal, two units are not, nothing is converted.
"""

import re

_SPELLINGS = """
mm: millimeter millimetre; cm: centimeter centimetre; dm: decimeter; m: meter metre; km: kilometer kilometre
in: inch; ft: foot feet; yd: yard; mi: mile; Å: angstrom ångström ångstrom; μm: micron
mg: milligram; g: gram gm; kg: kilogram; oz: ounce; lb: pound lbs
ml: milliliter millilitre; l: liter litre L; gal: gallon; qt: quart; pt: pint; acre: ; hectare: ha
ms: millisecond; s: second sec; min: minute; h: hour hr; day: ; week: ; month: ; year: yr
cent: ¢; dollar: usd; euro: eur; gbp: £; yen: jpy; rupee: rs
degree: deg; rad: radian; mph: ; kmh: kph kmph; Hz: hertz; J: joule; N: newton; W: watt; V: volt; eV: electronvolt
°C: °c celsius centigrade degreecelsius; C: ; °F: °f fahrenheit; F: ; kelvin: °k °K K; Ω: ohm
A: ampere amp; T: tesla; Pa: pascal; Wb: weber; coulomb: ; farad: ; henry: ; sievert: Sv; becquerel: Bq
am: a.m.; pm: p.m.; th: st nd rd; au: ; ly: ; pc: parsec; mol: mole; cc: ; sr: steradian; db: decibel; hp: ; rpm: ; psi:
erg: ; dyn: dyne; cal: calorie; atm: atmosphere; bar: ; Wh:
"""
_PREFIXES = {"kilo": "k", "mega": "M", "giga": "G", "milli": "m", "centi": "c", "micro": "μ", "nano": "n", "pico": "p",
             "femto": "f"}  # fmt: skip
_SPELLED = {
    "gram": "g", "meter": "m", "metre": "m", "second": "s", "joule": "J", "newton": "N", "watt": "W", "volt": "V",
    "ampere": "A", "amp": "A", "coulomb": "C", "farad": "F", "tesla": "T", "ohm": "Ω", "hertz": "Hz", "pascal": "Pa",
    "electronvolt": "eV", "mole": "mol", "calorie": "cal", "parsec": "pc",
}  # fmt: skip

NUMBER_WORDS = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
MEASURES: dict[str, str] = {}  # spelling -> unit
for _entry in re.split(r"[;\n]", _SPELLINGS):
    _unit, _, _others = _entry.strip().partition(":")
    for _spelling in (_unit, *_others.split()):
        if _spelling:
            MEASURES[_spelling] = _unit
            if len(_spelling) > 1:  # words in any case; a symbol of one letter only as it is
                MEASURES[_spelling + "s"] = MEASURES[_spelling.lower()] = _unit
MEASURES["inches"] = "in"
for _symbol in (*_SPELLED.values(), "l", "bar", "Wh"):
    for _prefix in _PREFIXES.values():
        MEASURES.setdefault(_prefix + _symbol, _prefix + _symbol)
for _name, _symbol in _SPELLED.items():
    for _word, _prefix in _PREFIXES.items():
        for _plural in ("", "s"):
            MEASURES.setdefault(_word + _name + _plural, MEASURES[_prefix + _symbol])

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
_SHORT = {"sq", "of", "on", "at", "in", "an", "us", "kg"}
_MOST_WORDS = 4


def alters(words: str) -> bool:
    """Whether words before an equals sign make of the right side another number: half of it, not x, six."""
    return bool(_ALTERS.search(words))


def measure(word: str) -> str | None:
    """The unit that a word or symbol is; symbols of one letter as they are, longer ones in any case."""
    word = word.strip(" .")
    return MEASURES.get(word) or (MEASURES.get(word.lower()) if len(word) > 1 else None)


_FACTOR = re.compile(r"\s*(?:(/)\s*(\()?|(\))|([^\s/^()*·]+)(?:\s*\^\s*\{?\s*(-?\d)\s*\}?)?|[*·])\s*")
_WHOLE_NAMES = {"h^-1 mi": "mph", "h^-1 km": "kmh", "ms^-1": "m s^-1", "ms^-2": "m s^-2", "h kW": "kWh"}


def unit(words: str) -> str:
    """The unit of measure that words after a number name, or "" for any other words, which do not count.

    Products and quotients have one spelling: m/s, m s^-1 and meters per second are one unit.
    """
    words = re.sub(r"per cent", "percent", words, flags=re.IGNORECASE).strip(" .,")
    words = re.sub(r"\bper\b", "/", words)
    words = re.sub(r"(?<=[A-Za-z])-(?=[A-Za-z])", " ", words)  # kilowatt-hours
    words = re.sub(r"(?:\b[Dd]eg(?:rees?|\.)?|°)\s*(?=(?:[CFK]|[Cc]elsius|[Ff]ahrenheit|[Kk]elvins?)\b)", "°", words)
    words = re.sub(r"°(?=[A-Za-z]{2})", "", words)
    words = re.sub(r"\b(?:[Ss]quare|[Ss]q\.?)\s+(\S+)|\b(\S+)\s+squared", r"\1\2^2", words)
    words = re.sub(r"\b(?:[Cc]ubic|[Cc]u\.?)\s+(\S+)|\b(\S+)\s+cubed", r"\1\2^3", words)
    powers: dict[str, int] = {}
    at, sign, inside = 0, 1, False
    while at < len(words):
        factor = _FACTOR.match(words, at)
        if factor is None:
            return ""
        at = factor.end()
        if factor[1]:
            sign, inside = -1, bool(factor[2])
        elif factor[3]:
            sign, inside = 1, False
        elif factor[4]:
            known = measure(factor[4])
            if known is None:
                return ""
            powers[known] = powers.get(known, 0) + sign * int(factor[5] or 1)
            sign = sign if inside else 1
    name = " ".join(sorted(name if power == 1 else f"{name}^{power}" for name, power in powers.items() if power))
    return _WHOLE_NAMES.get(name, name)


_COMPATIBLE = [
    {"degree", "°C"}, {"degree", "°F"}, {"degree", "kelvin"}, {"C", "°C"}, {"C", "coulomb"}, {"F", "°F"}, {"F", "farad"}
]  # fmt: skip


def compatible(unit: str, other: str) -> bool:
    """Whether values in two units may be one: equal units, a missing one, a degree sign without its scale, C for °C."""
    return not unit or not other or unit == other or {unit, other} in _COMPATIBLE


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
