"""The measures themselves: of a ranked list, of a search with several right answers, of all pairs at once.

A ranked list: per query first, then the mean over *all* queries, those with no positive counting 0. Among equal scores the worse
answer comes first: a tie is no ranking, and the order of the file (often by time or by another system's rank) must not leak in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ir_measures
import numpy as np
from ir_measures import AP, RR, P, R, nDCG
from scipy import stats
from sklearn.metrics import average_precision_score

MEASURES = {
    "MAP": lambda cut: AP,
    "MRR": lambda cut: RR @ cut if cut else RR,
    "P": lambda cut: P @ cut,
    "Recall": lambda cut: R @ cut,
    "nDCG": lambda cut: nDCG @ cut,
}


@dataclass(frozen=True, eq=False)
class Gold:
    """What is known of N pairs, each (N,): label from 0 to 1, query, grade on the data's own scale.

    Pairs whose label lies above `positive_above` are positive. right, corpus: in a search, the right texts, and all texts
    that are searched in.
    """

    label: np.ndarray
    query: np.ndarray
    grade: np.ndarray
    positive_above: float = 0.5
    right: Sequence[str] = ()
    corpus: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.label)

    @property
    def positive(self) -> np.ndarray:
        """(N,) bool."""
        return self.label > self.positive_above

    def take(self, rows: np.ndarray) -> Gold:
        """The pairs at these rows, without a corpus."""
        return Gold(self.label[rows], self.query[rows], self.grade[rows], self.positive_above)


def distinct_queries(query: np.ndarray) -> list[str]:
    """The query ids in order of first appearance: the order of every per-query array."""
    return list(dict.fromkeys(query.tolist()))


def rank_by_query(name: str, cut: int, query: np.ndarray, gain: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """One value per query of MAP, MRR, P or nDCG, by ir_measures.

    gain: (N,) whole numbers ≥ 0; for all but nDCG a candidate is relevant when its gain is above 0.
    """
    if name != "nDCG":
        gain = (gain > 0).astype(np.int64)
    measure = MEASURES[name](cut)
    documents = _tie_breaking_names(gain)
    number = {name: str(place) for place, name in enumerate(distinct_queries(query))}  # a name with NUL ends the process there
    names = [number[name] for name in query.tolist()]
    qrels = [ir_measures.Qrel(q, d, int(g)) for q, d, g in zip(names, documents, gain, strict=True)]
    ranks = ranks_within(query, scores)  # trec_eval reads scores as float32: near ones would be ties
    run = [ir_measures.ScoredDoc(q, d, float(s)) for q, d, s in zip(names, documents, ranks, strict=True)]
    found = {value.query_id: value.value for value in ir_measures.iter_calc([measure], qrels, run)}
    return np.array([found.get(q, 0.0) for q in number.values()])


def ranks_within(query: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """(N,) whole numbers that are ordered, and equal, as the scores of each query are.

    >>> ranks_within(np.array(["a", "a", "b", "a"]), np.array([0.5, -1.0, 7.0, 0.5])).tolist()
    [1, 0, 0, 1]
    """
    _, number = np.unique(query, return_inverse=True)
    order = np.lexsort((scores, number))
    ranked = scores[order]
    begins = np.diff(number[order], prepend=-1) != 0
    changes = np.append(True, ranked[1:] != ranked[:-1])[: len(ranked)]  # not by differences: of two infinities there is none
    rises = np.cumsum(~begins & changes)
    ranks = np.empty(len(scores), np.int64)
    ranks[order] = rises - np.maximum.accumulate(np.where(begins, rises, 0))
    return ranks


def _tie_breaking_names(gain: np.ndarray) -> list[str]:
    """Names by which trec_eval (equal scores: the greater name first) puts the lower gain first."""
    top = int(gain.max()) if len(gain) else 0
    return [f"{top - int(g):09d}-{row:09d}" for row, g in enumerate(gain)]


def find_hits(gold: Gold) -> list[np.ndarray]:
    """For each query, the columns of the corpus that hold a right answer to it."""
    column = {text: place for place, text in enumerate(gold.corpus or ())}
    hits: dict[str, list[int]] = {query: [] for query in distinct_queries(gold.query)}
    for query, right, positive in zip(gold.query, gold.right, gold.positive, strict=True):
        if positive and right in column:
            hits[query].append(column[right])
    return [np.unique(np.array(columns, np.int64)) for columns in hits.values()]


def first_hit_ranks(scores: np.ndarray, hits: Sequence[np.ndarray]) -> np.ndarray:
    """(Q,) the rank, from 1, of each query's best hit among C candidates; infinite where nothing can be hit.

    scores: (Q, C). By hand because 199 × 10,369 candidates as objects take minutes in ir_measures.
    """
    ranks = np.full(len(scores), np.inf)
    for row, columns in enumerate(hits):
        if len(columns):
            best = scores[row, columns].max()
            ranks[row] = 1 + np.sum(scores[row] >= best) - np.sum(scores[row, columns] >= best)
    return ranks


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
    ranked, positive = _fall(scores, positive)
    return _best_cut(ranked, positive, np.ones(len(ranked), np.int64))


MOST_DRAWN = 20_000_000  # pairs that are drawn in all: of very many pairs fewer resamples are enough


def steady_threshold(scores: np.ndarray, positive: np.ndarray, resamples: int = 200) -> float:
    """The mean of the best thresholds of many resamples of the pairs (bagging): it carries over better than the best of one.

    Of few pairs the highest F1 is a matter of luck. The resamples are the same ones for the same number of pairs.
    """
    if not positive.any() or len(np.unique(scores)) < 2:
        return best_threshold(scores, positive)
    ranked, positive = _fall(scores, positive)
    pairs, rng = len(ranked), np.random.default_rng(0)
    found = []
    for _ in range(max(1, min(resamples, MOST_DRAWN // pairs))):
        times = np.bincount(rng.integers(0, pairs, pairs), minlength=pairs)
        if times[positive].any():
            found.append(_best_cut(ranked, positive, times))
    return float(np.sum(np.array(found) / len(found))) if found else best_threshold(ranked, positive)


THRESHOLDS = {"steady": steady_threshold, "best": best_threshold}


def _fall(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scores from the highest to the lowest, exactly, and which of them are positive."""
    scores = scores.astype(np.float64)
    falling = np.argsort(-scores, kind="stable")
    return scores[falling], np.asarray(positive, bool)[falling]


def _best_cut(ranked: np.ndarray, positive: np.ndarray, times: np.ndarray) -> float:
    """The threshold with the highest F1, where each of the falling scores occurs so many times; one of them is positive."""
    right, called = np.cumsum(times * positive), np.cumsum(times)
    f1 = 2 * right / np.maximum(called + right[-1], 1)
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
