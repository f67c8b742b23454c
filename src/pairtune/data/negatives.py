"""Negatives for data that has only positive pairs, and triplets by common anchor (section Datasets, PFCC-S)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from pairtune.data.pairs import PairSet
from pairtune.errors import UserError
from pairtune.ordering.nearest import unit_rows

SKIPPED = 100  # the nearest may be positives that nobody labelled
BLOCK = 256  # anchors whose similarities are held at once


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
    rows, columns = _places(pairs.left, positive), _places(corpus, range(len(corpus)))
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


def _places(texts: Sequence[str], places: Iterable[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for place in places:
        found[texts[place]].append(int(place))
    return found


def _nearest_first(left: np.ndarray, corpus: np.ndarray) -> Iterator[np.ndarray]:
    """For each left vector, the columns of the corpus by falling cosine; ties keep the order of the corpus."""
    corpus = unit_rows(corpus)
    for start in range(0, len(left), BLOCK):
        similarity = unit_rows(left[start : start + BLOCK]) @ corpus.T  # (b, C)
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
