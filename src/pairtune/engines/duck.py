"""The shuffle in process, on DuckDB: out of core under a memory limit, narrow first and wide last."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from pairtune.engines.parquet import ParquetFiles, open_source, written_aside
from pairtune.engines.query import DUCKDB, count_columns, order_query, words_query
from pairtune.engines.shuffle import STAMP, Keys, Reading, ShuffleJob, keys_of, make_stamp, memory_bytes
from pairtune.engines.vector_words import write_vector_words
from pairtune.errors import UserError
from pairtune.progress import say, track

ROW_GROUP_BYTES = 2**25  # wide rows in DuckDB's usual row groups of 122,880 would take a GB to write, and again to read
ROW_GROUP_ROWS = 122_880
THREAD_BYTES = 2**27  # what a thread needs to work with
RESERVED = ("file_index", "file_row_number")  # DuckDB's own names for where a row stands in its files


def shuffle_with_duckdb(job: ShuffleJob) -> dict[str, int]:
    """Find each row's group from row numbers and words alone, then join the other columns: the counts for a report."""
    source = open_source(job.source)
    _refuse_names(source)
    keys = keys_of(job, source)
    read = [*(source.files if job.rows_only else ()), *([job.prepared] if job.prepared else ())]
    with written_aside(job.target, job.source, job.overwrite, read=read) as scratch:
        if keys.reading == "vector":
            assert job.column is not None
            write_vector_words(source, job.column, scratch / "words", by=job.by, seed=job.seed, memory=job.memory)
            keys = Keys(open_source(str(scratch / "words")), "words", "words")
        with _connected(scratch, job.memory) as database:
            _form_groups(database, keys, job)
            if job.rows_only:
                query = "SELECT row FROM groups ORDER BY group_id, row"
                _write_file(database, query, scratch / "result", f"writing {source.rows:,} row numbers")
            else:
                _write_rows(database, source, scratch / "result")
            columns = count_columns(job.group_size)
            counts = database.execute(f"SELECT {', '.join(columns.values())} FROM groups").fetchall()
    return dict(zip(columns, counts[0], strict=True))


def write_words(source: ParquetFiles, column: str, reading: Reading, scratch: Path, memory: str | None) -> None:
    """Tokenize once: a Parquet file `result` with the words of every row, in the rows' order."""
    query = f"SELECT words FROM ({words_query(DUCKDB, _rows(source, column), reading)})"
    with _connected(scratch, memory) as database:
        _write_file(database, query, scratch / "result", f"reading the words of {source.rows:,} rows", make_stamp(source))


@contextmanager
def _connected(scratch: Path, memory: str | None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in process that spills into the scratch folder where it would hold more than the memory limit."""
    settings: dict[str, Any] = {"temp_directory": str(scratch / "spill")}
    room = memory_bytes(memory)
    if room is not None:
        settings["memory_limit"] = f"{room}B"
        settings["threads"] = max(1, min(os.cpu_count() or 1, room // THREAD_BYTES))
    with duckdb.connect(config=settings) as database:
        database.execute("SET enable_progress_bar = true")  # counted, to be asked for
        database.execute("SET enable_progress_bar_print = false")
        yield database


def _form_groups(database: duckdb.DuckDBPyConnection, keys: Keys, job: ShuffleJob) -> None:
    assert keys.reading != "vector"
    query = order_query(DUCKDB, _rows(keys.source, keys.column), keys.reading, job)
    _run(database, f"CREATE TEMP TABLE groups AS {query}", f"grouping {keys.source.rows:,} rows")


def _write_rows(database: duckdb.DuckDBPyConnection, source: ParquetFiles, result: Path) -> None:
    """All columns of the source, in the order of the groups, with the types and the metadata that they had."""
    joined = f"{_files(source)} AS source JOIN groups ON {_row_number(source)} = groups.row"
    metadata = pq.read_metadata(source.files[0]).metadata or {}
    kept = {key: value for key, value in metadata.items() if key != STAMP}
    query = f"SELECT source.* FROM {joined} ORDER BY group_id, groups.row"
    group = max(2048, min(ROW_GROUP_ROWS, ROW_GROUP_BYTES * source.rows // max(1, source.size)))
    _write_file(database, query, result, f"writing {source.rows:,} rows", kept, group)
    written = pq.read_schema(result)
    for field in source.schema:
        if written.field(field.name).type != field.type:
            say(f"column {field.name} was {field.type} and is written as {written.field(field.name).type}")


def _write_file(
    database: duckdb.DuckDBPyConnection,
    query: str,
    result: Path,
    what: str,
    metadata: dict[bytes, bytes] | None = None,
    row_group: int = ROW_GROUP_ROWS,
) -> None:
    """Key-value metadata travels along: the Arrow schema in it restores types that Parquet itself does not know."""
    options = f"FORMAT parquet, ROW_GROUP_SIZE {row_group}"
    if metadata:
        values = {_quoted(key.decode()): "".join(f"\\x{byte:02X}" for byte in value) for key, value in metadata.items()}
        entries = ", ".join(f"{key}: '{value}'::BLOB" for key, value in values.items())
        options += f", KV_METADATA {{{entries}}}"
    _run(database, f"COPY ({query}) TO {_quoted(result)} ({options})", what)


def _rows(source: ParquetFiles, column: str | None) -> str:
    """The relation (row, value): each row's number, and what stands in the column."""
    value = "NULL" if column is None else '"' + column.replace('"', '""') + '"'
    return f"SELECT {_row_number(source)} AS row, {value} AS value FROM {_files(source)}"


def _files(source: ParquetFiles) -> str:
    return f"read_parquet([{', '.join(map(_quoted, source.files))}], hive_partitioning = false)"


def _row_number(source: ParquetFiles) -> str:
    if len(source.files) == 1:
        return "file_row_number"
    return f"(list_extract({source.offsets}::BIGINT[], CAST(file_index AS BIGINT) + 1) + file_row_number)"


def _refuse_names(source: ParquetFiles) -> None:
    folded = [name.casefold() for name in source.schema.names]
    twice = [name for name in source.schema.names if folded.count(name.casefold()) > 1]
    if twice:
        raise UserError(f"{source.name}: columns {', '.join(twice)} differ only in case, which DuckDB ignores: rename one")
    taken = [name for name in source.schema.names if name.casefold() in RESERVED]
    if taken:
        raise UserError(f"{source.name}: a column is called {taken[0]}, a name that DuckDB keeps for itself: rename it")


def _run(database: duckdb.DuckDBPyConnection, query: str, what: str) -> None:
    """Execute in a thread, so that this one can show how far it is, and Ctrl-C stops the query at once."""
    problems: list[BaseException] = []

    def execute() -> None:
        try:
            database.execute(query)
        except BaseException as problem:  # handed over to the thread that waits
            problems.append(problem)

    worker = threading.Thread(target=execute)
    worker.start()
    try:
        for _ in track(_percents(database, worker), f"{what}, percent", total=100):
            pass
    except BaseException:
        database.interrupt()
        raise
    finally:
        worker.join()
    if problems:
        raise _explained(problems[0], what) from problems[0]


def _percents(database: duckdb.DuckDBPyConnection, worker: threading.Thread) -> Iterator[int]:
    """Each percent that the query has reached, from 0, however fast it is, to 99."""
    percent = 0
    yield percent
    while worker.is_alive():
        worker.join(0.1)
        while percent < min(99, database.query_progress()):
            percent += 1
            yield percent


FULL_DISK = ("No space left", "File too large", "max_temp_directory_size")


def _explained(problem: BaseException, what: str) -> BaseException:
    if not isinstance(problem, duckdb.Error):
        return problem
    message = str(problem).strip().splitlines()[0]
    if any(sign in message for sign in FULL_DISK):
        return UserError(f"{what}: the disk is full; make room or choose another output: nothing was written")
    if isinstance(problem, duckdb.OutOfMemoryException):
        return UserError(f"{what}: the memory limit is too low ({message}); give more")
    return UserError(f"{what}: {message}")


def _quoted(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"
