"""How good a set of scores is, per item first, then the mean: the metrics by their printable names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from pairtune.errors import UserError
from pairtune.metrics.measures import (
    SEARCH_METRICS,
    THRESHOLDS,
    Answered,
    Gold,
    all_hit_ranks,
    average_precision,
    best_threshold,
    distinct_queries,
    f1_at,
    find_gains,
    find_hits,
    first_hit_ranks,
    pearson,
    rank_by_query,
    score_answers,
    spearman,
    steady_threshold,
)

__all__ = [
    "METRICS",
    "THRESHOLDS",
    "Gold",
    "Metric",
    "Scored",
    "best_threshold",
    "check_metrics",
    "distinct_queries",
    "find_hits",
    "first_hit_ranks",
    "needs_all_hits",
    "score_ranks",
    "score_split",
    "scores_per_item",
    "steady_threshold",
]


HIGHEST_GRADE = 100_000  # trec_eval counts by grade, and has a place in memory for each up to the highest


@dataclass(frozen=True)
class Scored:
    """N pairs with their scores, (N,). threshold: pairs that score above it are called positive."""

    gold: Gold
    scores: np.ndarray
    threshold: float | None

    @property
    def positive(self) -> np.ndarray:
        """(N,) bool."""
        return self.gold.positive

    def gains(self) -> np.ndarray:
        """(N,) the grades as whole numbers, negatives of an ungraded set being 0; nDCG does not mind the scale."""
        grade = self.gold.grade if len(np.unique(self.gold.grade)) > 2 else self.positive.astype(np.float32)
        highest = float(np.abs(grade).max())
        if highest > HIGHEST_GRADE:
            raise UserError(f"grades go up to {highest:g}: give at most {HIGHEST_GRADE:,}; nDCG is the same on any scale")
        if np.array_equal(grade, np.round(grade)):
            return grade.astype(np.int64)
        digits = 3 - min(0, math.floor(math.log10(highest)))  # three that count, also of grades that are all near 0
        return np.round(grade.astype(np.float64) * 10.0**digits).astype(np.int64)


@dataclass(frozen=True)
class Metric:
    """A metric, what it says, and how it is computed: per item (the mean is reported) or over the whole split."""

    says: str
    per_item: Callable[[Scored, int], np.ndarray] | None = None
    whole: Callable[[Scored], float] | None = None


def _by_rank(name: str) -> Callable[[Scored, int], np.ndarray]:
    def per_query(scored: Scored, cut: int) -> np.ndarray:
        gain = scored.gains() if name == "nDCG" else scored.positive.astype(np.int64)
        return rank_by_query(name, cut, scored.gold.query, gain, scored.scores)

    return per_query


def _has_positive(scored: Scored, cut: int) -> np.ndarray:
    precision = rank_by_query("P", cut, scored.gold.query, scored.positive.astype(np.int64), scored.scores)
    return (precision > 0).astype(float)


def _f1_at_threshold(scored: Scored) -> float:
    assert scored.threshold is not None  # score_split leaves F1 out where no threshold is known
    return f1_at(scored.scores, scored.positive, scored.threshold)


def _f1_at_best(scored: Scored) -> float:
    return f1_at(scored.scores, scored.positive, best_threshold(scored.scores, scored.positive))


METRICS = {
    "MAP": Metric("mean average precision over all queries", per_item=_by_rank("MAP")),
    "MRR": Metric("mean reciprocal rank of the first positive", per_item=_by_rank("MRR")),
    "MRR@k": Metric("mean reciprocal rank of the first positive, 0 where it is not among the first k", per_item=_by_rank("MRR")),
    "Recall@k": Metric("share of the positives that are among the first k", per_item=_by_rank("Recall")),
    "P@k": Metric("share of positives among the first k", per_item=_by_rank("P")),
    "nDCG@k": Metric(
        "discounted gain of the first k against the ideal order, gains linear in the grade", per_item=_by_rank("nDCG")
    ),
    "HP@k": Metric("share of queries with a positive among the first k (HasPositives@k)", per_item=_has_positive),
    "F1": Metric("F1 at the threshold chosen on dev", whole=_f1_at_threshold),
    "F1@best": Metric("F1 at the threshold chosen on the scored set itself: optimistic", whole=_f1_at_best),
    "AP": Metric("average precision over all pairs", whole=lambda s: average_precision(s.scores, s.positive)),
    "Spearman": Metric("rank correlation with the labels", whole=lambda s: spearman(s.scores, s.gold.label)),
    "Pearson": Metric("linear correlation with the labels", whole=lambda s: pearson(s.scores, s.gold.label)),
}
RETRIEVAL_METRICS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {  # of the ranks of each query's first hit
    "MRR": lambda ranks, cut: 1.0 / ranks,
    "MRR@k": lambda ranks, cut: np.where(ranks <= cut, 1.0 / ranks, 0.0),
    "HP@k": lambda ranks, cut: (ranks <= cut).astype(float),
}


def _look_up(name: str) -> tuple[str, int]:
    """The key of the table and the cut: P@10 is (P@k, 10).

    >>> _look_up("HP@5")
    ('HP@k', 5)
    """
    if name in METRICS:
        return name, 0
    match = re.fullmatch(r"(\w+)@([1-9][0-9]{0,5})", name)
    if match and f"{match[1]}@k" in METRICS:
        return f"{match[1]}@k", int(match[2])
    raise UserError(f"unknown metric {name!r}; known: {', '.join(METRICS)}")


def check_metrics(names: Iterable[str], retrieval: bool = False) -> None:
    """Refuse names that are not in the table, or that do not fit a search in a corpus."""
    for name in names:
        key, _ = _look_up(name)
        if retrieval and key not in {**RETRIEVAL_METRICS, **SEARCH_METRICS}:
            known = ", ".join([*RETRIEVAL_METRICS, *SEARCH_METRICS])
            raise UserError(f"metric {name} cannot be computed for a search; use one of: {known}")


def needs_all_hits(name: str) -> bool:
    """Whether a metric of a search needs the ranks of all right answers, not of the best one alone."""
    return _look_up(name)[0] in SEARCH_METRICS


def score_split(gold: Gold, scores: np.ndarray, names: Iterable[str], *, threshold: float | None = None) -> dict[str, float]:
    """The metrics of a split by name. F1 is left out when no threshold is given: it must come from dev.

    scores: (N,) one per pair or, in retrieval, (Q, C) every query against every text of the corpus.
    """
    check_metrics(names := list(names), retrieval=gold.corpus is not None)
    _check_scores(gold, scores := np.asarray(scores))
    if gold.corpus is not None:
        hits = find_hits(gold)
        return score_ranks(first_hit_ranks(scores, hits), names, Answered(all_hit_ranks(scores, hits), find_gains(gold)))
    scored = Scored(gold, scores.astype(np.float64), threshold)
    return {name: _compute(scored, name) for name in names if name != "F1" or threshold is not None}


def score_ranks(ranks: np.ndarray, names: Iterable[str], answered: Answered | None = None) -> dict[str, float]:
    """The metrics of a search by name, from the rank of each query's first hit: (Q,), from 1, infinite for none.

    answered: the ranks of all hits, for the metrics that need them.
    """
    return {name: float(np.mean(_per_query(ranks, answered, name))) for name in names}


def _per_query(ranks: np.ndarray, answered: Answered | None, name: str) -> np.ndarray:
    key, cut = _look_up(name)
    if key in RETRIEVAL_METRICS:
        return RETRIEVAL_METRICS[key](ranks, cut)
    if answered is None:
        raise UserError(f"metric {name} needs the ranks of all right answers, and only those of the best are known")
    return score_answers(answered, key, cut)


def scores_per_item(gold: Gold, scores: np.ndarray, name: str) -> np.ndarray | None:
    """The values whose mean `score_split` reports, one per query; None for a metric of the whole split."""
    check_metrics([name], retrieval=gold.corpus is not None)
    _check_scores(gold, scores := np.asarray(scores))
    key, cut = _look_up(name)
    if gold.corpus is not None:
        hits = find_hits(gold)
        return _per_query(first_hit_ranks(scores, hits), Answered(all_hit_ranks(scores, hits), find_gains(gold)), name)
    per_item = METRICS[key].per_item
    return None if per_item is None else per_item(Scored(gold, scores.astype(np.float64), None), cut)


def _compute(scored: Scored, name: str) -> float:
    key, cut = _look_up(name)
    metric = METRICS[key]
    if metric.per_item is not None:
        return float(np.mean(metric.per_item(scored, cut)))
    assert metric.whole is not None
    return float(metric.whole(scored))


def _check_scores(gold: Gold, scores: np.ndarray) -> None:
    queries = len(distinct_queries(gold.query))
    if gold.corpus is None and scores.shape != (len(gold),):
        raise UserError(f"{scores.size} scores for {len(gold)} pairs: give one score per pair, in the split's order")
    if gold.corpus is not None and scores.shape != (queries, len(gold.corpus)):
        raise UserError(
            f"scores of shape {scores.shape} for {queries} queries and {len(gold.corpus)} candidates: "
            f"give one score per query and candidate, query by query"
        )
    if scores.dtype.kind not in "biuf":
        raise UserError(f"scores are of type {scores.dtype}: every score must be a finite number")
    if not np.isfinite(scores).all():
        place = int(np.flatnonzero(~np.isfinite(scores.ravel()))[0])
        raise UserError(f"score {place} is {scores.ravel()[place]}: every score must be a finite number")
