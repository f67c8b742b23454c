"""Rows with settings laid over them: one change, what a search chooses between, and every combination of some settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from lab.keys import read_data
from lab.rows import read_row
from pairtune import Recipe

Change = Mapping[str, str]  # as evidence.toml has it: row, to, and where they are needed with and from


@dataclass(frozen=True)
class ChangedRow:
    """base: a row. changes: what is laid over it, as `--set` takes it."""

    base: str
    changes: tuple[str, ...] = ()

    @classmethod
    def of(cls, task: str, line: str, *changes: str) -> ChangedRow:
        """From a line of a data file.

        >>> ChangedRow.of("cqa-a", "combo order.by=original")
        ChangedRow(base='cqa-a/combo', changes=('order.by=original',))
        """
        base, *told = line.split()
        return cls(f"{task}/{base}", (*changes, *told))

    @property
    def name(self) -> str:
        """The base with its changes.

        >>> ChangedRow("cqa-a/combo", ("order.by=original", "loss.mix=0.5")).name
        'cqa-a/combo+by-original+mix-0.5'
        """
        return "+".join([self.base, *map(_short, self.changes)])

    @property
    def settings(self) -> tuple[str, frozenset[str]]:
        """The same for rows that differ in the order of their changes alone."""
        return self.base, frozenset(self.changes)

    def recipe(self, overrides: Sequence[str] = ()) -> Recipe:
        """The recipe that is trained; one without changes is the row of the table itself."""
        return read_row(self.base, [*self.changes, f'name="{self.name}"', *overrides])


@dataclass(frozen=True)
class Factorial:
    """Every combination of some settings' levels. common: what all combinations have; a level is a line of changes, or empty."""

    base: str
    common: tuple[str, ...]
    factors: tuple[tuple[str, ...], ...]

    @property
    def combinations(self) -> list[tuple[int, ...]]:
        """The places of each combination's levels, one for each factor."""
        return list(product(*(range(len(levels)) for levels in self.factors)))

    def changed_row(self, combination: Sequence[int]) -> ChangedRow:
        """The row with these levels."""
        levels = (change for levels, place in zip(self.factors, combination, strict=True) for change in levels[place].split())
        return ChangedRow(self.base, (*self.common, *levels))

    @property
    def changed_rows(self) -> tuple[ChangedRow, ...]:
        """All of them, in the order of `combinations`."""
        return tuple(map(self.changed_row, self.combinations))


def _short(change: str) -> str:
    r"""What a name has of a change.

    >>> _short("loss.mix=0.5"), _short('stages=[{train={splits="titles",epochs=1}},{}]'), _short(r"ignore=['https?://\S+']")
    ('mix-0.5', 'stages-train-splits-titles-epochs-1', 'ignore-https')
    """
    key, _, value = change.partition("=")
    if value.startswith("['"):  # expressions: their words
        value = "-".join(re.findall("[a-z]{3,}", value))
    return re.sub(r"[^\w.+-]+", "-", f"{key.rpartition('.')[2]}={value}").strip("-")


def sections() -> list[dict[str, Any]]:
    """The sections of the page of evidence."""
    return read_data("evidence.toml")["sections"]


def both_sides(change: Change) -> tuple[ChangedRow, ChangedRow]:
    """What a change is made from and to."""
    task, _, row = change["row"].partition("/")
    common = f"{row} {change.get('with', '')}"
    return ChangedRow.of(task, f"{common} {change.get('from', '')}"), ChangedRow.of(task, f"{common} {change['to']}")


def recipes_of_evidence(overrides: Sequence[str] = ()) -> list[Recipe]:
    """Every row, and both sides of every change."""
    rows = [name for section in sections() for name in (*section.get("rows", ()), *section.get("spread", ()))]
    changed = [one for section in sections() for change in section.get("changes", ()) for one in both_sides(change)]
    return [*(read_row(name, overrides) for name in rows), *(one.recipe(overrides) for one in changed)]
