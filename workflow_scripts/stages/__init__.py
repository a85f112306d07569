"""One module per rule: parse arguments, read parquet, call the package, write parquet. Nothing else."""
