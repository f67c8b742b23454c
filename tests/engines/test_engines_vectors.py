"""Shuffling by a column of vectors: k-means on a sample, neighbors in an index, both in batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairtune.engines import prepare, shuffle
from pairtune.engines.parquet import open_source
from pairtune.engines.vector_words import VectorBatches, write_vector_words
from pairtune.errors import UserError


def blobs(count, size, width=16):
    """`count` far-apart directions, `size` vectors near each, mixed: (count * size, width) and which is which."""
    chance = np.random.default_rng(0)
    which = chance.permutation(np.repeat(np.arange(count), size))
    centres = np.linalg.qr(chance.normal(size=(width, width)))[0][:count]
    lengths = chance.uniform(0.1, 9, (count * size, 1))  # cosine looks at directions only
    return ((centres[which] + chance.normal(0, 0.02, (count * size, width))) * lengths).astype(np.float32), which


def write(path, matrix, **columns):
    column = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])
    pq.write_table(pa.table({"id": range(len(matrix)), "vector": column, **columns}), path, row_group_size=100)
    return str(path)


def test_clusters_of_vectors_stand_together(tmp_path):
    matrix, which = blobs(8, 50)
    source, words = write(tmp_path / "in.parquet", matrix), tmp_path / "words"
    sizes = VectorBatches(batch=64, per_centroid=20)  # 160 of 400 vectors place the centroids
    write_vector_words(open_source(source), "vector", words, by="clusters", seed=0, memory=None, clusters=8, sizes=sizes)
    found = np.array([int(word) for (word,) in pq.read_table(words)["words"].to_pylist()])
    assert len({(a, b) for a, b in zip(found, which, strict=True)}) == 8  # each blob is one cluster
    report = shuffle(source, str(tmp_path / "out"), prepared=str(words), group_size=5)
    assert (report.groups, report.full) == (80, 80)
    groups = which[pq.read_table(tmp_path / "out")["id"].to_numpy()].reshape(80, 5)
    assert (groups == groups[:, :1]).all()


def test_a_shuffle_by_vectors_prepares_them_itself(tmp_path):
    matrix, _ = blobs(4, 30)
    source = write(tmp_path / "in.parquet", matrix)
    for by in ("clusters", "neighbors"):
        prepare(source, str(tmp_path / f"{by} words"), by=by, column="vector", seed=3)
        shuffle(source, str(tmp_path / by), by=by, column="vector", seed=3)
        shuffle(source, str(tmp_path / f"{by} again"), prepared=str(tmp_path / f"{by} words"), seed=3)
        assert pq.read_table(tmp_path / by).equals(pq.read_table(tmp_path / f"{by} again"))
    assert len(list(tmp_path.iterdir())) == 7


@pytest.mark.parametrize(("exact_rows", "memory", "recall"), [(50_000, None, 1.0), (0, None, 0.9), (0, "30KB", 0.9)])
def test_neighbors_of_vectors_are_the_nearest_by_cosine(tmp_path, capsys, exact_rows, memory, recall):
    matrix = np.random.default_rng(1).normal(size=(1000, 16)).astype(np.float32)
    source, words = write(tmp_path / "in.parquet", matrix), tmp_path / "words"
    chosen = {"by": "neighbors", "seed": 0, "memory": memory, "neighbors": 5}
    write_vector_words(open_source(source), "vector", words, **chosen, sizes=VectorBatches(batch=128, exact_rows=exact_rows))
    found = np.array(pq.read_table(words)["words"].to_pylist()).astype(int)
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    nearest = np.argsort(-(unit @ unit.T), axis=1)[:, :5]
    share = np.array([len(set(a) & set(b)) / 5 for a, b in zip(found, nearest, strict=True)])
    assert share.mean() >= recall
    said = f"which finds {share[::5].mean():.1%} of the 4 nearest (measured on 200 texts)"
    assert (said in capsys.readouterr().err) == (exact_rows == 0)
    assert (found[:, 0] == np.arange(1000)).mean() > 0.99  # the row itself is its own nearest


def refusal(tmp_path, column, **settings):
    pq.write_table(pa.table({"vector": column}), tmp_path / "bad.parquet")
    with pytest.raises(UserError) as refused:
        shuffle(str(tmp_path / "bad.parquet"), str(tmp_path / "out"), column="vector", **{"by": "clusters", **settings})
    assert [path.name for path in tmp_path.iterdir()] == ["bad.parquet"]
    return str(refused.value)


def test_vectors_that_are_none_are_refused_by_row(tmp_path):
    floats = pa.list_(pa.float32())
    nan = refusal(tmp_path, pa.array([[1.0, 2.0], [1.0, float("nan")]], floats))
    assert "the vector of row 1 holds NaN or infinity; drop that row or encode it again" in nan
    short = refusal(tmp_path, pa.array([[1.0, 2.0], [1.0]], floats))
    assert "the vector of row 1 is of width 1; all must have the same width, here 2" in short
    missing = refusal(tmp_path, pa.array([[1.0, 2.0], [3.0, 4.0], None], floats))
    assert "the vector of row 2 is missing" in missing


def test_an_index_that_does_not_fit_is_refused(tmp_path):
    source, chosen = write(tmp_path / "in.parquet", np.eye(64, dtype=np.float32)), {"by": "neighbors", "seed": 0, "memory": "1KB"}
    expected = "neighbors need 0.0 GB for 64 vectors of width 64; give more memory, shuffle by clusters, or split"
    with pytest.raises(UserError, match=expected):
        write_vector_words(open_source(source), "vector", tmp_path / "words", **chosen, sizes=VectorBatches(exact_rows=10))
