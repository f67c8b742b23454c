"""Shuffling of files of any size, on DuckDB in process or on Spark, and streaming the result into training."""

from pairtune.engines.parquet import stream
from pairtune.engines.shuffle import ShuffleReport, prepare, shuffle

__all__ = ["ShuffleReport", "prepare", "shuffle", "stream"]
