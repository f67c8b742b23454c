"""Choosing on dev: the best epoch of a run, the best of several seeds, or their mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pairtune.results import Run


def best_index(dev_scores: Sequence[float]) -> int:
    """The position of the highest dev score; among equals the earliest, which was trained least.

    >>> best_index([0.7, 0.9, 0.9])
    1
    """
    return int(np.argmax(dev_scores))


def kept_run(runs: Sequence[Run]) -> int:
    """The position of the seed whose model is kept: the best on dev; where dev was trained on, the first."""
    return best_index([run.dev_score() for run in runs]) if runs[0].dev_held_out else 0


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean over seeds and the sample standard deviation, 0 for a single seed."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
