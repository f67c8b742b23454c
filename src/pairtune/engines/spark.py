"""The same shuffle on Spark: a laptop's cores, or a cluster. The order equals DuckDB's, row for row."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pairtune.engines.parquet import ParquetFiles, open_source, written_aside
from pairtune.engines.query import SPARK, count_columns, order_query
from pairtune.engines.shuffle import Keys, ShuffleJob, keys_of, memory_bytes
from pairtune.errors import UserError
from pairtune.progress import say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    "spark.app.name": "pairtune",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
}
QUIET = """
rootLogger.level = off
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
"""  # what goes wrong reaches the user as an exception

ROW, GROUP, FILE, OFFSET = "pairtune_row", "pairtune_group", "pairtune_file", "pairtune_offset"


@dataclass(frozen=True)
class PartSizes:
    """How the output is cut. part_rows: at most, for each part file; small_part_rows: fewer are not worth a task of their own.

    broadcast_rows: so many numbers of rows and groups are sent to every task sooner than all columns are shuffled.
    """

    part_rows: int = 1_000_000
    small_part_rows: int = 50_000
    broadcast_rows: int = 2_000_000


def shuffle_with_spark(job: ShuffleJob, sizes: PartSizes | None = None) -> dict[str, int]:
    """As on DuckDB, into a folder of part files; addresses with a scheme (hdfs://, s3a://) are Spark's own to read and write."""
    sizes = sizes or PartSizes()
    if "://" in job.source or "://" in job.target:
        with _session(job, None) as spark:
            return _shuffle_elsewhere(spark, job, sizes)
    source = open_source(job.source)
    keys = keys_of(job, source)
    _refuse_vectors(keys)
    with written_aside(job.target, job.source, job.overwrite) as scratch, _session(job, scratch) as spark:
        rows, total = _read_rows(spark, [_literally(file) for file in source.files])
        values = rows if keys.source is source else _read_rows(spark, [_literally(file) for file in keys.source.files])[0]
        counts = _write_files(rows, _group(spark, values, keys, job), total, job, sizes, str(scratch / "result"))
    say(f"{job.target} is a folder of part files, in order by name")
    return counts


def _shuffle_elsewhere(spark: SparkSession, job: ShuffleJob, sizes: PartSizes) -> dict[str, int]:
    """Only Spark sees these files: it tells the columns, and its commit protocol keeps half an output apart from a whole one."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if job.prepared is not None:
        raise UserError(
            f"a prepared file works with local files only, not with {job.source}: give a column, which may hold lists of words"
        )
    rows, total = _read_rows(spark, [job.source])
    keys = keys_of(job, ParquetFiles(job.source, (), (), to_arrow_schema(rows.drop(ROW).schema)))
    _refuse_vectors(keys)
    return _write_files(rows, _group(spark, rows, keys, job), total, job, sizes, job.target)


def _refuse_vectors(keys: Keys) -> None:
    if keys.reading == "vector":
        advice = "make a prepared file with prepare, which needs no Spark, and give it to shuffle"
        raise UserError(f"column {keys.column!r} holds vectors, which engine spark does not search: {advice}")


@contextmanager
def _session(job: ShuffleJob, scratch: Path | None) -> Iterator[SparkSession]:
    """The session that is there already, left open, or one of our own, closed at the end."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as problem:
        raise UserError("engine spark needs PySpark: pip install 'pairtune[spark]'") from problem
    there = SparkSession.getActiveSession()
    spark = there
    try:
        spark = there or _start(job, scratch)
        yield spark
    except (PySparkException, Py4JError) as problem:
        raise _explained(problem) from problem
    finally:
        if spark is not None and there is None:
            spark.stop()


def _start(job: ShuffleJob, scratch: Path | None) -> SparkSession:
    from pyspark.sql import SparkSession

    say("starting Spark")
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # about pandas, which is not used
        spark = SparkSession.builder.config(map=_session_settings(job, scratch)).getOrCreate()
    if str(spark.sparkContext.master).startswith("local"):
        spark.conf.set("spark.sql.shuffle.partitions", 8 * spark.sparkContext.defaultParallelism)
    return spark


def _session_settings(job: ShuffleJob, scratch: Path | None) -> dict[str, Any]:
    settings: dict[str, Any] = dict(SETTINGS) if job.master is None else SETTINGS | {"spark.master": job.master}
    memory = memory_bytes(job.memory)
    if memory is not None:
        settings["spark.driver.memory"] = f"{memory // 2**20}m"
    if scratch is not None:
        (scratch / "log.properties").write_text(QUIET)
        settings["spark.driver.extraJavaOptions"] = f"-Dlog4j.configurationFile={(scratch / 'log.properties').as_uri()}"
        settings["spark.local.dir"] = str(scratch / "spill")
    return settings


def _read_rows(spark: SparkSession, paths: Sequence[str]) -> tuple[DataFrame, int]:
    """All columns and the row's number, and how many rows there are.

    A row's number is its place in its file, which Parquet knows, after all the files before it by name: exact, and
    without a shuffle, however Spark cuts the files into tasks.
    """
    from pyspark.sql import functions as F

    files = spark.read.parquet(*paths)
    where = files.metadataColumn("_metadata")
    rows = files.select("*", where["row_index"].alias(ROW), where["file_path"].alias(FILE))
    found = sorted(((file, count) for file, count in rows.groupBy(FILE).count().collect()), key=lambda file: unquote(file[0]))
    if not found:
        raise UserError(f"{paths[0]} holds no rows: there is nothing to shuffle")
    total = sum(count for _, count in found)
    if len(found) == 1:
        return rows.drop(FILE), total
    offsets = accumulate((count for _, count in found), initial=0)
    names = [(file, offset) for (file, _), offset in zip(found, offsets, strict=False)]
    numbered = rows.join(F.broadcast(spark.createDataFrame(names, [FILE, OFFSET])), FILE)
    return numbered.withColumn(ROW, F.col(ROW) + F.col(OFFSET)).drop(FILE, OFFSET), total


def _group(spark: SparkSession, values: DataFrame, keys: Keys, job: ShuffleJob) -> DataFrame:
    """Narrow: the number of each row and its group, found by the query that DuckDB runs as well."""
    from pyspark.sql import functions as F

    assert keys.reading != "vector"
    value = F.lit(None) if keys.column is None else F.col(f"`{keys.column.replace('`', '``')}`")
    values.select(F.col(ROW).alias("row"), value.alias("value")).createOrReplaceTempView("pairtune_values")
    groups = spark.sql(order_query(SPARK, "SELECT row, value FROM pairtune_values", keys.reading, job))
    spark.catalog.dropTempView("pairtune_values")
    return groups


def _write_files(
    rows: DataFrame, groups: DataFrame, total: int, job: ShuffleJob, sizes: PartSizes, result: str
) -> dict[str, int]:
    """Wide: join the columns, and write part files by ranges of the group, each sorted, and so all together.

    A group's number is uniform in 60 bits, so its highest bits say to which part it goes; Spark's own ORDER BY would
    compute everything twice, to look for the ranges first.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    counts = Observation()
    columns = [F.expr(aggregate).alias(name) for name, aggregate in count_columns(job.group_size).items()]
    groups = groups.observe(counts, *columns).select(F.col("row").alias(ROW), F.col("group_id").alias(GROUP))
    tasks = min(groups.sparkSession.sparkContext.defaultParallelism, -(-total // sizes.small_part_rows))
    parts = max(-(-total // sizes.part_rows), tasks)
    part = F.expr(f"CAST(shiftright(shiftright({GROUP}, 40) * {parts}, 20) AS INT)")
    groups = F.broadcast(groups) if total <= sizes.broadcast_rows else groups
    ordered = groups if job.rows_only else rows.join(groups, ROW)
    ordered = ordered.repartitionById(parts, part).sortWithinPartitions(GROUP, ROW)
    ordered = ordered.select(F.col(ROW).alias("row")) if job.rows_only else ordered.drop(ROW, GROUP)
    ordered.write.mode("overwrite" if job.overwrite else "error").parquet(result)
    return dict(counts.get)


def _literally(file: str) -> str:
    """A path in which Spark sees no pattern."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", file)


SPARK_ADVICE = {
    "JAVA_GATEWAY_EXITED": "Spark needs Java 17 or newer (JAVA_HOME says where it is), and a master such as local[2] or yarn",
    "No space left": "the disk is full: make room or choose another output",
    "System memory": "give more memory, 1GB or more",
}


def _explained(problem: Exception) -> UserError:
    lines = [line.strip(": ") for line in str(problem).strip().splitlines()]
    message = next((line for line in lines if "Exception: " in line), lines[0])  # of an error from Java, not the call to it
    advice = [f"; {advice}" for sign, advice in SPARK_ADVICE.items() if sign in str(problem)]
    return UserError(f"Spark: {message}{''.join(advice)}; nothing was written")
