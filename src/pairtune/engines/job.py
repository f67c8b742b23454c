"""What to shuffle and how, and what came out of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from pairtune.errors import UserError

By = Literal["words", "clusters", "neighbours", "random"]

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


@dataclass(frozen=True)
class Job:
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
