"""A table as read from a file: columns by name, and the line of each record for the messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from pairtune.data.labels import parse_label
from pairtune.errors import UserError


@dataclass(frozen=True)
class Table:
    """The columns of a file.

    names: in file order. read: the values of a column. lines: where each record begins; unit: line, or row where there are none.
    notes: what a user should know of how it was read. splits: for each record the name of its split, where the source has any.
    """

    path: Path
    names: tuple[str, ...]
    read: Callable[[str], Sequence[Any]]
    lines: Sequence[int]
    unit: str = "line"
    notes: tuple[str, ...] = ()
    splits: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, record: int) -> str:
        """The file and the line of a record."""
        return f"{self.path} {self.unit} {self.lines[record]}"

    def column(self, name: str) -> list[Any]:
        """The values of a column; it must be there, once."""
        self.need(name)
        return list(self.read(name))

    def need(self, name: str) -> None:
        """Refuse a column that is not there, or more than once."""
        if self.names.count(name) > 1:
            raise UserError(f"{self.path}: {self.names.count(name)} columns are called {name!r}; rename all but one")
        if name not in self.names:
            shown = ", ".join(self.names)
            raise UserError(f"{self.path}: no column {name!r}; the columns are: {shown}{_hint(self.names, name)}")

    def texts(self, name: str) -> list[str]:
        """A column of texts; none may be empty."""
        values = self.column(name)
        if not _all_texts(values):
            for record, value in enumerate(values):
                _check_text(value, name, self.where(record))
        return values

    def numbers(self, name: str) -> list[float]:
        """A column of labels as numbers."""
        values = self.column(name)
        try:
            quick = np.array([float(value) for value in values])
        except (TypeError, ValueError, OverflowError):
            quick = np.array([np.nan])
        if np.isfinite(quick).all():
            return quick.tolist()
        return [parse_label(value, self.where(record)) for record, value in enumerate(values)]


def _all_texts(values: Sequence[Any]) -> bool:
    """Whether there is nothing to complain about; quick, for millions."""
    try:
        if not all(map(str.strip, values)):
            return False
        "".join(values).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def _check_text(value: Any, name: str, where: str) -> None:
    if not isinstance(value, str):
        cure = "; write one record for each pair of texts" if isinstance(value, (list, dict)) else ""
        raise UserError(f"{where}: column {name!r} holds {_shorten(repr(value))}, expected a text{cure}")
    if not value.strip():
        raise UserError(f"{where}: column {name!r} is empty; fill it in or leave the pair out")
    try:
        value.encode()
    except UnicodeEncodeError as problem:
        raise UserError(f"{where}: column {name!r} holds half of a surrogate pair, no text") from problem


def _shorten(shown: str, most: int = 60) -> str:
    """The beginning of what may be long.

    >>> _shorten("abcdef", 3)
    'abc…'
    """
    return shown if len(shown) <= most else f"{shown[:most]}…"


def _hint(names: Sequence[str], name: str) -> str:
    """What may have happened to a column that is not found."""
    plain = {column.strip().lower(): column for column in names}
    if name.strip().lower() in plain:
        return f" ({plain[name.strip().lower()]!r} is written differently)"
    near = get_close_matches(name, names, 1)
    return f"; did you mean {near[0]}?" if near else " (the first line must name the columns)"
