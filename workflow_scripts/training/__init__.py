"""GRPO training of one arm with one seed, and what it records."""
