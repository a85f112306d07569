"""What happens before and after Snakemake's jobs."""
