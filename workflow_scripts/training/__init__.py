"""GRPO training of one arm with one seed, and what it records."""

TESTED_TRL = "1.16.0"  # the trainer overrides methods of TRL's, which change from version to version
