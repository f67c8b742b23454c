"""All that sentence-transformers asks of us, and nowhere else."""
