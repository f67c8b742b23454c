"""The search for each task's best recipe, read from search.toml: rounds of changed rows, chosen between on dev."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from lab.changes import ChangedRow, Factorial
from lab.keys import read_data


@dataclass(frozen=True)
class SearchHistory:
    """first: rows and changes of them. second: by cross-validation, if there is such a round. combined: steps of combinations."""

    first: tuple[ChangedRow, ...]
    second: tuple[ChangedRow, ...] = ()
    combined: tuple[Factorial, ...] = ()

    @property
    def rounds(self) -> dict[str, tuple[ChangedRow, ...]]:
        """Changed rows by what their round is called, in the order of the rounds."""
        found = {"Search": self.first}
        if self.second:
            found["Second round, by cross-validation"] = self.second
        for step, design in enumerate(self.combined, start=1):
            found[f"Every combination, by cross-validation{f', step {step}' if step > 1 else ''}"] = design.changed_rows
        return found

    @property
    def changed_rows(self) -> list[ChangedRow]:
        """Those of all rounds, none twice."""
        found: dict[tuple[str, frozenset[str]], ChangedRow] = {}
        for rows in self.rounds.values():
            for row in rows:
                found.setdefault(row.settings, row)
        return list(found.values())


@cache
def searches() -> dict[str, SearchHistory]:
    """By task, in the order of the paper's tables."""
    return {task: _read_search(task, entry) for task, entry in read_data("search.toml").items() if task != "decide"}


@cache
def deciding_encoders() -> tuple[str, ...]:
    """Those whose runs of combinations count, all of them."""
    return tuple(read_data("search.toml")["decide"])


def _read_search(task: str, entry: Mapping[str, Any]) -> SearchHistory:
    return SearchHistory(
        tuple(ChangedRow.of(task, line) for line in entry["first"]),
        tuple(ChangedRow.of(task, line, "dev=rotating") for line in entry.get("second", ())),
        tuple(
            Factorial(f"{task}/{step['base']}", tuple(step["common"].split()), tuple(map(tuple, step["factors"])))
            for step in entry.get("combined", ())
        ),
    )
