"""The table of scores: before, after, and how sure that is, by resampling queries or pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pairtune.data.pairs import MEAN
from pairtune.metrics import METRICS, Gold, Scored, needs_all_hits, score_ranks, scores_per_item
from pairtune.report.summary import Shown, comparable
from pairtune.runs.evidence import Evidence, Judged, Outcome

RESAMPLES = 500
INSIDE = 0.95
Statistic = Callable[[np.ndarray], float]  # the metric of the items at these places


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
    if tested.before.rank is not None and needs_all_hits(metric):  # only the best answer of each query was kept
        return None
    one, other = (make_statistic(evidence, tested, *side, metric) for side in ((tested.before, before), (tested.after, after)))
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


def make_statistic(evidence: Evidence, tested: Judged, outcome: Outcome, recorded: dict[str, float], metric: str) -> Statistic:
    """The metric as a function of which items are looked at: queries where it is a mean over them, else pairs."""
    if outcome.rank is not None:
        ranks = np.array([rank or np.inf for rank in outcome.rank])
        return lambda places: score_ranks(ranks[places], [metric])[metric]
    scores = np.array(outcome.score)
    gold = Gold(np.array(tested.label), np.array(tested.query), np.array(tested.grade), evidence.positive_above)
    items = scores_per_item(gold, scores, metric)
    if items is not None:
        return lambda places: float(items[places].mean())
    compute = METRICS[metric].whole
    assert compute is not None

    def statistic(places: np.ndarray) -> float:
        return compute(Scored(gold.take(places), scores[places], recorded.get("threshold")))

    return statistic


def _around(value: float, deviations: np.ndarray) -> Interval:
    low, high = np.quantile(deviations, [(1 - INSIDE) / 2, (1 + INSIDE) / 2])
    return Interval(float(value + low), float(value + high))


@dataclass(frozen=True)
class ScoreRow:
    """One run and metric of the test set. best: no other run on the page has more."""

    label: str
    metric: str
    says: str
    main: bool
    before: float
    after: float
    intervals: Intervals | None
    best: bool


def score_rows(shown: Sequence[Shown]) -> list[ScoreRow]:
    """Metric by metric, the main one first, and in each of them run by run."""
    names = dict.fromkeys(name for one in shown for name in (one.run.metric, *comparable(one.run)))
    return [row for metric in names for row in _rows_of(metric, [one for one in shown if metric in comparable(one.run)])]


def _rows_of(metric: str, shown: Sequence[Shown]) -> list[ScoreRow]:
    highest = max(one.run.after["test"][metric] for one in shown)
    tasks = {one.run.task for one in shown}
    return [
        ScoreRow(
            label=one.label,
            metric=metric,
            says=explain_metric(metric),
            main=metric == one.run.metric,
            before=one.run.before["test"][metric],
            after=one.run.after["test"][metric],
            intervals=_intervals(one, metric),
            best=len(shown) > 1 and len(tasks) == 1 and one.run.after["test"][metric] == highest,
        )
        for one in shown
    ]


def explain_metric(metric: str) -> str:
    """What a metric says, with its cut in place of k.

    >>> explain_metric("P@1")
    'share of positives in the first place'
    """
    if metric == MEAN:
        return "mean of the main metrics of all sources"
    if " " in metric:  # of one of several sources
        source, _, own = metric.rpartition(" ")
        return f"{explain_metric(own)}, of source {source}"
    if metric in METRICS:
        return METRICS[metric].says
    name, _, cut = metric.partition("@")
    place = "in the first place" if cut == "1" else f"among the first {cut}"
    return (
        METRICS[f"{name}@k"].says.replace("@k", f"@{cut}").replace("among the first k", place).replace("first k", f"first {cut}")
    )


def verdict(row: ScoreRow) -> str:
    """The row in one sentence."""
    sentence = f"{row.metric} on test went from {row.before:.3f} to {row.after:.3f} ({row.after - row.before:+.3f}"
    if row.intervals is None:
        return f"{sentence})."
    low, high = row.intervals.difference.low, row.intervals.difference.high
    sure = "" if low > 0 or high < 0 else " The interval includes no change at all."
    return f"{sentence}; 95 % interval {low:+.3f} to {high:+.3f}).{sure}"


def _intervals(one: Shown, metric: str) -> Intervals | None:
    return None if one.evidence is None else find_intervals(one.evidence, metric, one.run.before["test"], one.run.after["test"])
