"""Fast shuffling of files (Algorithm 2): rows that share a word, a cluster or a neighbor come to stand together."""

from __future__ import annotations

import time
from typing import Literal

from pairtune.engines.parquet import open_source, written_aside
from pairtune.engines.shuffle_job import EXPECTED, By, ShuffleJob, ShuffleReport, memory_bytes, reading_of_column
from pairtune.errors import UserError
from pairtune.progress import say

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
        say(f"most rows share nothing with another, and the order is nearly random: {advice}")


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
    """Do once what does not change from epoch to epoch: write the words of every row, for `shuffle(prepared=...)`.

    target: a Parquet file with one column, `words`, row by row of the source. From a column of vectors, the word is the
    nearest of `clusters` k-means centroids (0: √N of them), or the words are the nearest `neighbors` rows.
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

            sizes = {"clusters": clusters, "neighbors": neighbors}
            write_vector_words(opened, column, scratch / "result", by=by, seed=seed, memory=memory, **sizes)
        else:
            from pairtune.engines.duck import write_words

            write_words(opened, column, reading, scratch, memory)
