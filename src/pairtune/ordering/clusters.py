"""Algorithm 2 by clusters: pairs whose texts fall into the same k-means cluster come together."""

from __future__ import annotations

import numpy as np

from pairtune.ordering.hashing import hash_text
from pairtune.ordering.knn import normalise, require_vectors
from pairtune.ordering.order import Order, Side, to_array
from pairtune.ordering.shingles import order_by_shingles
from pairtune.recipe import OrderSettings

ROUNDS = 20


def order_by_clusters(side: Side, settings: OrderSettings, seed: int) -> Order:
    """Groups of pairs of one cluster; the cluster's number is the only word of a pair, so the shingle is always 1."""
    vectors = to_array(require_vectors(side))
    count = min(settings.clusters or round(len(vectors) ** 0.5), len(vectors))
    cluster = find_clusters(vectors, count, seed)[side.text]
    identical = side.text if settings.drop_identical else None
    return order_by_shingles(([str(number)] for number in cluster.tolist()), len(side), settings.group, 1, seed, identical)


def find_clusters(vectors: np.ndarray, count: int, seed: int) -> np.ndarray:
    """(D,) int64: the cluster of each of the (D, n) vectors by spherical k-means, at most `count` of them."""
    import faiss

    vectors = normalise(vectors)
    if count <= 1:
        return np.zeros(len(vectors), np.int64)
    # min_points_per_centroid only guards against few points with a warning: small data is a choice here
    kmeans = faiss.Kmeans(
        vectors.shape[1],
        count,
        niter=ROUNDS,
        seed=hash_text(f"{seed}|clusters") % 2**31,
        spherical=True,
        min_points_per_centroid=1,
    )
    kmeans.train(vectors)
    return kmeans.assign(vectors)[1].astype(np.int64)
