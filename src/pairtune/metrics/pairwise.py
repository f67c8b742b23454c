"""Metrics over all pairs at once: correlation with the labels, and the separation of two classes."""

from __future__ import annotations

import numpy as np
from scipy import stats
from sklearn.metrics import average_precision_score


def spearman(scores: np.ndarray, labels: np.ndarray) -> float:
    """Spearman's rank correlation, ties sharing their mean rank; 0 when one side is constant: nothing is ranked.

    >>> round(spearman(np.array([-0.5, 0.1, 0.9]), np.array([0.0, 0.4, 1.0])), 4)
    1.0
    """
    return 0.0 if _constant(scores) or _constant(labels) else float(stats.spearmanr(scores, labels).statistic)


def pearson(scores: np.ndarray, labels: np.ndarray) -> float:
    """Pearson's linear correlation; 0 when one side is constant."""
    return 0.0 if _constant(scores) or _constant(labels) else float(stats.pearsonr(scores, labels).statistic)


def average_precision(scores: np.ndarray, positive: np.ndarray) -> float:
    """Area under the precision–recall curve over all pairs; 0 when there is no positive."""
    return float(average_precision_score(positive, scores)) if positive.any() else 0.0


def _constant(values: np.ndarray) -> bool:
    return len(values) == 0 or bool(np.all(values == values[0]))
