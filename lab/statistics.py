"""How two rows compare: one bootstrap, over test items and seeds, and Holm's correction for many comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite

import numpy as np

from lab.figures import four_digits

RESAMPLES = 20_000
INSIDE = 0.95
LEVEL = 1 - INSIDE


@dataclass(frozen=True)
class Difference:
    """How much higher one row is than another: the mean, its 95 % interval and p, by the bootstrap.

    lost: the share of the first one's score that the second lacks. With a single run of either row the interval is infinite.
    """

    mean: float
    low: float
    high: float
    p: float = 1.0
    lost: float = 0.0

    @property
    def sign(self) -> int:
        """1 surely higher, -1 surely lower, 0 within the noise; by itself, whatever else was compared."""
        return int(self.low > 0) - int(self.high < 0)


def difference(one: np.ndarray, other: np.ndarray, share: float = 0.0) -> Difference:
    """How much higher `one` is, (seeds, items) each; items are the same test queries for both, or one column of means.

    share: by how much more than this share of `one` it is higher.
    """
    mean = float((1 - share) * one.mean() - other.mean())
    lost = 1 - float(other.mean() / one.mean()) if one.mean() else 0.0
    if min(len(one), len(other)) < 2:  # a single seed says nothing about seeds
        return Difference(mean, -np.inf, np.inf, 1.0, lost)
    scale = seed_scale((1 - share) * one, other)
    drawn = (1 - share) * resample(one, 0, scale) - resample(other, 1, scale)
    low, high = np.quantile(drawn, [LEVEL / 2, 1 - LEVEL / 2])
    p = 2 * min((drawn <= 0).mean(), (drawn >= 0).mean()) + 1 / RESAMPLES
    return Difference(mean, float(low), float(high), min(1.0, float(p)), lost)


def resample(scores: np.ndarray, side: int, scale: np.ndarray) -> np.ndarray:
    """What the mean might have been, (RESAMPLES,): items drawn again, the same for both sides, and seeds for each side alone."""
    items = _item_weights(scores.shape[1]) @ scores.T  # (RESAMPLES, seeds)
    return items.mean(axis=1) + scale * np.einsum("rs,rs->r", _seed_weights(len(scores), side), items)


def seed_scale(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """What turns normal deviations of seeds into those of Welch's t, (RESAMPLES,): a few seeds hardly show how seeds vary.

    Without it, five seeds that are drawn again would understate it by a quarter, and with an item alone, a mean of F1 for each
    seed, the interval is Welch's.
    """
    parts = [side.mean(axis=1).var(ddof=1) / len(side) for side in (one, other)]
    if not sum(parts):
        return np.ones(RESAMPLES)
    freedom = sum(parts) ** 2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (one, other), strict=True))
    return np.sqrt(freedom / np.random.default_rng(2).chisquare(freedom, size=RESAMPLES))


@cache
def _item_weights(items: int) -> np.ndarray:
    """How often each item is drawn, as a share: (RESAMPLES, items)."""
    return np.random.default_rng(0).multinomial(items, np.full(items, 1 / items), size=RESAMPLES) / items


@cache
def _seed_weights(seeds: int, side: int) -> np.ndarray:
    """What a seed counts for more or less than the others, (RESAMPLES, seeds): a mean then varies by its standard error."""
    normal = np.random.default_rng([1, seeds, side]).normal(size=(RESAMPLES, seeds))
    return (normal - normal.mean(axis=1, keepdims=True)) / np.sqrt(seeds * (seeds - 1))


def holm(p_values: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Which of many comparisons are sure together (Holm, 1979): the chance of a single wrong one is at most `level`.

    >>> holm([0.01, 0.04, 0.03])
    [True, False, False]
    """
    sure = [False] * len(p_values)
    for step, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[place] > level / (len(p_values) - step):
            break
        sure[place] = True
    return sure


def describe_difference(difference: Difference | None) -> str:
    """A difference and its interval, with a mark where it is sure.

    >>> describe_difference(Difference(0.02, 0.01, 0.03))
    '+0.0200 (+0.0100 to +0.0300) ✓'
    """
    if difference is None:
        return "–"
    return describe_interval(difference) + {1: " ✓", -1: " ✗", 0: ""}[difference.sign]


def describe_interval(difference: Difference) -> str:
    """A difference and its interval.

    >>> describe_interval(Difference(0.02, float("-inf"), float("inf")))
    '+0.0200 (one run only)'
    """
    if not isfinite(difference.high):
        return f"{four_digits(difference.mean, signed=True)} (one run only)"
    return f"{four_digits(difference.mean, signed=True)} ({difference.low:+.4f} to {difference.high:+.4f})"
