"""Shuffling of files of any size, on DuckDB in process or on Spark, and streaming the result into training."""

from pairtune.engines.job import ShuffleReport
from pairtune.engines.shuffle import prepare, shuffle
from pairtune.engines.stream import stream

__all__ = ["ShuffleReport", "prepare", "shuffle", "stream"]
