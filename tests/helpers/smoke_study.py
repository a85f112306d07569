"""The small study that the real stages run: once undisturbed, and again as what tests do to it asks for."""

from pathlib import Path

import yaml
from copies import copied

STUDY = yaml.safe_load("""
study: smoke
model: {source: embedded}
data:
  train: {benchmark: word_problems, split: train, rows: 200, seed: 7}
  decontaminate_against: [word_problems_test]
rollout: {prompts: 8, group_size: 4, max_completion: 32}
training: {steps: 8, checkpoints: [4, 8], learning_rate: 3.0e-4}
arms:
  fixed: {preset: gspo_asym, eps_low: 3.0e-3, eps_high: 5.0e-3}
  gapo: {preset: gapo_seq, eps_low: 3.0e-3, eps_high_max: 5.0e-3}
  late: {same_as: gapo, eps_high_max: 2.0e-2, branch_from: {arm: fixed, step: 4}}
baseline: fixed
seeds: 2
evaluation:
  {benchmarks: [word_problems_test], problems: 16, samples: 4, pass_at: [1, 4], max_completion: 32, base_repeats: 2}
analysis: {looks: [2]}
compute: {keep: {state: last}}
""")
ROOT = "results/smoke"


def run(root: Path) -> None:
    """A copy of the repository in `root`, and the study in it, undisturbed."""
    copy = copied(root)
    (copy.root / "config.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False), encoding="utf-8")
    copy.snakemake("--cores", "2", "--quiet", "rules", "host")
