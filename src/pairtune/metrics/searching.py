"""Metrics of a search that has several right answers to a query: from the ranks of all of them, and what each is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pairtune.metrics.ranking import Gold, distinct_queries, find_hits


@dataclass(frozen=True)
class Answered:
    """For each query, the ranks of its right answers, from 1, and their gains."""

    ranks: Sequence[np.ndarray]
    gains: Sequence[np.ndarray]


def all_hit_ranks(scores: np.ndarray, hits: Sequence[np.ndarray]) -> list[np.ndarray]:
    """For each query, the rank of each hit among C candidates, from 1; of equal scores a wrong answer comes first.

    scores: (Q, C). hits: for each query, the columns of its right answers.

    >>> [ranks.tolist() for ranks in all_hit_ranks(np.array([[0.9, 0.5, 0.7, 0.5]]), [np.array([1, 2])])]
    [[4, 2]]
    """
    return [_ranks(row, columns) for row, columns in zip(scores, hits, strict=True)]


def find_gains(gold: Gold) -> list[np.ndarray]:
    """For each query, what each of its hits is worth, as `find_hits` orders them: its grade where there are several, else 1."""
    graded = len(np.unique(gold.grade)) > 2
    column = {text: place for place, text in enumerate(gold.corpus or ())}
    best: dict[tuple[str, int], float] = {}
    for query, right, grade in zip(gold.query, gold.right, gold.grade.tolist(), strict=True):
        if right in column:
            key = query, column[right]
            best[key] = max(best.get(key, 0.0), grade if graded else 1.0)
    queries = distinct_queries(gold.query)
    return [np.array([best[query, int(place)] for place in own]) for query, own in zip(queries, find_hits(gold), strict=True)]


def _ranks(scores: np.ndarray, columns: np.ndarray) -> np.ndarray:
    own = scores[columns]
    order = np.argsort(-own, kind="stable")
    ranks = np.empty(len(own), np.int64)
    for place, at in enumerate(order):
        ranks[at] = 1 + place + np.sum(scores >= own[at]) - np.sum(own >= own[at])
    return ranks


def average_precision_of(ranks: np.ndarray, gains: np.ndarray, cut: int) -> float:
    """The mean, over the right answers, of the precision at the rank of each."""
    return float(np.mean(np.arange(1, len(ranks) + 1) / np.sort(ranks)))


def recall_of(ranks: np.ndarray, gains: np.ndarray, cut: int) -> float:
    """The share of the right answers among the first k."""
    return float(np.mean(ranks <= cut))


def discounted_gain_of(ranks: np.ndarray, gains: np.ndarray, cut: int) -> float:
    """The discounted gain of the first k against that of the ideal order."""
    found = np.where(ranks <= cut, gains / np.log2(ranks + 1), 0).sum()
    ideal = np.sort(gains)[::-1][:cut]
    return float(found / (ideal / np.log2(np.arange(len(ideal)) + 2)).sum())


SEARCH_METRICS: dict[str, Callable[[np.ndarray, np.ndarray, int], float]] = {
    "MAP": average_precision_of,
    "Recall@k": recall_of,
    "nDCG@k": discounted_gain_of,
}


def score_answers(found: Answered, key: str, cut: int) -> np.ndarray:
    """(Q,) one of SEARCH_METRICS for each query; 0 where there is no right answer."""
    metric = SEARCH_METRICS[key]
    return np.array(
        [metric(ranks, gains, cut) if len(ranks) else 0.0 for ranks, gains in zip(found.ranks, found.gains, strict=True)]
    )
