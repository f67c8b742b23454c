"""What pairs lack: negatives and triplets for positive pairs (section Datasets, PFCC-S), and more texts to rank for a query."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pairtune.data.pairs import PairSet, Task
from pairtune.data.splits import distinct, hash_to_unit
from pairtune.errors import UserError
from pairtune.ordering.nearest import unit_rows
from pairtune.progress import track

SKIPPED = 100  # the nearest may be positives that nobody labelled
ANCHORS_AT_ONCE = 256  # anchors whose similarities are held at once


def logarithmic_negatives(
    pairs: PairSet,
    left_vectors: np.ndarray,
    corpus: Sequence[str],
    corpus_vectors: np.ndarray,
    rng: np.random.Generator,
    *,
    positive_above: float = 0.5,
    skip: int = SKIPPED,
) -> PairSet:
    """Positive pairs and as many negative ones, which are many near the anchor and few far from it.

    For each left text with a positive, the anchor, the corpus without the anchor's positives (and the anchor itself) is
    sorted by cosine, and the negatives stand at positions skip + 2^k, k = 0, 1, 2, …, counted from 1: 101, 102, 104, 108 ….
    Positives are then repeated until the classes balance, each as often as any other up to one, and all is shuffled.
    Only the positive pairs of `pairs` are used. left_vectors: (N, n), corpus_vectors: (C, n), of any length.
    """
    positive = np.flatnonzero(pairs.positives(positive_above))
    if not len(positive):
        raise UserError("no pair is positive, so there is no anchor to draw negatives for")
    rows, columns = _places_of_texts(pairs.left, positive), _places_of_texts(corpus, range(len(corpus)))
    anchors = list(rows)
    drawn: list[tuple[str, str]] = []
    orders = _nearest_first(left_vectors[[rows[anchor][0] for anchor in anchors]], corpus_vectors)
    for anchor, order in zip(anchors, orders, strict=True):
        own = {anchor, *(pairs.right[row] for row in rows[anchor])}
        others = order[~np.isin(order, [column for text in own for column in columns.get(text, ())])]
        if len(others) <= skip:
            raise _too_few(len(corpus), skip)
        drawn += [(anchor, corpus[others[position - 1]]) for position in logarithmic_positions(len(others), skip)]
    return _balance(pairs, positive, drawn, rng)


def logarithmic_positions(count: int, skip: int = SKIPPED) -> list[int]:
    """The positions skip + 2^k that a list of this length has, counted from 1.

    >>> logarithmic_positions(120)
    [101, 102, 104, 108, 116]
    """
    return [skip + 2**power for power in range(max(count - skip, 0).bit_length())]


Triplets = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


def given_triplets(pairs: PairSet, positive_above: float, rng: np.random.Generator) -> Triplets:
    """Anchors, positives and negatives: each positive pair with each of its own negatives."""
    found = [
        (pairs.left[row], pairs.right[row], negative)
        for row in np.flatnonzero(pairs.positives(positive_above)).tolist()
        for negative in (pairs.negatives or ())[row]
    ]
    anchors, positives, negatives = zip(*found, strict=True)
    return anchors, positives, negatives


def triplets(pairs: PairSet, positive_above: float, rng: np.random.Generator) -> Triplets:
    """Anchors, positives and negatives: pairs that share the left text, put together so that each is used at least once.

    A left text with p different positive and n different negative right texts gives max(p, n) triplets: both are shuffled,
    and the shorter list is repeated. One with positives or negatives only gives none.
    """
    sides: dict[str, tuple[dict[str, None], dict[str, None]]] = defaultdict(lambda: ({}, {}))
    for left, right, positive in zip(pairs.left, pairs.right, pairs.positives(positive_above), strict=True):
        sides[left][0 if positive else 1][right] = None
    found: list[tuple[str, str, str]] = []
    for anchor, (good, bad) in sides.items():
        if good and bad:
            count = max(len(good), len(bad))
            columns = (np.resize(rng.permutation(np.array(list(side), object)), count) for side in (good, bad))
            found += [(anchor, positive, negative) for positive, negative in zip(*columns, strict=True)]
    if not found:
        raise UserError(
            "no left text has both a positive and a negative pair, so there are no triplets: "
            'set train.negatives = "logarithmic", or use another loss'
        )
    anchors, positives, negatives = zip(*found, strict=True)
    return anchors, positives, negatives


def _places_of_texts(texts: Sequence[str], places: Iterable[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for place in places:
        found[texts[place]].append(int(place))
    return found


def _nearest_first(left: np.ndarray, corpus: np.ndarray) -> Iterator[np.ndarray]:
    """For each left vector, the columns of the corpus by falling cosine; ties keep the order of the corpus."""
    corpus = unit_rows(corpus)
    for start in range(0, len(left), ANCHORS_AT_ONCE):
        similarity = unit_rows(left[start : start + ANCHORS_AT_ONCE]) @ corpus.T  # (b, C)
        yield from np.argsort(-similarity, axis=1, kind="stable")


def _too_few(count: int, skip: int) -> UserError:
    return UserError(
        f"{count} different right texts are too few to draw negatives from: the nearest {skip} of each left text are skipped; "
        'use train.negatives = "given" with a loss that finds its negatives in the batch (loss.kind = "bsc")'
    )


def _balance(pairs: PairSet, positive: np.ndarray, drawn: list[tuple[str, str]], rng: np.random.Generator) -> PairSet:
    """The positives, repeated to the number of negatives, and the negatives, shuffled."""
    repeated = np.resize(rng.permutation(positive), max(len(positive), len(drawn)))
    left = [pairs.left[row] for row in repeated] + [anchor for anchor, _ in drawn]
    right = [pairs.right[row] for row in repeated] + [negative for _, negative in drawn]
    label = np.concatenate([pairs.label[repeated], np.zeros(len(drawn), np.float32)])
    both = PairSet.of(left, right, label, corpus=pairs.corpus)
    return both.take(rng.permutation(len(both)))


COMPARED_CELLS = 2**24  # similarities that are held at once


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
    pool = np.array(sorted(distinct(pairs.right), key=hash_to_unit), dtype=object)
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
    block = max(1, COMPARED_CELLS // len(pool))
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
