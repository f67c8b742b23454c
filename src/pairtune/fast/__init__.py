"""The training step without padding, and every private hook into torch and transformers."""
