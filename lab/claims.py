"""What the paper concludes and leaves open, read from claims.toml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from lab.keys import read_data


@dataclass(frozen=True)
class Contrast:
    """The first row should score higher than the second, by more than a share of its score."""

    upper: str
    lower: str
    share: float = 0.0

    @property
    def task(self) -> str:
        """What both rows are trained on."""
        return self.upper.partition("/")[0]


@dataclass(frozen=True)
class Claim:
    """text: what is claimed. rule, by_task, between, first, second: how it is judged, as claims.toml says."""

    text: str
    comparisons: tuple[Contrast, ...]
    rule: str
    by_task: bool = False
    between: tuple[float, float] | None = None
    first: str = ""
    second: str = ""

    @property
    def about_shares(self) -> bool:
        """Whether it says how large a share of a score is lost."""
        return any(one.share for one in self.comparisons)


@cache
def conclusions() -> tuple[Claim, ...]:
    """What the paper concludes."""
    return tuple(map(_read_claim, read_data("claims.toml")["conclusions"]))


@cache
def open_points() -> tuple[Claim, ...]:
    """What it leaves open."""
    return tuple(map(_read_claim, read_data("claims.toml")["open"]))


def _read_claim(entry: Mapping[str, Any]) -> Claim:
    told = dict(entry)
    share = told.pop("share", 0.0)
    comparisons = tuple(one for line in told.pop("comparisons") for one in read_comparisons(line, share))
    return Claim(comparisons=comparisons, between=tuple(told.pop("between", ())) or None, **told)


def read_comparisons(line: str, share: float = 0.0) -> Iterator[Contrast]:
    """Those of a line.

    >>> [one.lower for one in read_comparisons("stsb/bsc > mse combo")]
    ['stsb/mse', 'stsb/combo']
    """
    upper, _, others = line.partition(" > ")
    for other in others.split():
        yield Contrast(upper, f"{upper.partition('/')[0]}/{other}", share)
