"""How far a test score may be off, since the test set is a sample: intervals by resampling queries or pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pairtune.evidence import Evidence, Judged, Outcome
from pairtune.metrics import score_ranks, scores_per_item
from pairtune.metrics.table import METRICS, Scored
from pairtune.pairs import PairSet

RESAMPLES = 500
INSIDE = 0.95
Figure = Callable[[np.ndarray], float]  # the metric of the items at these places


@dataclass(frozen=True)
class Interval:
    """From low to high lie 95 % of what other test sets of this kind would have given."""

    low: float
    high: float


@dataclass(frozen=True)
class Intervals:
    """Of one metric before, after, and of the difference: the same items are drawn for both."""

    before: Interval
    after: Interval
    difference: Interval


def find_intervals(evidence: Evidence, metric: str, before: dict[str, float], after: dict[str, float]) -> Intervals | None:
    """Percentile intervals of a metric around its recorded values; None where the evidence does not hold what it takes.

    before, after: the recorded test scores. Where only m of N items were kept, deviations are scaled by √(m/N) (the
    m-out-of-n bootstrap).
    """
    tested = evidence.test
    if tested is None or metric not in before or metric not in after:
        return None
    one, other = (make_figure(evidence, tested, *side, metric) for side in ((tested.before, before), (tested.after, after)))
    count = len(set(tested.query)) if evidence.kind == "ranking" else len(tested.left)
    scale = np.sqrt(len(tested.left) / tested.total)
    rng = np.random.default_rng(0)
    draws = [rng.integers(count, size=count) for _ in range(RESAMPLES)]
    drawn = np.array([(one(places), other(places)) for places in draws])  # (RESAMPLES, 2)
    whole = np.arange(count)
    moved = (drawn - (one(whole), other(whole))) * scale
    first, second = before[metric], after[metric]
    return Intervals(
        _around(first, moved[:, 0]), _around(second, moved[:, 1]), _around(second - first, moved[:, 1] - moved[:, 0])
    )


def make_figure(evidence: Evidence, tested: Judged, outcome: Outcome, recorded: dict[str, float], metric: str) -> Figure:
    """The metric as a function of which items are looked at: queries where it is a mean over them, else pairs."""
    if outcome.rank is not None:
        ranks = np.array([rank or np.inf for rank in outcome.rank])
        return lambda places: score_ranks(ranks[places], [metric])[metric]
    scores = np.array(outcome.score)
    label, grade, query = (np.array(column) for column in (tested.label, tested.grade, tested.query))
    texts = ("",) * len(scores)
    pairs = PairSet(texts, texts, label, query, grade)
    items = scores_per_item(pairs, scores, metric, positive_above=evidence.threshold)
    if items is not None:
        return lambda places: float(items[places].mean())
    compute = METRICS[metric].whole
    assert compute is not None

    def figure(places: np.ndarray) -> float:
        drawn = PairSet(texts, texts, label[places], query[places], grade[places])
        return compute(Scored(drawn, scores[places], evidence.threshold, recorded.get("threshold")))

    return figure


def _around(value: float, deviations: np.ndarray) -> Interval:
    low, high = np.quantile(deviations, [(1 - INSIDE) / 2, (1 + INSIDE) / 2])
    return Interval(float(value + low), float(value + high))
