"""The same shuffle on Spark: a laptop's cores, or a cluster. The order equals DuckDB's, row for row."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pairtune.engines.columns import Keys, keys_of, kind_of_column
from pairtune.engines.files import Source, open_source, written_aside
from pairtune.engines.job import Job, memory_bytes
from pairtune.engines.query import SPARK, count_columns, order_query
from pairtune.errors import UserError
from pairtune.progress import say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART_BYTES = 128 * 2**20  # of input for each part file of output

SETTINGS = {
    "spark.app.name": "pairtune",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
    "spark.sql.parquet.compression.codec": "snappy",
}


def shuffle_with_spark(job: Job) -> dict[str, int]:
    """As on DuckDB; files with a scheme (hdfs://, s3a://) are read and written where they are, by Spark alone."""
    if "://" in job.source or "://" in job.target:
        with _session(job, None) as spark:
            ...
