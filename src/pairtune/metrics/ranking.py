"""Metrics of a ranked list: per query first, then the mean over *all* queries, those with no positive counting 0.

Among equal scores the worse answer comes first: a tie is no ranking, and the order of the file (often by time or by
another system's rank) must not leak into the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ir_measures
import numpy as np
from ir_measures import AP, RR, P, R, nDCG

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
    qrels = [ir_measures.Qrel(str(q), d, int(g)) for q, d, g in zip(query, documents, gain, strict=True)]
    ranks = ranks_within(query, scores)  # trec_eval reads scores as float32: near ones would be ties
    run = [ir_measures.ScoredDoc(str(q), d, float(s)) for q, d, s in zip(query, documents, ranks, strict=True)]
    found = {value.query_id: value.value for value in ir_measures.iter_calc([measure], qrels, run)}
    return np.array([found.get(str(q), 0.0) for q in distinct_queries(query)])


def ranks_within(query: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """(N,) whole numbers that are ordered, and equal, as the scores of each query are.

    >>> ranks_within(np.array(["a", "a", "b", "a"]), np.array([0.5, -1.0, 7.0, 0.5])).tolist()
    [1, 0, 0, 1]
    """
    _, number = np.unique(query, return_inverse=True)
    order = np.lexsort((scores, number))
    begins = np.diff(number[order], prepend=-1) != 0
    rises = np.cumsum(~begins & (np.diff(scores[order], prepend=np.nan) != 0))
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
