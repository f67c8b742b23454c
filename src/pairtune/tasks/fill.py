"""More to rank: each query with right texts of other queries too, where its own are few or nearly all good."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pairtune.errors import UserError
from pairtune.pairs import PairSet, Task
from pairtune.progress import track
from pairtune.tasks.info import distinct, share

BLOCK = 256  # queries whose similarities are held at once


class Query(NamedTuple):
    """A query's name and left text, how many pairs it has, and the right texts that none of its fillings may be."""

    name: str
    left: str
    size: int
    own: set[str]


def fill_dev(task: Task, count: int) -> Task:
    """The task with at least `count` right texts for every query of dev."""
    dev = fill_queries(task.dev, count, task, "dev_candidates")
    note = f"dev: filled with right texts of other queries, to {count} for each query, {len(task.dev)} to {len(dev)} pairs"
    return replace(task, dev=dev, notes=(*task.notes, note))


def fill_queries(pairs: PairSet, count: int, task: Task, setting: str) -> PairSet:
    """The pairs, and for each query with fewer than `count` of them right texts of the others, as negatives.

    Those come first that share most words with the query's left text (cosine of TF-IDF), as in a pool that a search engine
    made; between equals a hash decides. They get label 0 and the lowest grade. Never one that stands with the same left text.
    """
    if task.kind != "ranking":
        raise UserError(f"{setting} = {count}: task {task.name} is a {task.kind}; only the queries of a ranking can be filled")
    short = [query for query in _queries(pairs) if query.size < count]
    pool = np.array(sorted(distinct(pairs.right), key=share), dtype=object)
    query, left, right = [], [], []
    for one, order in zip(short, _most_alike(short, pool), strict=True):
        found = [text for text in pool[order[: count - one.size + len(one.own)]] if text not in one.own][: count - one.size]
        if len(found) < count - one.size:
            raise UserError(
                f"{setting} = {count}: query {one.name!r} has {one.size} right texts, and the other queries have {len(found)}: "
                f"set it to {one.size + len(found)} or less"
            )
        query += [one.name] * len(found)
        left += [one.left] * len(found)
        right += found
    added = PairSet.of(left, right, np.zeros(len(left)), query=query, grade=np.full(len(left), _lowest(pairs)))
    return PairSet.of(
        pairs.left + added.left,
        pairs.right + added.right,
        np.concatenate([pairs.label, added.label]),
        query=np.concatenate([pairs.query, added.query]),
        grade=np.concatenate([pairs.grade, added.grade]),
    )


def _queries(pairs: PairSet) -> list[Query]:
    rows, beside = defaultdict(list), defaultdict(set)
    for row, (name, left, right) in enumerate(zip(pairs.query, pairs.left, pairs.right, strict=True)):
        rows[name].append(row)
        beside[left].add(right)
    return [
        Query(str(name), pairs.left[own[0]], len(own), set().union(*(beside[pairs.left[row]] for row in own)))
        for name, own in rows.items()
    ]


def _most_alike(queries: Sequence[Query], pool: np.ndarray) -> Iterator[np.ndarray]:
    """For each query, the places of the pool by falling similarity of words; equals keep the order of the pool."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", dtype=np.float32)  # a text without words still has its signs
    texts = words.fit_transform(pool).T
    for start in track(range(0, len(queries), BLOCK), "finding right texts to fill the queries with"):
        block = words.transform([query.left for query in queries[start : start + BLOCK]]) @ texts  # (b, P), sparse
        yield from np.argsort(-block.toarray(), axis=1, kind="stable")


def _lowest(pairs: PairSet) -> float:
    """The grade of label 0; where no pair has it, the straight line through labels and grades says what it would be."""
    low, high = int(pairs.label.argmin()), int(pairs.label.argmax())
    if pairs.label[low] == pairs.label[high]:
        return float(pairs.grade[low]) if pairs.label[low] == 0 else 0.0
    slope = (pairs.grade[high] - pairs.grade[low]) / (pairs.label[high] - pairs.label[low])
    return float(pairs.grade[low] - slope * pairs.label[low])
