"""Model folders: their files, their weights, and the embedded base."""
