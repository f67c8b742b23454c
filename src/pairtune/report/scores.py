"""The table of scores: before, after, how sure that is, and what the paper has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pairtune.metrics.table import METRICS
from pairtune.report.intervals import Intervals, find_intervals
from pairtune.report.published import published_score
from pairtune.report.read import Shown
from pairtune.report.runs import comparable


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
    published: float | None
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
            published=published_score(one.run.name, metric),
            best=len(shown) > 1 and len(tasks) == 1 and one.run.after["test"][metric] == highest,
        )
        for one in shown
    ]


def explain_metric(metric: str) -> str:
    """What a metric says, with its cut in place of k.

    >>> explain_metric("P@1")
    'share of positives in the first place'
    """
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
