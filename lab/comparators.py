"""The systems that the paper compares with, in the same tables: the same data, encoder, epochs and seeds as its MSE row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from lab.changes import ChangedRow
from lab.guises import POSITIVE_ABOVE
from lab.keys import read_data
from lab.searches import searches
from pairtune import Recipe


@dataclass(frozen=True)
class System:
    """title: its row in a table. trained: the row that is trained, with its changes."""

    title: str
    task: str
    trained: ChangedRow

    @property
    def relabels(self) -> bool:
        """Whether it trains on pairs that a cross-encoder has to label first."""
        return any("+silver" in change for change in self.trained.changes)

    def recipe(self, overrides: Sequence[str] = ()) -> Recipe:
        """The recipe that is trained; of the paper's own loss, its row."""
        return self.trained.recipe(overrides)


@cache
def systems() -> tuple[System, ...]:
    """Those of comparators.toml, task by task in the order of the paper's tables."""
    entries = read_data("comparators.toml")["systems"]
    return tuple(_system(entry, task) for task in searches() for entry in entries if task in entry.get("tasks", [task]))


def _system(entry: dict[str, str], task: str) -> System:
    guise = [f"task={task}+{entry['guise']}"] if "guise" in entry else []
    chosen = "positives_only" in entry["set"] and task in POSITIVE_ABOVE
    above = [f"loss.positive_above={POSITIVE_ABOVE[task]}"] if chosen else []
    return System(entry["title"], task, ChangedRow(f"{task}/{entry['base']}", (*guise, *entry["set"].split(), *above)))


def recipes_of_comparators(overrides: Sequence[str] = (), task: str = "") -> list[Recipe]:
    """All of them, or those of a task; those that wait for labels of a cross-encoder last."""
    chosen = sorted((one for one in systems() if task in ("", one.task)), key=lambda system: system.relabels)
    return [system.recipe(overrides) for system in chosen]
