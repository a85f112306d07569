"""The objectives of the papers, as choices on the five axes. An arm that names a preset may still set any key
itself.

A preset named after a paper has the arithmetic of that paper's equations. Where the runs of a paper had another, or
another paper uses the method in another form, that form is a preset of its own. docs/objectives.md has the equation of
each preset and says where it departs from its source.
"""

from typing import Any

_TOKEN = {"ratio": "token", "surrogate": "clipped"}
_SEQUENCE = {"ratio": "sequence", "surrogate": "clipped"}
_GRPO_CLIP = {"bounds": "ppo", "eps_low": 0.2, "eps_high": 0.2}
_ABC_CLIP = {"bounds": "abc", "eps_1": 0.2, "eps_2": 0.2, "eps_3": 0.2, "eps_4": 0.2}
_GRPO_MEANS = {"advantage": {"scale": "group"}, "aggregation": "seq-mean-token-mean"}
_GAPO_MEANS = {"advantage": {"scale": "none"}, "aggregation": "token-mean"}
_SCALED_TOKEN_MEAN = {"advantage": {"scale": "group"}, "aggregation": "token-mean"}

PRESETS: dict[str, dict[str, Any]] = {
    # arXiv:2402.03300 Eq. 3, without its KL penalty (training.beta)
    "grpo": _TOKEN | _GRPO_CLIP | _GRPO_MEANS,
    # arXiv:2503.20783
    "dr_grpo": _TOKEN | _GRPO_CLIP | {"advantage": {"scale": "none"}, "aggregation": "seq-mean-token-sum-norm"},
    # arXiv:2503.14476 Eq. 8, 9: the clip and the mean over tokens
    "dapo_clip": _TOKEN | {"bounds": "ppo", "eps_low": 0.2, "eps_high": 0.28} | _SCALED_TOKEN_MEAN,
    # arXiv:2507.18071 Eq. 5-7; widths of its section 5.1
    "gspo": _SEQUENCE | {"bounds": "ppo", "eps_low": 3e-4, "eps_high": 4e-4} | _GRPO_MEANS,
    # GSPO as the baseline of arXiv:2609.00444; the arm gives the widths
    "gspo_asym": _SEQUENCE | {"bounds": "ppo"} | _GAPO_MEANS,
    # arXiv:2602.06717 Eq. 3, 12-14; the arm gives advantage.focal_gamma
    "f_grpo": _TOKEN | _GRPO_CLIP | _GRPO_MEANS,
    # F-GRPO and F-GSPO as the baselines of arXiv:2609.00444
    "f_grpo_unscaled": _TOKEN | _GRPO_CLIP | _GAPO_MEANS,
    "f_gspo": _SEQUENCE | {"bounds": "ppo"} | _GAPO_MEANS,
    # arXiv:2609.00444 Eq. 11-13
    "gapo_token": _TOKEN | {"bounds": "gapo", "eps_low": 0.2, "eps_high_max": 0.28} | _GAPO_MEANS,
    "gapo_seq": _SEQUENCE | {"bounds": "gapo", "eps_low": 3e-3, "eps_high_max": 5e-3} | _GAPO_MEANS,
    # arXiv:2601.03895 Eq. 3, 5, 6
    "abc_grpo": _TOKEN | _ABC_CLIP | {"advantage": {"scale": "none"}, "aggregation": "seq-mean-token-mean"},
    # what the runs of arXiv:2601.03895 had: their configuration scales by the group's std, TRL 0.25 takes the mean
    # over tokens
    "abc_grpo_code": _TOKEN | _ABC_CLIP | _SCALED_TOKEN_MEAN,
    # arXiv:2506.13585 Eq. 4, 5; the arm gives cispo_upper
    "cispo": {"ratio": "token", "surrogate": "cispo"} | _SCALED_TOKEN_MEAN,
    # arXiv:2511.20347 Eq. 5, 6
    "sapo": {"ratio": "token", "surrogate": "sapo"} | _GRPO_MEANS,
}
