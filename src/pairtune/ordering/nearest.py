"""The nearest texts of every text: with faiss on the CPU, with torch on CUDA, less likely false negatives.

The centroids and lists of faiss are the same for vectors in memory and for those in files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pairtune.errors import UserError
from pairtune.ordering.nearest_gpu import Found, Search, search_device
from pairtune.ordering.order import Side, hash_text, to_array
from pairtune.progress import say
from pairtune.runs.recipe import OrderSettings

if TYPE_CHECKING:
    import faiss
    from torch import Tensor

EXACT_BELOW = 200_000  # vectors; beyond, exact search on a CPU takes minutes and grows with the square
QUERIES_AT_ONCE = 4096  # queries at a time: faiss multiplies in blocks of that size, and with fewer takes twice as long
ROUNDS = 20  # of k-means
PROBES = 64  # of 4√D lists: recall 0.96 on 72,673 real texts (16 of √D lists cost more and found 0.92)
POINTS_PER_LIST = 64  # enough to place a list, and a quarter of the time of faiss's own 256
RECALL_QUERIES = 200  # queries that the recall of an approximate search is measured on


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """(D, n) float32 rows of length 1; a row of zeros stays as it is, at cosine 0 from all."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / np.where(length == 0, 1, length), dtype=np.float32)


def require_vectors(side: Side) -> np.ndarray | Tensor:
    """The side's (D, n) vectors, which an order that compares meanings cannot do without."""
    if side.vectors is None:
        raise UserError("this order compares vectors and was given texts alone: encode them first (Side.encoded)")
    return side.vectors


def find_nearest(
    vectors: np.ndarray | Tensor, count: int, device: str = "cpu", exact_below: int = EXACT_BELOW, *, similar: bool = True
) -> Search:
    """For each vector the `count` nearest others by cosine, or all D - 1 where there are fewer.

    vectors: (D, n), as an array or, for a device, a tensor anywhere. ids: -1 where an approximate search found no more.
    similar: whether similarities are wanted, which a device need not copy otherwise.
    """
    count = min(count, len(vectors) - 1)
    if count < 1:
        return Search(lambda rows: (np.empty((len(rows), 0), np.int32), np.empty((len(rows), 0), np.float32)), QUERIES_AT_ONCE)
    if device != "cpu":
        return search_device(vectors, count, device, similar=similar)
    search = search_exactly if len(vectors) < exact_below else search_approximately
    return search(unit_rows(to_array(vectors)), count)


def nearest_by(distance: str, side: Side, count: int) -> Search | None:
    """The search of a distance other than the cosine, which needs none of its own: None."""
    if distance == "cosine":
        return None
    vectors = require_vectors(side)
    return search_euclidean(vectors, min(count, len(vectors) - 1), side.device) if len(vectors) > 1 else None


def search_euclidean(vectors: np.ndarray | Tensor, count: int, device: str) -> Search:
    """Each vector against all by Euclidean distance, at their own lengths; what is near has a similarity near 0 from below."""
    import torch

    everything = torch.as_tensor(vectors).to(device, torch.float32)

    def find(rows: np.ndarray) -> Found:
        places = torch.from_numpy(rows).to(device)
        apart = torch.cdist(everything[places], everything)  # (b, D)
        apart.scatter_(1, places[:, None], torch.inf)  # itself
        near, ids = apart.topk(count, largest=False)
        return ids.to(torch.int32).cpu().numpy(), -near.cpu().numpy()

    return Search(find, QUERIES_AT_ONCE // 4)


def search_exactly(vectors: np.ndarray, count: int, *, block: int = QUERIES_AT_ONCE) -> Search:
    """Each vector against all, with faiss; block: vectors at a time."""
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return _search_index(index, vectors, count, block)


def search_approximately(vectors: np.ndarray, count: int, *, probes: int = PROBES) -> Search:
    """Each vector against those of the nearest lists, with faiss; the recall is measured on a sample and said."""
    index = make_lists(vectors, len(vectors), probes=probes)
    index.add(vectors)
    blocks = (vectors[start : start + QUERIES_AT_ONCE] for start in range(0, len(vectors), QUERIES_AT_ONCE))
    say_recall(index, vectors[choose_queries(len(vectors))], blocks, count)
    return _search_index(index, vectors, count, QUERIES_AT_ONCE)


def _search_index(index: object, vectors: np.ndarray, count: int, block: int) -> Search:
    def find(rows: np.ndarray) -> Found:
        similarities, ids = index.search(vectors[rows], count + 1)  # type: ignore[attr-defined]
        return drop_self(rows, ids.astype(np.int32), similarities)

    return Search(find, block)


def drop_self(rows: np.ndarray, ids: np.ndarray, similarities: np.ndarray) -> Found:
    """The neighbors without the vector itself, which need not come first: another may have the very same vector.

    Where it was not found at all, for so many have, the last neighbor goes instead: (b, count + 1) becomes (b, count).
    """
    itself = ids == rows[:, None]
    itself[~itself.any(axis=1), -1] = True
    shape = (len(ids), ids.shape[1] - 1)
    return ids[~itself].reshape(shape), similarities[~itself].reshape(shape)


@dataclass(frozen=True, eq=False)
class Candidates:
    """texts: (b, c) int32, of each of b pairs its own text first, then the others from the nearest on (-1: none found).

    start: (b,) int64, how many of them each pair leaves out, counted from the first: all three controls leave out the
    most similar ones, so one number holds them.
    """

    texts: np.ndarray
    start: np.ndarray


def find_candidates(
    side: Side, settings: OrderSettings, count: int, search: Search | None = None
) -> Callable[[np.ndarray], Candidates]:
    """A function from (b,) pairs to the `count` nearest texts of each, and where each begins to read them.

    drop_identical leaves out the text itself; skip_nearest = p > 0 the text itself and the p nearest others;
    margin all those j with cos(i, j) > cos(left_i, right_i) + margin, the text itself (cosine 1) among them.
    search: another search of the side's vectors than that of `find_nearest`.
    """
    search = search or find_nearest(require_vectors(side), count, side.device, similar=settings.margin is not None)
    skipped = settings.skip_nearest + 1 if settings.skip_nearest else int(settings.drop_identical)

    def find(pairs: np.ndarray) -> Candidates:
        own = side.text[pairs]
        distinct, place = np.unique(own, return_inverse=True)
        if len(distinct) == len(own):  # no text twice: they are searched as they come, and nothing is put in order
            ids, similarities = search(own)
        else:
            ids, similarities = (found[place] for found in search(distinct))
        texts = np.empty((len(own), 1 + ids.shape[1]), np.int32)
        texts[:, 0], texts[:, 1:] = own, ids
        start = np.full(len(pairs), skipped)
        if settings.margin is not None:
            limits = require_own(side)[pairs] + settings.margin
            too_close = (similarities > limits[:, None]).sum(axis=1) + (limits < 1)
            start = np.maximum(start, too_close)
        return Candidates(texts, start)

    return find


def require_own(side: Side) -> np.ndarray:
    """(N,) the cosine of each pair's own two texts, which a margin is measured from."""
    if side.own is None or len(side.own) != len(side):
        raise UserError("order.margin compares with the similarity of each pair's own two texts: encode both sides")
    return side.own


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
    return np.arange(rows)[:: max(1, rows // RECALL_QUERIES)][:RECALL_QUERIES]
