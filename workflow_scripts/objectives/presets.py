"""The objectives of the papers, as choices on the five axes. An arm that names a preset may still set any key
itself."""

from typing import Any

_TOKEN = {"ratio": "token", "surrogate": "clipped"}
_SEQUENCE = {"ratio": "sequence", "surrogate": "clipped"}
_PLAIN = {"advantage": {"scale": "none"}, "aggregation": "token-mean"}
_GRPO_CLIP = {"bounds": "ppo", "eps_low": 0.2, "eps_high": 0.2}

PRESETS: dict[str, dict[str, Any]] = {
    # arXiv:2402.03300
    "grpo": _TOKEN | _GRPO_CLIP | {"advantage": {"scale": "group"}, "aggregation": "seq-mean-token-mean"},
    # arXiv:2503.20783
    "dr_grpo": _TOKEN | _GRPO_CLIP | {"advantage": {"scale": "none"}, "aggregation": "seq-mean-token-sum-norm"},
    # arXiv:2503.14476
    "dapo_clip": _TOKEN
    | {"bounds": "ppo", "eps_low": 0.2, "eps_high": 0.28, "advantage": {"scale": "group"}, "aggregation": "token-mean"},
    # arXiv:2507.18071, aggregated as in arXiv:2609.00444; the arm gives the widths
    "gspo": _SEQUENCE | {"bounds": "ppo"} | _PLAIN,
    "gspo_asym": _SEQUENCE | {"bounds": "ppo"} | _PLAIN,
    # arXiv:2602.06717; the arm gives advantage.focal_gamma
    "f_grpo": _TOKEN | _GRPO_CLIP | _PLAIN,
    "f_gspo": _SEQUENCE | {"bounds": "ppo"} | _PLAIN,
    # arXiv:2609.00444
    "gapo_token": _TOKEN | {"bounds": "gapo", "eps_low": 0.2, "eps_high_max": 0.28} | _PLAIN,
    "gapo_seq": _SEQUENCE | {"bounds": "gapo", "eps_low": 3e-3, "eps_high_max": 5e-3} | _PLAIN,
    # arXiv:2601.03895: its configuration scales by the group's std, its Algorithm 1 does not
    "abc_grpo": _TOKEN
    | {"bounds": "abc", "eps_1": 0.2, "eps_2": 0.2, "eps_3": 0.2, "eps_4": 0.2}
    | {"advantage": {"scale": "group"}, "aggregation": "token-mean"},
    # arXiv:2506.13585; the arm gives cispo_upper
    "cispo": {"ratio": "token", "surrogate": "cispo", "advantage": {"scale": "group"}, "aggregation": "token-mean"},
    # arXiv:2511.20347
    "sapo": {
        "ratio": "token",
        "surrogate": "sapo",
        "advantage": {"scale": "group"},
        "aggregation": "seq-mean-token-mean",
    },
}
