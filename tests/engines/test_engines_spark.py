"""Spark and DuckDB, both for real, on the same files: the same order, row for row."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairtune.engines import prepare, shuffle
from pairtune.engines.shuffle import ShuffleJob
from pairtune.errors import UserError
from pairtune.ordering.shingles import find_words
from shuffles import awkward_texts, ids, neighbor_lists, old_characters, shuffle_slowly

PAIRTUNE = "import sys; from pairtune.engines import shuffle; shuffle(sys.argv[1], sys.argv[2], column='q', engine='spark', "


def test_without_pyspark_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.errors", None)
    pq.write_table(pa.table({"q": ["x"]}), tmp_path / "in.parquet")
    with pytest.raises(UserError, match=r"engine spark needs PySpark: pip install 'pairtune\[spark\]'"):
        shuffle(str(tmp_path / "in.parquet"), str(tmp_path / "out"), column="q", engine="spark")
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


@pytest.fixture(scope="module")
def spark():
    """One session for all tests here: starting the JVM takes longer than any of them."""
    sql = pytest.importorskip("pyspark.sql", reason="needs PySpark: pip install 'pairtune[spark]'")
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4", "spark.log.level": "OFF"}
    session = sql.SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def both(spark, tmp_path):
    """Shuffle with both engines; the ids in the order of each, and the two reports without their times."""

    def run(source, **settings):
        outcomes = []
        for engine in ("duckdb", "spark"):
            target = tmp_path / f"out.{engine}"
            report = shuffle(str(source), str(target), engine=engine, overwrite=True, **settings)
            column = "row" if settings.get("rows_only") else "id"
            outcomes.append((ids(target, column), (report.rows, report.groups, report.alone, report.full)))
        assert outcomes[0] == outcomes[1]
        return outcomes[1][0]

    return run


@pytest.mark.spark
@pytest.mark.parametrize("t", [1, 2])
def test_words_give_the_same_order_on_both(both, awkward, t):
    order = shuffle_slowly([find_words(text) for text in awkward_texts()], 8, t, 7)[0]
    assert both(awkward, column="question", shingle=t, seed=7) == order


@pytest.mark.spark
def test_clusters_neighbors_and_chance_give_the_same_order_on_both(both, tmp_path):
    lists = neighbor_lists()
    near = pa.array(lists, pa.list_(pa.int64()))
    numbers, names = [len(i or []) for i in lists], [None if i is None else f"a  b {len(i)}" for i in lists]
    words = [i and [None if j is None else f"w{j}" for j in i] for i in lists]
    table = pa.table({"id": range(len(lists)), "near": near, "number": numbers, "name": names, "words": words})
    pq.write_table(table, tmp_path / "in [1].parquet")  # a name that is a pattern to Spark
    source = tmp_path / "in [1].parquet"
    assert both(source, by="neighbors", column="near", shingle=2, group_size=3)
    assert both(source, by="clusters", column="number") == shuffle_slowly([[str(i)] for i in numbers], 8, 1, 0)[0]
    assert both(source, by="clusters", column="name", group_size=2)
    assert both(source, by="words", column="words", shingle=2)
    assert both(source, by="random", seed=5)


@pytest.mark.spark
def test_a_prepared_file_and_row_numbers_alone_give_the_same_on_both(both, awkward, tmp_path):
    prepare(str(awkward), str(tmp_path / "words.parquet"), column="question")
    order = shuffle_slowly([find_words(text) for text in awkward_texts()], 8, 1, 2)[0]
    assert both(awkward, prepared=str(tmp_path / "words.parquet"), seed=2) == order
    assert both(awkward, column="question", rows_only=True, seed=2) == order


@pytest.mark.spark
def test_every_character_of_old_is_read_alike_by_both(both, tmp_path):
    few = [character for character in old_characters() if ord(character) < 0x3000 or ord(character) % 16 == 0]  # little Chinese
    texts = [f"x{character}y {character}" for character in few]
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), tmp_path / "in.parquet")
    assert len(both(tmp_path / "in.parquet", column="text", shingle=2, group_size=2)) > 15_000


@pytest.mark.spark
def test_many_parts_follow_each_other_in_order(both, tmp_path):
    from pairtune.engines.spark import PartSizes, shuffle_with_spark

    pq.write_table(pa.table({"id": range(5000), "q": [f"word{i % 700}" for i in range(5000)]}), tmp_path / "in.parquet")
    order = both(tmp_path / "in.parquet", column="q", group_size=4)
    assert sorted(order) == list(range(5000))
    job = ShuffleJob(str(tmp_path / "in.parquet"), str(tmp_path / "out.spark"), column="q", group_size=4, overwrite=True)
    shuffle_with_spark(job, PartSizes(part_rows=700, broadcast_rows=0))  # as with more rows than are worth sending to every task
    assert ids(tmp_path / "out.spark", "id") == order
    assert len(list((tmp_path / "out.spark").glob("part-*.parquet"))) == 8


@pytest.mark.spark
def test_addresses_with_a_scheme_are_read_and_written_by_spark(spark, awkward, tmp_path):
    source, target = f"{awkward.as_uri()}/*.parquet", (tmp_path / "out").as_uri()
    shuffle(source, target, column="question", engine="spark", seed=3)
    texts = awkward_texts()[:100] + awkward_texts()[101:]  # the pattern leaves out the folder between the two
    order = shuffle_slowly([find_words(text) for text in texts], 8, 1, 3)[0]
    assert pq.read_table(tmp_path / "out")["question"].to_pylist() == [texts[row] for row in order]
    for settings, message in {
        ("question", None): "already exists",
        ("qestion", None): "has no column 'qestion'; there are: id, question, label",
        (None, "words.parquet"): "a prepared file works with local files",
    }.items():
        with pytest.raises(UserError, match=message):
            shuffle(source, target, column=settings[0], prepared=settings[1], engine="spark")


@pytest.mark.spark
def test_what_spark_does_not_do_is_refused(spark, tmp_path):
    pq.write_table(pa.table({"q": ["x"], "vector": [[0.5, 1.0]]}), tmp_path / "in.parquet")
    with pytest.raises(UserError, match="which engine spark does not search: make a prepared file with prepare"):
        shuffle(str(tmp_path / "in.parquet"), str(tmp_path / "out"), by="clusters", column="vector", engine="spark")
    pq.write_table(pa.table({"q": ["x"], "time": pa.array([1], pa.time32("s"))}), tmp_path / "in.parquet")
    with pytest.raises(UserError, match="Spark: "):
        shuffle(str(tmp_path / "in.parquet"), str(tmp_path / "out"), column="q", engine="spark")
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]
    assert spark.range(3).count() == 3  # a session that was there stays open


@pytest.mark.spark
def test_a_session_of_our_own_is_quiet_and_closed(tmp_path):
    pytest.importorskip("pyspark", reason="needs PySpark: pip install 'pairtune[spark]'")
    pq.write_table(pa.table({"q": ["one", "two", None], "id": [0, 1, 2]}), tmp_path / "in.parquet")
    check = "; from pyspark.sql import SparkSession; assert SparkSession.getActiveSession() is None"
    ran = run_python(f"{PAIRTUNE} master='local[2]', memory='1GB'){check}", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "3 rows in 3 groups" in ran.stderr
    assert not any(word in ran.stderr for word in ("WARN ", "ERROR", "FutureWarning", "Exception", "[Stage"))
    assert sorted(ids(tmp_path / "out")) == [0, 1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", "out"]


@pytest.mark.spark
def test_without_java_it_says_what_to_install(tmp_path):
    pytest.importorskip("pyspark", reason="needs PySpark: pip install 'pairtune[spark]'")
    pq.write_table(pa.table({"q": ["x"]}), tmp_path / "in.parquet")
    ran = run_python(f"{PAIRTUNE})", tmp_path, JAVA_HOME="/nowhere")
    assert ran.returncode == 1
    assert "Spark needs Java 17 or newer (JAVA_HOME says where it is)" in ran.stderr.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def run_python(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, str(folder / "in.parquet"), str(folder / "out")]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
