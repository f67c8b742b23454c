"""More to rank: each query with right texts of other queries too, where its own are few or nearly all good."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pairtune.data.info import distinct, share
from pairtune.data.pairs import PairSet, Task
from pairtune.errors import UserError
from pairtune.progress import track

CELLS = 2**24  # similarities that are held at once


class Query(NamedTuple):
    """A query's name, its left text, the row of its last pair, how many right texts it lacks, and those that are not for it."""

    name: Any
    left: str
    last: int
    lacks: int
    not_for_it: set[str]


def fill_dev(task: Task, count: int) -> Task:
    """The task with at least `count` right texts for every query of dev."""
    check_filling(task, task.dev, count, "dev_candidates")
    dev = fill_queries(task.dev, count)
    note = f"dev: filled with right texts of other queries, to {count} for each query, {len(task.dev)} to {len(dev)} pairs"
    return replace(task, dev=dev, notes=(*task.notes, note))


def check_filling(task: Task, pairs: PairSet, count: int, setting: str) -> None:
    """Refuse what `fill_queries` cannot do: a task without queries, or queries that the others have too few texts for."""
    if task.kind != "ranking":
        raise UserError(
            f"{setting} = {count}: task {task.name} is a {task.kind}, and only the queries of a ranking can be filled: leave it "
            f"out (a table of your own is a ranking when its labels are 0 and 1 and most left texts have both)"
        )
    pool = set(pairs.right)
    for query in _short_queries(pairs, count):
        found = len(pool) - sum(text in pool for text in query.not_for_it)
        if found < query.lacks:
            raise UserError(
                f"{setting} = {count}: query {query.name!r} has {count - query.lacks} of them, and the other queries have only "
                f"{found} that it has not: set it to {count - query.lacks + found} or less"
            )


def fill_queries(pairs: PairSet, count: int) -> PairSet:
    """The pairs, and after those of each query that has fewer than `count` right texts of other queries, as negatives.

    Those that share most words with the query's left text (cosine of TF-IDF), as in a pool that a search engine made; between
    equals a hash decides. They get label 0 and the lowest grade. None is a left text of the query, or stands with one elsewhere.
    """
    short = _short_queries(pairs, count)
    if not short:
        return pairs
    pool = np.array(sorted(distinct(pairs.right), key=share), dtype=object)
    texts = [
        [text for text in nearest if text not in query.not_for_it][: query.lacks]
        for query, nearest in zip(short, _most_alike(short, pool), strict=True)
    ]
    added = [(query, text) for query, own in zip(short, texts, strict=True) for text in own]
    both = PairSet.of(
        pairs.left + tuple(query.left for query, _ in added),
        pairs.right + tuple(text for _, text in added),
        np.concatenate([pairs.label, np.zeros(len(added))]),
        query=[*pairs.query, *(query.name for query, _ in added)],
        grade=np.concatenate([pairs.grade, np.full(len(added), _lowest(pairs))]),
    )
    places = np.concatenate([np.arange(len(pairs)), [query.last + 0.5 for query, _ in added]])
    return both.take(np.argsort(places, kind="stable"))


def _short_queries(pairs: PairSet, count: int) -> list[Query]:
    rows: dict[Any, list[int]] = defaultdict(list)
    beside: dict[str, set[str]] = defaultdict(set)
    for row, (name, left, right) in enumerate(zip(pairs.query, pairs.left, pairs.right, strict=True)):
        rows[name].append(row)
        beside[left] |= {left, right}
    return [
        Query(name, pairs.left[own[0]], own[-1], count - len(own), set().union(*(beside[pairs.left[row]] for row in own)))
        for name, own in rows.items()
        if len(own) < count
    ]


def _most_alike(queries: Sequence[Query], pool: np.ndarray) -> Iterator[np.ndarray]:
    """For each query, as many texts of the pool as it can need, by falling similarity of words; equals as the pool has them."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", dtype=np.float32)  # a text without words still has its signs
    texts = words.fit_transform(pool).T
    block = max(1, CELLS // len(pool))
    for start in track(range(0, len(queries), block), "finding right texts to fill the queries with"):
        some = queries[start : start + block]
        similarity = (words.transform([query.left for query in some]) @ texts).toarray()  # (b, P)
        for query, row in zip(some, similarity, strict=True):
            yield pool[_highest(row, query.lacks + len(query.not_for_it))]


def _highest(scores: np.ndarray, count: int) -> np.ndarray:
    """The places of the `count` highest scores, the highest first, equals by place.

    >>> _highest(np.array([0.0, 2.0, 1.0, 0.0, 2.0]), 4).tolist()
    [1, 4, 2, 0]
    """
    count = min(count, len(scores))
    cut = np.partition(scores, len(scores) - count)[len(scores) - count]
    above = np.flatnonzero(scores > cut)
    ordered = above[np.argsort(-scores[above], kind="stable")]
    return np.concatenate([ordered, np.flatnonzero(scores == cut)[: count - len(above)]])


def _lowest(pairs: PairSet) -> float:
    """The lowest grade of label 0; where no pair has it, the straight line through labels and grades says what it would be."""
    if (pairs.label == 0).any():
        return float(pairs.grade[pairs.label == 0].min())
    low, high = int(pairs.label.argmin()), int(pairs.label.argmax())
    if pairs.label[low] == pairs.label[high]:
        return 0.0
    slope = (pairs.grade[high] - pairs.grade[low]) / (pairs.label[high] - pairs.label[low])
    return float(pairs.grade[low] - slope * pairs.label[low])
