"""Finding holdout problems among training problems."""
