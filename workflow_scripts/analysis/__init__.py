"""What the tables of results are computed with."""
