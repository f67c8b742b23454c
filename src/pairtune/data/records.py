"""The pairs of some tables with the same columns: texts, grades, groups and negatives, record by record."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path

from pairtune.data.formats import HUB, open_hub, open_table
from pairtune.data.roles import SPLIT_NAMES, Roles
from pairtune.data.table import Table
from pairtune.errors import UserError

Files = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Records:
    """N pairs as given. grade, group, split, negatives: of each pair, or None. where: names the file and line of a pair."""

    left: list[str]
    right: list[str]
    where: Callable[[int], str]
    grade: list[float] | None = None
    group: list[str] | None = None
    split: list[str] | None = None
    negatives: list[tuple[str, ...]] | None = None

    def __len__(self) -> int:
        return len(self.left)


def open_tables(files: Files) -> list[Table]:
    """The tables of one or more files; a name may be a pattern such as `pairs-*.csv`."""
    names = [files] if isinstance(files, (str, Path)) else list(files)
    paths = [path for name in names for path in _expand(str(name))]
    twice = next((path for place, path in enumerate(paths) if path in paths[:place]), None)
    if twice is not None:
        raise UserError(f"{twice} is given twice; give each file once")
    return [open_hub(str(path)) if str(path).startswith(HUB) else open_table(path) for path in paths]


def _expand(name: str) -> list[Path]:
    if name.startswith(HUB) or not has_magic(name) or Path(name).exists():
        return [Path(name)]
    found = sorted(map(Path, glob(name, recursive=True)))  # noqa: PTH207 (a pattern may begin at the root)
    if not found:
        raise UserError(f"{name}: no file has such a name")
    return found


def collect_records(tables: Sequence[Table], roles: Roles) -> Records:
    """The pairs of the tables, one after the other."""
    return join_records([_read_one(table, roles) for table in tables])


def join_records(parts: Sequence[Records]) -> Records:
    """All pairs, in order; a column is there where all parts have it."""
    ends, begin = [], 0
    for part in parts:
        begin += len(part)
        ends.append(begin)

    def where(record: int) -> str:
        place = bisect_right(ends, record)
        return parts[place].where(record - (ends[place - 1] if place else 0))

    def joined(name: str) -> list | None:
        columns = [getattr(part, name) for part in parts]
        return None if any(column is None for column in columns) else [value for column in columns for value in column]

    names = ("left", "right", "grade", "group", "split", "negatives")
    return Records(where=where, **{name: joined(name) for name in names})  # type: ignore[arg-type]


def _read_one(table: Table, roles: Roles) -> Records:
    for name in roles.named:
        table.need(name)
    return Records(
        table.texts(roles.left),
        table.texts(roles.right),
        table.where,
        grade=table.numbers(roles.label) if roles.label else None,
        group=[str(value) for value in table.column(roles.group)] if roles.group else None,
        split=_read_splits(table, roles.split),
        negatives=_read_negatives(table, roles.negatives),
    )


def _read_splits(table: Table, column: str | None) -> list[str] | None:
    values = table.splits if column is None else table.column(column)
    if values is None:
        return None
    found = [SPLIT_NAMES.get(str(value).strip().lower(), "") for value in values]
    if "" in found:
        place = found.index("")
        raise UserError(
            f"{table.where(place)}: the split is {str(values[place])!r}; known names: {', '.join(SPLIT_NAMES)}"
            + ("; leave out the pairs that belong to none" if column else "")
        )
    return found


def _read_negatives(table: Table, columns: Sequence[str]) -> list[tuple[str, ...]] | None:
    """The negatives of each pair: of columns of texts, or of one column of lists, all cut to the shortest list."""
    if not columns:
        return None
    first = table.column(columns[0])
    if len(columns) == 1 and first and all(isinstance(value, list) for value in first):
        return _read_lists(table, columns[0], first)
    return list(zip(*(table.texts(name) for name in columns), strict=True))


def _read_lists(table: Table, name: str, lists: Sequence[list]) -> list[tuple[str, ...]]:
    shortest = min(range(len(lists)), key=lambda place: len(lists[place]))
    for place, values in enumerate(lists):
        if not values or not all(isinstance(text, str) and text.strip() for text in values):
            raise UserError(
                f"{table.where(place)}: column {name!r} holds {values!r}, expected a list of texts; leave the pair out"
            )
    return [tuple(values[: len(lists[shortest])]) for values in lists]
