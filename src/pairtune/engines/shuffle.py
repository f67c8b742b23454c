"""Fast shuffling of files (Algorithm 2): rows that share a word, a cluster or a neighbor come to stand together.

What to shuffle and how, which columns it may be shuffled by, and what came out of it.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from pairtune.engines.parquet import ParquetFiles, open_source, written_aside
from pairtune.errors import UserError
from pairtune.progress import say

if TYPE_CHECKING:
    import pyarrow as pa

By = Literal["words", "clusters", "neighbors", "random"]

Reading = Literal["text", "words", "value", "ids"]  # how the values of a column are read as words
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


@dataclass(frozen=True)
class ShuffleJob:
    """One shuffle, as `shuffle` was asked for it; every field is checked on the way in."""

    source: str
    target: str
    by: By = "words"
    column: str | None = None
    group_size: int = 8
    shingle: int = 1
    seed: int = 0
    memory: str | None = None
    master: str | None = None
    prepared: str | None = None
    rows_only: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.by not in get_args(By):
            raise UserError(f"by is {self.by!r}; known: {', '.join(get_args(By))}")
        for name, value in (("group_size", self.group_size), ("shingle", self.shingle)):
            if value < 1:
                raise UserError(f"{name} is {value}; give 1 or more")
        if self.by != "random" and (self.column is None) == (self.prepared is None):
            raise UserError(f"by {self.by} needs either a column or a prepared file, and not both")
        if self.by == "random" and (self.column or self.prepared):
            raise UserError("by random reads no column and no prepared file: leave them out, or give another --by")
        memory_bytes(self.memory)


@dataclass(frozen=True)
class ShuffleReport:
    """How the rows fell into groups: `alone` rows share their group with no other, `full` groups have all their k rows."""

    rows: int
    groups: int
    alone: int
    full: int
    seconds: float

    def __str__(self) -> str:
        mean = f"{self.rows:,} rows in {self.groups:,} groups, {self.rows / self.groups:.1f} rows each on average"
        return f"{mean}; {self.alone / self.rows:.0%} of the rows are alone; {self.full:,} groups are full"


def memory_bytes(memory: str | None) -> int | None:
    """A size such as 2GB or 500MB in bytes.

    >>> memory_bytes("2GB")
    2000000000
    """
    if memory is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*((?:[KMGT]I?)?B)", memory.strip().upper())
    if not match or not float(match[1]):
        raise UserError(f"memory is {memory!r}; give a size such as 2GB or 500MB")
    return int(float(match[1]) * UNITS[match[2]])


STAMP = b"pairtune"  # the key of a prepared file's metadata that tells what it was prepared from

EXPECTED: dict[By, str] = {
    "words": "a text, or a list of words",
    "clusters": "the number or name of a cluster, or a vector (a list of floats)",
    "neighbors": "a list of row numbers, or a vector (a list of floats)",
}


@dataclass(frozen=True)
class Keys:
    """Where the words of the rows are: in which column of which files, and how it is read; no column for a random order."""

    source: ParquetFiles
    column: str | None
    reading: Reading | Literal["vector"] | None


def keys_of(job: ShuffleJob, source: ParquetFiles) -> Keys:
    """The column that the job names, or the one of its prepared file, which must have been made from this source."""
    if job.by == "random":
        return Keys(source, None, None)
    if job.prepared is not None:
        prepared = open_source(job.prepared)
        _check_stamp(prepared, source)
        return Keys(prepared, "words", "words")
    assert job.column is not None
    return Keys(source, job.column, reading_of_column(source, job.by, job.column))


def reading_of_column(source: ParquetFiles, by: By, column: str) -> Reading | Literal["vector"]:
    """What the column's values are to be read as, or a refusal that says which columns would do."""
    if column not in source.schema.names:
        raise UserError(f"{source.name} has no column {column!r}; there are: {', '.join(source.schema.names)}")
    reading = _reading(by, source.schema.field(column).type)
    if reading is None:
        fitting = [field.name for field in source.schema if _reading(by, field.type)]
        advice = f"columns that would do: {', '.join(fitting)}" if fitting else "no column here would do"
        given = source.schema.field(column).type
        raise UserError(f"column {column!r} of {source.name} is of type {given}; by {by} reads {EXPECTED[by]}; {advice}")
    return reading


def _reading(by: By, column: pa.DataType) -> Reading | Literal["vector"] | None:
    import pyarrow.types as types

    def is_text(given: pa.DataType) -> bool:
        given = given.value_type if types.is_dictionary(given) else given
        return types.is_string(given) or types.is_large_string(given)

    is_list = types.is_list(column) or types.is_large_list(column) or types.is_fixed_size_list(column)
    if by == "words":
        return "text" if is_text(column) else "words" if is_list and is_text(column.value_type) else None
    if is_list and types.is_floating(column.value_type):
        return "vector"
    if by == "clusters":
        return "value" if is_text(column) or types.is_integer(column) else None
    return "ids" if is_list and types.is_integer(column.value_type) else None


def make_stamp(source: ParquetFiles) -> dict[bytes, bytes]:
    """What a prepared file says about where it came from."""
    return {STAMP: json.dumps({"source": source.name, "files": source.stamp}).encode()}


def _check_stamp(prepared: ParquetFiles, source: ParquetFiles) -> None:
    import pyarrow.parquet as pq

    stamp = (pq.read_schema(prepared.files[0]).metadata or {}).get(STAMP)
    if stamp is None or prepared.schema.names != ["words"]:
        raise UserError(f"{prepared.name} is not a prepared file: make one with prepare")
    made = json.loads(stamp)
    if made["files"] != source.stamp:
        raise UserError(
            f"{prepared.name} was prepared from {made['source']}; {source.name} is another file, or has changed: prepare it again"
        )


MOSTLY_ALONE = 0.5  # from this share of rows on, the order is hardly more than random, and the user should know


def shuffle(
    source: str,
    target: str,
    *,
    by: By = "words",
    column: str | None = None,
    group_size: int = 8,
    shingle: int = 1,
    seed: int = 0,
    engine: Literal["duckdb", "spark"] = "duckdb",
    memory: str | None = None,
    master: str | None = None,
    prepared: str | None = None,
    rows_only: bool = False,
    overwrite: bool = False,
) -> ShuffleReport:
    """Write the rows of Parquet files so that groups of `group_size` that share a shingle stand together, in random order.

    source: a file, a folder or a glob. target: a Parquet file; on Spark a folder of part files, in order by name.
    by, column: words of a text, clusters (numbers, names, or vectors to cluster), neighbors (row numbers, or vectors to
    search), or random, which needs no column. shingle: how many words two rows must share. prepared: the file that
    `prepare` made from this source, instead of a column. rows_only: write the row numbers only, as column `row`.
    memory: what the engine may hold, such as 2GB; the rest spills beside the target. master: where Spark runs.

    The same source, settings and seed give the same order on both engines.
    """
    started = time.monotonic()
    size = 1 if by == "random" else group_size
    job = ShuffleJob(source, target, by, column, size, shingle, seed, memory, master, prepared, rows_only, overwrite)
    if engine == "duckdb":
        from pairtune.engines.duck import shuffle_with_duckdb as run
    elif engine == "spark":
        from pairtune.engines.spark import shuffle_with_spark as run
    else:
        raise UserError(f"engine is {engine!r}; known: duckdb, spark")
    counts = run(job)
    alone = counts["groups"] - counts["paired"]
    report = ShuffleReport(counts["rows"], counts["groups"], alone, counts["full"], time.monotonic() - started)
    _log(job, report)
    return report


def _log(job: ShuffleJob, report: ShuffleReport) -> None:
    say(f"{report.rows:,} rows in random order" if job.by == "random" else str(report))
    if report.rows < job.group_size:
        say(f"there are fewer rows than group_size = {job.group_size}: no group can be full")
    elif job.group_size > 1 and report.alone > MOSTLY_ALONE * report.rows:
        texts = "; if the column holds texts, shuffle by words" if job.by == "clusters" else ""
        advice = "use shingle = 1" if job.shingle > 1 else f"shuffle by something that more rows share{texts}"
        say(f"most rows share nothing with any other row, so the order is nearly random: {advice}")


def prepare(
    source: str,
    target: str,
    *,
    column: str,
    by: By = "words",
    clusters: int = 0,
    neighbors: int = 8,
    seed: int = 0,
    memory: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write the words of every row, for `shuffle(prepared=...)`: they do not change from epoch to epoch.

    target: a Parquet file with one column, `words`, one row for each row of the source. A column of vectors gives as word the
    nearest of `clusters` k-means centroids (0: √N of them), or as words the nearest `neighbors` rows.
    """
    if by not in EXPECTED:
        raise UserError(f"by is {by!r}; what can be prepared: {', '.join(EXPECTED)}")
    if clusters < 0 or neighbors < 1:
        raise UserError(f"clusters is {clusters} and neighbors is {neighbors}; give at least 0 (for √N) and at least 1")
    memory_bytes(memory)
    opened = open_source(source)
    reading = reading_of_column(opened, by, column)
    with written_aside(target, source, overwrite, read=opened.files) as scratch:
        if reading == "vector":
            from pairtune.engines.vector_words import write_vector_words

            result = scratch / "result"
            write_vector_words(opened, column, result, by=by, seed=seed, memory=memory, clusters=clusters, neighbors=neighbors)
        else:
            from pairtune.engines.duck import write_words

            write_words(opened, column, reading, scratch, memory)
