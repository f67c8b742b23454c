"""The paper's tables and figures, read from paper.toml, by the row that repeats them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from lab.keys import read_data

PRESETS = {"paper": "", "released": "released/"}  # the folder that its recipes stand in


@dataclass(frozen=True)
class Published:
    """row: its name in the paper. scores: by metric, from 0 to 1."""

    row: str
    scores: Mapping[str, float]


@cache
def tables() -> dict[str, tuple[str, ...]]:
    """The rows of each table, in the paper's order, such as stsb/combo; two sentences of the Discussion are a table too."""
    found: dict[str, tuple[str, ...]] = {}
    for group in read_data("paper.toml")["groups"]:
        rows = tuple(f"{group['task']}/{row}" for row in group["rows"])
        found[group["table"]] = found.get(group["table"], ()) + rows
    return found


@cache
def open_rows() -> tuple[str, ...]:
    """What the paper leaves open, and what its conclusions need besides its tables."""
    return tuple(read_data("paper.toml")["open"]["rows"])


def all_rows() -> list[str]:
    """The rows of all tables."""
    return [name for names in tables().values() for name in names]


@cache
def published() -> dict[str, Published]:
    """The figures of every row of every table."""
    return {
        f"{group['task']}/{name}": Published(row, dict(zip(group["metrics"], scores, strict=True)))
        for group in read_data("paper.toml")["groups"]
        for name, (row, *scores) in group["rows"].items()
    }


def published_score(row: str, metric: str) -> float | None:
    """What the paper has for this row and metric, where it has something.

    >>> published_score("stsb/combo", "Spearman")
    0.8459
    """
    return published()[row].scores.get(metric) if row in published() else None


def best_published(task: str, metric: str) -> float | None:
    """The highest score that the paper has for a task.

    >>> best_published("stsb", "Spearman")
    0.8571
    """
    rows = [one for name, one in published().items() if name.startswith(f"{task}/")]
    return max((one.scores.get(metric, 0.0) for one in rows), default=0) or None


def title(table: str) -> str:
    """What a table is called."""
    return read_data("paper.toml")["titles"][table]


def caption(task: str) -> str:
    """Where the data here is not the paper's, or the figure is not of the kind that it looks like."""
    return read_data("paper.toml")["captions"][task]
