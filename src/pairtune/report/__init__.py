"""What is shown of finished runs: reads records only, no torch, no training."""
