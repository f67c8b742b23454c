"""Shuffling files on DuckDB, against the paper's pseudo-code written out as loops."""

from __future__ import annotations

import threading

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairtune.engines import duck, prepare, shuffle
from pairtune.ordering.order import Side, rank_rows
from pairtune.ordering.shingles import find_words, order_by_shingles, order_by_words
from pairtune.runs.recipe import OrderSettings
from shuffles import awkward_texts, ids, neighbor_lists, old_characters, shuffle_slowly


@pytest.mark.parametrize(("k", "t", "seed"), [(8, 1, 7), (3, 2, 0), (5, 3, -1)])
def test_words_give_the_order_of_the_papers_pseudo_code(awkward, tmp_path, k, t, seed):
    report = shuffle(str(awkward), str(tmp_path / "out"), column="question", group_size=k, shingle=t, seed=seed)
    order, groups = shuffle_slowly([find_words(text) for text in awkward_texts()], k, t, seed)
    assert ids(tmp_path / "out") == order
    sizes = np.unique(groups, return_counts=True)[1]
    assert (report.rows, report.groups) == (len(order), len(sizes))
    assert (report.alone, report.full) == ((sizes == 1).sum(), (sizes == k).sum())


def test_the_file_is_shuffled_as_pairs_in_memory_are(awkward, tmp_path):
    shuffle(str(awkward / "*"), str(tmp_path / "out"), column="question", seed=11)  # a glob: only the two files on top
    texts = awkward_texts()[:100] + awkward_texts()[101:]
    order = order_by_words(Side.of(texts), OrderSettings(by="words", group=8), 11)
    assert pq.read_table(tmp_path / "out")["question"].to_pylist() == [texts[row] for row in order.rows]


def test_clusters_are_words_whole(tmp_path):
    chance = np.random.default_rng(0)
    numbers, names = chance.integers(-3, 20, 200), [None, *(f"a b|{i}" for i in chance.integers(0, 20, 199))]
    pq.write_table(pa.table({"id": range(200), "number": numbers, "name": names}), tmp_path / "in.parquet")
    for column, words in {"number": [[str(i)] for i in numbers], "name": [[n] if n else [] for n in names]}.items():
        shuffle(str(tmp_path / "in.parquet"), str(tmp_path / column), by="clusters", column=column, group_size=4, seed=1)
        assert ids(tmp_path / column) == shuffle_slowly(words, 4, 1, 1)[0]


@pytest.mark.parametrize("t", [1, 2])
def test_neighbors_are_words_without_the_missing_ones(tmp_path, t):
    lists = neighbor_lists()
    pq.write_table(pa.table({"id": range(152), "near": pa.array(lists, pa.list_(pa.int32()))}), tmp_path / "in.parquet")
    shuffle(str(tmp_path / "in.parquet"), str(tmp_path / "out"), by="neighbors", column="near", shingle=t, group_size=3)
    words = [[str(i) for i in near or [] if i is not None and i >= 0] for near in lists]
    assert ids(tmp_path / "out") == shuffle_slowly(words, 3, t, 0)[0]


def test_random_order_is_by_the_hash_of_the_row(awkward, tmp_path, capsys):
    shuffle(str(awkward), str(tmp_path / "out"), by="random", seed=4)
    assert ids(tmp_path / "out") == np.argsort(rank_rows(len(awkward_texts()), 4), kind="stable").tolist()
    assert "rows in random order" in capsys.readouterr().err


def test_a_prepared_file_gives_the_same_order_and_its_row_numbers(awkward, tmp_path):
    source, words = str(awkward), str(tmp_path / "words.parquet")
    prepare(source, words, column="question")
    assert pq.read_table(words)["words"].to_pylist() == [find_words(text) or None for text in awkward_texts()]
    for seed in (1, 2):
        order = shuffle_slowly([find_words(text) for text in awkward_texts()], 8, 2, seed)[0]
        shuffle(source, str(tmp_path / "out"), prepared=words, shingle=2, seed=seed, overwrite=True)
        shuffle(source, str(tmp_path / "rows"), prepared=words, shingle=2, seed=seed, rows_only=True, overwrite=True)
        assert ids(tmp_path / "out") == ids(tmp_path / "rows", "row") == order


def test_every_character_of_old_is_read_as_in_memory(tmp_path):
    texts = [f"x{character}y {character}" for character in old_characters()]
    pq.write_table(pa.table({"text": texts}), tmp_path / "in.parquet")
    prepare(str(tmp_path / "in.parquet"), str(tmp_path / "words"), column="text")
    assert [words or [] for words in ids(tmp_path / "words", "words")] == [find_words(text) for text in texts]


def test_order_holds_across_row_groups_when_memory_is_short(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(duck, "track", lambda items, what, total: told.append((what, total)) or items)
    rows = 400_000  # 260 MB
    columns = "r AS id, hash(r) % 20000 AS cluster, repeat(md5(r::VARCHAR), 20) AS payload"
    table = duckdb.sql(f"SELECT {columns} FROM range({rows}) AS t(r)").to_arrow_table()
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=50_000)
    clusters = table["cluster"].to_pylist()
    shuffle(str(tmp_path / "in.parquet"), str(tmp_path / "out"), by="clusters", column="cluster", memory="300MB")
    written = pq.ParquetFile(tmp_path / "out")
    assert written.num_row_groups > 2
    order = order_by_shingles(([str(number)] for number in clusters), rows, 8, 1, 0)
    np.testing.assert_array_equal(written.read(["id"])["id"].to_numpy(), order.rows)
    assert ("grouping 400,000 rows, percent", 100) in told


class Progressing:
    """A query that has come so far each time it is asked, and then ends."""

    def __init__(self, *percents):
        self.percents, self.ended = list(percents), threading.Event()
        self.worker = threading.Thread(target=self.ended.wait)
        self.worker.start()

    def query_progress(self):
        if len(self.percents) > 1:
            return self.percents.pop(0)
        self.ended.set()
        self.worker.join()
        return self.percents[0]


def test_every_percent_of_a_query_is_told_once_and_the_first_one_however_fast_it_is():
    query = Progressing(-1.0, 2.5, 2.5, 60.0, 100.0)
    assert list(duck._percents(query, query.worker)) == list(range(100))
    over = Progressing(100.0)
    over.query_progress()
    assert list(duck._percents(over, over.worker)) == [0]


def test_types_and_metadata_come_out_as_they_went_in(tmp_path, capsys):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6, dtype=np.float32)), 2)
    columns = {
        'it\'s "q"': pa.array(["a", None, "c"], pa.large_string()),
        "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
        "vector": vectors,
        "big": pa.array([1, None, 2**64 - 1], pa.uint64()),
        "when": pa.array([1, 2, 3], pa.timestamp("us", "Europe/Paris")),
        "nested": pa.array([{"a": [1, None]}, None, {"a": []}]),
        "raw": pa.array([b"\xff", b"", None]),
        "millis": pa.array([1, 2, 3], pa.timestamp("ms")),
    }
    table = pa.table(columns).replace_schema_metadata({"huggingface": "it's"})
    pq.write_table(table, tmp_path / "in.parquet")
    shuffle(str(tmp_path / "in.parquet"), str(tmp_path / "out"), column='it\'s "q"', seed=1)
    shuffled = pq.read_table(tmp_path / "out")
    order = [table["millis"].cast(pa.timestamp("us")).to_pylist().index(value) for value in shuffled["millis"].to_pylist()]
    assert order != [0, 1, 2]
    for name in columns.keys() - {"millis"}:
        assert shuffled[name].type == table[name].type
        assert shuffled[name].to_pylist() == table[name].take(order).to_pylist()
    assert shuffled.schema.metadata == table.schema.metadata
    assert "column millis was timestamp[ms] and is written as timestamp[us]" in capsys.readouterr().err


def test_rows_that_share_nothing_are_reported(tmp_path, capsys):
    pq.write_table(pa.table({"q": [f"one{i} two{i % 3}" for i in range(90)]}), tmp_path / "in.parquet")
    shuffle(str(tmp_path / "in.parquet"), str(tmp_path / "out"), column="q", shingle=2)
    said = capsys.readouterr().err
    assert "90 rows in 90 groups, 1.0 rows each on average; 100% of the rows are alone; 0 groups are full" in said
    assert "most rows share nothing with any other row, so the order is nearly random: use shingle = 1" in said
    shuffle(str(tmp_path / "in.parquet"), str(tmp_path / "out"), by="clusters", column="q", overwrite=True)
    assert "if the column holds texts, shuffle by words" in capsys.readouterr().err


def test_fewer_rows_than_a_group_are_shuffled_and_said(tmp_path, capsys):
    pq.write_table(pa.table({"q": ["alike", "alike", "alike"]}), tmp_path / "in.parquet")
    report = shuffle(str(tmp_path / "in.parquet"), str(tmp_path / "out"), column="q")
    assert (report.rows, report.groups, report.full) == (3, 1, 0)
    assert "there are fewer rows than group_size = 8" in capsys.readouterr().err
