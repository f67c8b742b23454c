"""A run as it is written down: recipe, record, evidence, folder."""
