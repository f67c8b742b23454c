"""Metrics over all pairs at once: correlation with the labels, the separation of two classes, F1 and its threshold."""

from __future__ import annotations

import math

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


def f1_at(scores: np.ndarray, positive: np.ndarray, threshold: float) -> float:
    """F1 of calling positive every pair whose score lies above the threshold; 0 when none is right.

    >>> f1_at(np.array([0.9, 0.4, 0.1]), np.array([True, True, False]), 0.5)
    0.6666666666666666
    """
    called = scores.astype(np.float64) > threshold
    right = int(np.sum(called & positive))
    return 2 * right / (int(called.sum()) + int(positive.sum())) if right else 0.0


def best_threshold(scores: np.ndarray, positive: np.ndarray) -> float:
    """The threshold with the highest F1, half-way between two neighboring scores so that it carries over.

    Equal scores are never parted; among equally good thresholds the highest is taken.
    """
    if not positive.any():
        return float(scores.max()) if len(scores) else 0.0
    scores = scores.astype(np.float64)
    falling = np.argsort(-scores, kind="stable")
    ranked = scores[falling]
    right = np.cumsum(positive[falling])
    f1 = 2 * right / (np.arange(1, len(ranked) + 1) + positive.sum())
    below = np.append(ranked[1:], -np.inf)
    f1[ranked == below] = -1.0  # no threshold lies between two equal scores
    cut = int(np.argmax(f1))
    return threshold_between(float(ranked[cut]), float(below[cut]))


def threshold_between(above: float, below: float) -> float:
    """A number under `above` and not under `below`: half-way, where floats are that fine; a little less than the lowest score.

    >>> threshold_between(0.9, 0.5), threshold_between(1.0, float("-inf"))
    (0.7, 0.999999)
    """
    if below == -math.inf:
        return min(above - 1e-6, math.nextafter(above, -math.inf))
    middle = above / 2 + below / 2
    return middle if below <= middle < above else below
