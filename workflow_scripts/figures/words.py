"""Numbers as a reader sees them: shares in per cent, scores in points (hundredths), true minus signs."""

MINUS = "\N{MINUS SIGN}"


def number(value: float, digits: int = 1, *, sign: bool = False) -> str:
    """A decimal number, never "-0.0"; sign: with a plus in front of positive ones."""
    text = f"{value:{'+' if sign else ''}.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", MINUS)


def percent(share: float) -> str:
    """0.1234 -> "12.3 %"; a share within one in a thousand of 0 or 1 keeps two significant digits of what it lies off;
    none at all is "0 %"."""
    size = 100 * share
    if 99.9 < size < 100:
        return f"{100 - float(f'{100 - size:.2g}'):.15g} %"
    return f"{size:.2g} %" if size < 0.1 else f"{number(size)} %"


def points(score: float) -> str:
    """A difference of scores: 0.0123 -> "+1.2 points"."""
    return f"{number(100 * score, sign=True)} points"


def detectable(effect: float) -> str:
    """The smallest effect that a design detects, in points; no difference of two scores is above 100."""
    return number(100 * effect) if effect <= 1 else "> 100"


def interval(low: float, high: float) -> str:
    """A confidence interval of a difference, in points: "[−2.1, +1.3]"."""
    return f"[{number(100 * low, sign=True)}, {number(100 * high, sign=True)}]"


def span(seconds: float) -> str:
    """A duration: 42 s, 7 min, 3.2 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def markdown_table(rows: list[list[str]]) -> str:
    """Rows of cells, the first of them the head, as a markdown table."""
    plain = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in plain]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def columns(rows: list[list[str]]) -> str:
    """Rows as aligned text columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)
