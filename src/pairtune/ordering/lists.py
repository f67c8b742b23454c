"""Centroids and lists by faiss, the same for vectors in memory and for those in files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from pairtune.ordering.hashing import hash_text
from pairtune.progress import say

if TYPE_CHECKING:
    import faiss

ROUNDS = 20  # of k-means
PROBES = 64  # of 4√D lists: recall 0.96 on 72,673 real texts (16 of √D lists cost more and found 0.92)
POINTS_PER_LIST = 64  # enough to place a list, and a quarter of the time of faiss's own 256
SAMPLE = 200  # queries that the recall of an approximate search is measured on


def place_centroids(vectors: np.ndarray, count: int, seed: int) -> faiss.Kmeans:
    """Spherical k-means of unit rows, (D, n); `assign` gives the nearest centroid of each."""
    import faiss

    # min_points_per_centroid only guards against few points with a warning: small data is a choice here
    options = {"niter": ROUNDS, "seed": hash_text(f"{seed}|clusters") % 2**31, "spherical": True, "min_points_per_centroid": 1}
    centroids = faiss.Kmeans(vectors.shape[1], count, **options)
    centroids.train(vectors)
    return centroids


def count_lists(rows: int) -> int:
    """How many lists an index of so many vectors has."""
    return round(4 * rows**0.5)


def make_lists(sample: np.ndarray, rows: int, *, kind: str = "Flat", probes: int = PROBES) -> faiss.Index:
    """An index without vectors, for `rows` of them: a search looks into the nearest `probes` of its lists.

    sample: (s, n) of the unit rows, which place the lists. kind: how faiss keeps a vector.
    IVF, not HNSW: a graph depends on the order in which threads reach it, and every run must give the same neighbors.
    """
    import faiss

    index = faiss.index_factory(sample.shape[1], f"IVF{count_lists(rows)},{kind}", faiss.METRIC_INNER_PRODUCT)
    lists = faiss.extract_index_ivf(index)
    lists.cp.min_points_per_centroid, lists.cp.max_points_per_centroid = 1, POINTS_PER_LIST
    lists.nprobe = min(probes, lists.nlist)
    index.train(sample)
    return index


def say_recall(index: faiss.Index, queries: np.ndarray, batches: Iterable[np.ndarray], count: int) -> None:
    """Say which share of the true `count` nearest others the index finds. batches: all its vectors, in their order."""
    import faiss

    true, found = find_true(queries, batches, count + 1), index.search(queries, count + 1)[1]
    recall = sum(len(np.intersect1d(*pair)) for pair in zip(true, found, strict=True)) / true.size
    lists = faiss.extract_index_ivf(index)
    say(
        f"neighbors of {index.ntotal:,} texts: approximate, {lists.nprobe} of {lists.nlist:,} lists searched, which finds "
        f"{recall:.1%} of the {count} nearest (measured on {len(queries)} texts)"
    )


def find_true(queries: np.ndarray, batches: Iterable[np.ndarray], count: int) -> np.ndarray:
    """(q, count) int64: the nearest of all vectors, compared one batch after the other."""
    best = np.full((len(queries), count), -np.inf, np.float32)
    ids = np.full(best.shape, -1)
    first = 0
    for vectors in batches:
        similarity = np.hstack([best, queries @ vectors.T])
        numbers = np.hstack([ids, np.broadcast_to(first + np.arange(len(vectors)), (len(queries), len(vectors)))])
        top = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
        best, ids = (np.take_along_axis(side, top, axis=1) for side in (similarity, numbers))
        first += len(vectors)
    return ids


def choose_queries(rows: int) -> np.ndarray:
    """Evenly spaced rows to measure a search on."""
    return np.arange(rows)[:: max(1, rows // SAMPLE)][:SAMPLE]
