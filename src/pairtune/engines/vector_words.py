"""Words from vectors, in batches: the number of the nearest centroid, or the numbers of the nearest rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pairtune.engines.parquet import ParquetFiles
from pairtune.engines.shuffle import By, make_stamp, memory_bytes
from pairtune.errors import UserError
from pairtune.ordering.nearest import (
    POINTS_PER_LIST,
    choose_queries,
    count_lists,
    make_lists,
    place_centroids,
    say_recall,
    unit_rows,
)
from pairtune.progress import say, track

if TYPE_CHECKING:
    import faiss


@dataclass(frozen=True)
class VectorBatches:
    """How much is done at a time. per_centroid: vectors that place it. exact_rows: so many are all compared, in seconds."""

    batch: int = 8192
    per_centroid: int = POINTS_PER_LIST
    exact_rows: int = 50_000


Find = Callable[[np.ndarray], np.ndarray]


def write_vector_words(
    source: ParquetFiles,
    column: str,
    result: Path,
    *,
    by: By,
    seed: int,
    memory: str | None,
    clusters: int = 0,
    neighbors: int = 8,
    sizes: VectorBatches | None = None,
) -> None:
    """A prepared file from a column of vectors, compared by cosine: what `prepare` writes for clusters and neighbors."""
    rows, sizes = source.rows, sizes or VectorBatches()
    if by == "clusters":
        find = _nearest_centroid(source, column, clusters or max(1, round(rows**0.5)), seed, sizes)
    else:
        find = _nearest_rows(source, column, min(neighbors, rows), seed, memory, sizes)
    schema = pa.schema([("words", pa.list_(pa.string()))], metadata=make_stamp(source))
    batches = track(_batches(source, column, sizes.batch), f"assigning {by}", total=-(-rows // sizes.batch))
    with pq.ParquetWriter(result, schema) as writer:
        for vectors in batches:
            found = find(vectors)  # (batch, words)
            ids = pa.array(found.ravel()).cast(pa.string())
            offsets = np.arange(0, found.size + 1, found.shape[1], dtype=np.int32)
            writer.write_table(pa.table([pa.ListArray.from_arrays(offsets, ids)], schema=schema))


def _nearest_centroid(source: ParquetFiles, column: str, clusters: int, seed: int, sizes: VectorBatches) -> Find:
    """k-means on a sample; the cost grows with the sample, not with the file."""
    sample = _sample(source, column, sizes.per_centroid * clusters, seed, sizes.batch)
    clusters = min(clusters, len(sample))
    say(f"placing {clusters:,} centroids by {len(sample):,} of {source.rows:,} vectors")
    centroids = place_centroids(sample, clusters, seed)
    return lambda vectors: centroids.index.search(vectors, 1)[1]


def _nearest_rows(source: ParquetFiles, column: str, neighbors: int, seed: int, memory: str | None, sizes: VectorBatches) -> Find:
    """Each row and its nearest others: exact for few rows, otherwise in the nearest of many lists, and how near that is."""
    sample = _sample(source, column, sizes.per_centroid * count_lists(source.rows), seed, sizes.batch)
    index = _empty_index(source, sample, memory, sizes.exact_rows)
    queries, first, taken = choose_queries(source.rows), 0, []
    for vectors in track(_batches(source, column, sizes.batch), "indexing", total=-(-source.rows // sizes.batch)):
        index.add(vectors)
        taken.append(vectors[queries[(queries >= first) & (queries < first + len(vectors))] - first])
        first += len(vectors)
    if source.rows > sizes.exact_rows:
        say_recall(index, np.concatenate(taken), _batches(source, column, sizes.batch), neighbors - 1)
    return lambda vectors: index.search(vectors, neighbors)[1]


def _empty_index(source: ParquetFiles, sample: np.ndarray, memory: str | None, exact_rows: int) -> faiss.Index:
    import faiss

    width = sample.shape[1]
    if source.rows <= exact_rows:
        return faiss.IndexFlatIP(width)
    room = memory_bytes(memory) or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    if source.rows * width > room:
        need = f"{source.rows * width / 1e9:.1f} GB for {source.rows:,} vectors of width {width}"
        raise UserError(f"neighbors need {need}; give more memory, shuffle by clusters, or split the file and shuffle the parts")
    kind = "Flat" if source.rows * width * 4 <= room else "SQ8"  # one byte for each number instead of four
    return make_lists(sample, source.rows, kind=kind)


def _sample(source: ParquetFiles, column: str, size: int, seed: int, batch: int) -> np.ndarray:
    """Vectors at random rows, in the rows' order: (size or all, width)."""
    rows = np.arange(source.rows)
    if size < source.rows:
        rows = np.sort(np.random.default_rng(abs(seed)).choice(source.rows, size, replace=False))
    taken, first = [], 0
    for vectors in _batches(source, column, batch):
        start, stop = np.searchsorted(rows, [first, first + len(vectors)])
        taken.append(vectors[rows[start:stop] - first])
        first += len(vectors)
    return np.concatenate(taken)


def _batches(source: ParquetFiles, column: str, size: int) -> Iterator[np.ndarray]:
    """The column as float32 matrices of unit rows, (batch, width); a zero vector stays one."""
    first, width = 0, None
    for file in source.files:
        for batch in pq.ParquetFile(file).iter_batches(size, columns=[column]):
            vectors = _matrix(batch.column(0), f"column {column!r} of {source.name}", first, width)
            first, width = first + len(vectors), vectors.shape[1]
            yield unit_rows(vectors)


def _matrix(values: pa.Array, where: str, first: int, width: int | None) -> np.ndarray:
    lengths = values.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
    width = int(lengths.max()) if width is None else width
    wrong = np.flatnonzero(lengths != width)
    if len(wrong) or width < 1:
        row = int(wrong[0]) if len(wrong) else 0
        given = "missing" if lengths[row] < 0 else f"of width {lengths[row]}"
        raise UserError(
            f"{where}: the vector of row {first + row} is {given}; all must have the same width, here {max(width, 1)}"
        )
    vectors = values.flatten().to_numpy(zero_copy_only=False).astype(np.float32).reshape(-1, width)
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        raise UserError(
            f"{where}: the vector of row {first + int(bad[0])} holds NaN or infinity; drop that row or encode it again"
        )
    return vectors
