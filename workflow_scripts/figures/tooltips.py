"""What a tooltip says of a value: its name in words, its unit, and as many digits as it deserves."""

import altair as alt

POINTS, SHARE = "+.1f", ".3~r"  # signed points with one decimal; shares in %, however small
TOLD = {  # field → title, format (None: text or a whole number)
    "arm": ("arm", None),
    "label": ("arms", None),
    "seed": ("seed", None),
    "seeds": ("seeds per arm", None),
    "runs": ("runs", None),
    "problems": ("problems", None),
    "repetitions": ("repetitions", None),
    "step": ("optimizer updates", None),
    "bin": ("problems in", None),
    "policy": ("clip policy", None),
    "line": ("line", None),
    "verdict": ("verdict", None),
    "said": ("what it means", None),
    "text": ("tokens decided otherwise", None),
    "group_correct": ("correct rollouts in the group", None),
    "solved": ("correct samples", None),
    "row": ("design", None),
    "method": ("method", None),
    "score": ("score (%)", ".1f"),
    "low": ("lowest run", SHARE),
    "high": ("highest run", SHARE),
    "delta": ("difference from the baseline (points)", POINTS),
    "ci_low": ("interval from (points)", POINTS),
    "ci_high": ("interval to (points)", POINTS),
    "sd": ("SD between seeds (points)", ".2f"),
    "sd_low": ("95 % interval from (points)", ".2f"),
    "sd_high": ("95 % interval to (points)", ".2f"),
    "expected_sd": ("SD by sampling alone (points)", ".2f"),
    "effect": ("effect found (points)", ".1f"),
    "share": ("share (%)", SHARE),
    "rate": ("solved (%)", ".1f"),
    "coverage": ("coverage (%)", ".1f"),
    "truncated_share": ("cut off (%)", SHARE),
    "mean_entropy": ("entropy (nat)", ".3f"),
    "mean_completion_tokens": ("tokens of a completion", ".1f"),
    "correlation": ("correlation of ratio and advantage", "+.2f"),
    "deviation": ("mean |ratio − 1|", ".2~r"),
    "log_ratio": ("log ratio", "+.4~f"),
    "gradient_weight": ("weight", ".2f"),
    "width": ("upper bound − 1", ".3~r"),
    "time": ("time", ".3~r"),
}


def tell(*fields: str, **titles: str) -> list[alt.Tooltip]:
    """Tooltips of these fields. titles: of fields whose meaning differs here.

    Raises KeyError for a field that TOLD does not name.
    """
    found = []
    for field in fields:
        title, digits = TOLD[field]
        title = titles.get(field, title)
        found.append(
            alt.Tooltip(f"{field}:N", title=title)
            if digits is None
            else alt.Tooltip(f"{field}:Q", title=title, format=digits)
        )
    return found
