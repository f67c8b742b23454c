"""One thing changed in a row, as evidence.toml has it: what both sides train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.candidates import Candidate
from lab.keys import read_data
from lab.rows import read_row
from pairtune import Recipe

Change = Mapping[str, str]  # row, to, and where they are needed with and from


def sections() -> list[dict[str, Any]]:
    """The sections of the page of evidence."""
    return read_data("evidence.toml")["sections"]


def both_sides(change: Change) -> tuple[Candidate, Candidate]:
    """What a change is made from and to."""
    task, _, row = change["row"].partition("/")
    common = f"{row} {change.get('with', '')}"
    return Candidate.of(task, f"{common} {change.get('from', '')}"), Candidate.of(task, f"{common} {change['to']}")


def recipes_of_evidence(overrides: Sequence[str] = ()) -> list[Recipe]:
    """Every row, and both sides of every change."""
    rows = [name for section in sections() for name in (*section.get("rows", ()), *section.get("spread", ()))]
    changed = [one for section in sections() for change in section.get("changes", ()) for one in both_sides(change)]
    return [*(read_row(name, overrides) for name in rows), *(one.recipe(overrides) for one in changed)]
