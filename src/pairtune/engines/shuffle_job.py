"""What to shuffle and how, which columns it may be shuffled by, and what came out of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from pairtune.engines.parquet import Source, open_source
from pairtune.errors import UserError

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
    by: By
    column: str | None
    group_size: int
    shingle: int
    seed: int
    memory: str | None
    master: str | None
    prepared: str | None
    rows_only: bool
    overwrite: bool

    def __post_init__(self) -> None:
        if self.by not in get_args(By):
            raise UserError(f"by is {self.by!r}; known: {', '.join(get_args(By))}")
        for name, value in (("group_size", self.group_size), ("shingle", self.shingle)):
            if value < 1:
                raise UserError(f"{name} is {value}; give 1 or more")
        if self.by != "random" and (self.column is None) == (self.prepared is None):
            raise UserError(f"by {self.by} needs either a column or a prepared file, and not both")
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

    source: Source
    column: str | None
    reading: Reading | Literal["vector"] | None


def keys_of(job: ShuffleJob, source: Source) -> Keys:
    """The column that the job names, or the one of its prepared file, which must have been made from this source."""
    if job.by == "random":
        return Keys(source, None, None)
    if job.prepared is not None:
        prepared = open_source(job.prepared)
        _check_stamp(prepared, source)
        return Keys(prepared, "words", "words")
    assert job.column is not None
    return Keys(source, job.column, reading_of_column(source, job.by, job.column))


def reading_of_column(source: Source, by: By, column: str) -> Reading | Literal["vector"]:
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


def make_stamp(source: Source) -> dict[bytes, bytes]:
    """What a prepared file says about where it came from."""
    return {STAMP: json.dumps({"source": source.name, "files": source.stamp}).encode()}


def _check_stamp(prepared: Source, source: Source) -> None:
    import pyarrow.parquet as pq

    stamp = (pq.read_schema(prepared.files[0]).metadata or {}).get(STAMP)
    if stamp is None or prepared.schema.names != ["words"]:
        raise UserError(f"{prepared.name} is not a prepared file: make one with prepare")
    made = json.loads(stamp)
    if made["files"] != source.stamp:
        raise UserError(
            f"{prepared.name} was prepared from {made['source']}; {source.name} is not that, or has changed: prepare again"
        )
