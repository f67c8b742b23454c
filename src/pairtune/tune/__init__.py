"""Many trainings at once, and choosing between recipes."""
