"""What is wrong with an input is said, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interrupts import heed_interrupts
from pairtune.engines import prepare, shuffle
from pairtune.engines.parquet import written_aside
from pairtune.errors import UserError


@pytest.fixture
def source(tmp_path):
    table = pa.table({"question": ["one two", "two three", "three one"], "label": [0.1, 0.2, 0.3], "group": [1, 2, 1]})
    pq.write_table(table, tmp_path / "in.parquet")
    return str(tmp_path / "in.parquet")


def refusal(source, target, **settings):
    with pytest.raises(UserError) as refused:
        shuffle(str(source), str(target), **settings)
    return str(refused.value)


@pytest.fixture
def refuse(source, tmp_path):
    """Shuffle what is refused: the message; and there is neither an output nor a trace of one."""

    def run(given=source, **settings):
        before = sorted(tmp_path.rglob("*"))
        message = refusal(given, tmp_path / "out", **settings)
        assert sorted(tmp_path.rglob("*")) == before
        return message

    return run


def test_a_missing_column_is_refused_with_those_there_are(refuse):
    assert "has no column 'qestion'; there are: question, label, group" in refuse(column="qestion")


def test_a_column_of_another_type_is_refused_with_those_that_would_do(refuse):
    message = refuse(column="label")
    assert "column 'label' of" in message
    assert "is of type double; by words reads a text, or a list of words; columns that would do: question" in message
    assert "columns that would do: question, group" in refuse(by="clusters", column="label")
    assert "no column here would do" in refuse(by="neighbors", column="group")


def test_settings_out_of_range_are_refused(refuse):
    assert "group_size is 0; give 1 or more" in refuse(column="question", group_size=0)
    assert "shingle is -1; give 1 or more" in refuse(column="question", shingle=-1)
    assert "by is 'word'; known: words, clusters, neighbors, random" in refuse(column="question", by="word")
    assert "engine is 'polars'; known: duckdb, spark" in refuse(column="question", engine="polars")
    assert "memory is '2IB'; give" in refuse(column="question", memory="2IB")
    assert "memory is 'much'; give a size such as 2GB or 500MB" in refuse(column="question", memory="much")
    assert "by words needs either a column or a prepared file, and not both" in refuse()


def test_no_files_are_refused(refuse, tmp_path):
    assert "no Parquet files at" in refuse(tmp_path / "nothing*.parquet", column="question")
    (tmp_path / "empty").mkdir()
    assert "no Parquet files at" in refuse(tmp_path / "empty", column="question")
    assert "for files elsewhere use engine spark" in refuse("s3://bucket/in", column="question")


def test_a_file_without_rows_is_refused(refuse, source, tmp_path):
    pq.write_table(pq.read_table(source)[:0], tmp_path / "none.parquet")
    assert "none.parquet holds no rows: there is nothing to shuffle" in refuse(tmp_path / "none.parquet", column="question")


def test_a_half_written_file_is_named(refuse, source, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    whole = Path(source).read_bytes()
    (folder / "a.parquet").write_bytes(whole)
    (folder / "b.parquet").write_bytes(whole[: len(whole) // 2])
    message = refuse(folder, column="question")
    assert f"{folder / 'b.parquet'} is not a whole Parquet file" in message
    assert "it may be half-written: write it again, or leave it out" in message


def test_a_file_damaged_inside_is_refused(refuse, source, tmp_path):
    damaged = bytearray(Path(source).read_bytes())
    damaged[4:60] = bytes(56)
    (tmp_path / "damaged.parquet").write_bytes(damaged)
    assert "grouping 3 rows: " in refuse(tmp_path / "damaged.parquet", column="question")


def test_files_with_other_columns_are_refused(refuse, source, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pq.read_table(source), folder / "a.parquet")
    pq.write_table(pa.table({"question": ["x"], "label": [1]}), folder / "b.parquet")
    message = refuse(folder, column="question")
    assert f"{folder / 'b.parquet'} has other columns than {folder / 'a.parquet'}" in message
    assert "only in this one: label: int64" in message


def test_files_that_differ_in_where_nothing_is_missing_go_together(source, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    duckdb.sql(f"COPY (SELECT 'x' AS q) TO '{folder}/a.parquet'")  # DuckDB marks a column without missing values
    duckdb.sql(f"COPY (SELECT unnest(['x', NULL]) AS q) TO '{folder}/b.parquet'")
    shuffle(str(folder), str(tmp_path / "out"), column="q")
    assert sorted(pq.read_table(tmp_path / "out")["q"].to_pylist(), key=str) == [None, "x", "x"]


def test_names_that_duckdb_cannot_tell_apart_are_refused(refuse, tmp_path):
    pq.write_table(pa.table({"q": ["x"], "Q": ["y"]}), tmp_path / "case.parquet")
    assert "columns q, Q differ only in case" in refuse(tmp_path / "case.parquet", column="q")
    pq.write_table(pa.table({"q": ["x"], "file_index": [1]}), tmp_path / "own.parquet")
    assert "a column is called file_index, a name that DuckDB keeps for itself" in refuse(tmp_path / "own.parquet", column="q")


def test_an_output_that_is_there_is_kept_unless_allowed(source, tmp_path):
    (tmp_path / "out").write_text("precious")
    assert "is there already: choose another output, or allow it to be overwritten" in refusal(
        source, tmp_path / "out", column="question"
    )
    assert (tmp_path / "out").read_text() == "precious"
    shuffle(source, str(tmp_path / "out"), column="question", overwrite=True)
    assert pq.read_table(tmp_path / "out").num_rows == 3


def test_a_file_may_be_shuffled_onto_itself(source):
    shuffle(source, source, column="question", overwrite=True)
    assert sorted(pq.read_table(source)["question"].to_pylist()) == ["one two", "three one", "two three"]


def test_a_folder_of_other_things_is_never_overwritten(source, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("precious")
    message = refusal(source, tmp_path / "out", column="question", overwrite=True)
    assert "is a folder with files that no shuffle wrote, and is not overwritten" in message


def test_part_files_that_no_shuffle_wrote_are_not_overwritten(source, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-of-my-thesis.parquet").write_text("precious")
    message = refusal(source, tmp_path / "out", column="question", overwrite=True)
    assert "is a folder with files that no shuffle wrote, and is not overwritten" in message
    (tmp_path / "out" / "_pairtune").touch()  # one that a shuffle wrote
    shuffle(source, str(tmp_path / "out"), column="question", overwrite=True)
    assert pq.read_table(tmp_path / "out").num_rows == 3


def test_what_is_read_is_not_replaced_by_less(source, tmp_path):
    before, words = pq.read_table(source), tmp_path / "words"
    lost = "is the input, and its rows would be lost: choose another output"
    assert lost in refusal(source, source, column="question", rows_only=True, overwrite=True)
    (tmp_path / "link").symlink_to(source)
    assert lost in refusal(source, tmp_path / "link", column="question", rows_only=True, overwrite=True)
    with pytest.raises(UserError, match=lost):
        prepare(source, source, column="question", overwrite=True)
    prepare(source, str(words), column="question")
    assert lost in refusal(source, words, prepared=str(words), overwrite=True)
    assert pq.read_table(source).equals(before)


def test_what_a_killed_shuffle_left_is_swept_by_the_next_one(source, tmp_path):
    program = (
        "import os, signal, sys\nfrom pairtune.engines.parquet import written_aside\n"
        "with written_aside(sys.argv[1], sys.argv[2], False):\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    ran = subprocess.run([sys.executable, "-c", program, str(tmp_path / "out"), source], check=False)
    assert ran.returncode == -signal.SIGKILL and len(list(tmp_path.glob(".out.*"))) == 1
    with written_aside(str(tmp_path / "out"), source, False):  # another one is at work
        shuffle(source, str(tmp_path / "out"), column="question")
        assert len(list(tmp_path.glob(".out.*"))) == 1
        (next(tmp_path.glob(".out.*")) / "result").touch()


def test_an_output_among_the_inputs_is_refused(source, tmp_path):
    message = refusal(tmp_path, tmp_path / "out.parquet", column="question")
    assert "lies in the input folder" in message
    assert "cannot write to" in refusal(source, tmp_path / "not" / "there", column="question")


def test_a_prepared_file_of_something_else_is_refused(refuse, source, tmp_path):
    words = str(tmp_path / "words")
    assert "is not a prepared file: make one with prepare" in refuse(prepared=source)
    prepare(source, words, column="question")
    pq.write_table(pq.read_table(source)[:2], source)
    assert f"was prepared from {source}; {source} is another file, or has changed: prepare it again" in refuse(prepared=words)
    with pytest.raises(UserError, match="by is 'random'; what can be prepared: words, clusters, neighbors"):
        prepare(source, str(tmp_path / "other"), by="random", column="question")
    with pytest.raises(UserError, match="clusters is 0 and neighbors is 0; give at least 0"):
        prepare(source, str(tmp_path / "other"), by="neighbors", column="question", neighbors=0)


def test_too_little_memory_is_said(refuse, tmp_path):
    duckdb.sql(
        f"COPY (SELECT 'w' || r AS q, repeat(md5(r::VARCHAR), 20) AS p FROM range(100000) AS t(r)) TO '{tmp_path}/big.parquet'"
    )
    assert "the memory limit is too low" in refuse(tmp_path / "big.parquet", column="q", memory="10MB")


SHUFFLE = "import sys; from pairtune.engines import shuffle; shuffle(sys.argv[1], sys.argv[2], column='q')"


@pytest.fixture
def big(tmp_path):
    """Rows enough to be at work for a while."""
    folder = tmp_path / "big"
    folder.mkdir()
    duckdb.sql(f"COPY (SELECT 'word' || r % 999 AS q, md5(r::VARCHAR) AS p FROM range(200000) AS t(r)) TO '{folder}/in.parquet'")
    return folder


def test_a_full_disk_is_said_and_leaves_nothing(big):
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20)); {SHUFFLE}"
    ran = subprocess.run([sys.executable, "-c", limited, big / "in.parquet", big / "out"], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "UserError: writing 200,000 rows: the disk is full" in ran.stderr
    assert [path.name for path in big.iterdir()] == ["in.parquet"]


def test_an_interrupt_leaves_nothing(big):
    (big / "many").mkdir()
    for number in range(1000):  # 200 million rows: it will not be done by itself
        os.link(big / "in.parquet", big / "many" / f"{number}.parquet")
    command = [sys.executable, "-c", SHUFFLE, big / "many", big / "out"]
    worker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts)
    while not list(big.glob(".out*/.lock")):  # earlier, nobody has promised to clear up yet
        assert worker.poll() is None, worker.stderr.read()
        time.sleep(0.01)
    os.kill(worker.pid, signal.SIGINT)
    assert "KeyboardInterrupt" in worker.communicate()[1]
    assert sorted(path.name for path in big.iterdir()) == ["in.parquet", "many"]
