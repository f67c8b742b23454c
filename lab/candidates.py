"""What a search chooses between: a row with some settings laid over it, and every combination of some of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from lab.rows import read_row
from pairtune import Recipe


@dataclass(frozen=True)
class Candidate:
    """base: a row. changes: what is laid over it, as `--set` takes it."""

    base: str
    changes: tuple[str, ...] = ()

    @classmethod
    def of(cls, task: str, line: str, *changes: str) -> Candidate:
        """From a line of a data file.

        >>> Candidate.of("cqa-a", "combo order.by=original")
        Candidate(base='cqa-a/combo', changes=('order.by=original',))
        """
        base, *told = line.split()
        return cls(f"{task}/{base}", (*changes, *told))

    @property
    def name(self) -> str:
        """The base with its changes.

        >>> Candidate("cqa-a/combo", ("order.by=original", "loss.mix=0.5")).name
        'cqa-a/combo+by-original+mix-0.5'
        """
        return "+".join([self.base, *map(_short, self.changes)])

    @property
    def settings(self) -> tuple[str, frozenset[str]]:
        """The same for candidates that differ in the order of their changes alone."""
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

    def candidate(self, combination: Sequence[int]) -> Candidate:
        """The candidate with these levels."""
        levels = (change for levels, place in zip(self.factors, combination, strict=True) for change in levels[place].split())
        return Candidate(self.base, (*self.common, *levels))

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All of them, in the order of `combinations`."""
        return tuple(map(self.candidate, self.combinations))


def _short(change: str) -> str:
    r"""What a name has of a change.

    >>> _short("loss.mix=0.5"), _short('stages=[{train={splits="titles",epochs=1}},{}]'), _short(r"ignore=['https?://\S+']")
    ('mix-0.5', 'stages-train-splits-titles-epochs-1', 'ignore-https')
    """
    key, _, value = change.partition("=")
    if value.startswith("['"):  # expressions: their words
        value = "-".join(re.findall("[a-z]{3,}", value))
    return re.sub(r"[^\w.+-]+", "-", f"{key.rpartition('.')[2]}={value}").strip("-")
