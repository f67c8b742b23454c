"""Which records do not show what their recipe says, by the rules of validity.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from lab.keys import read_data, todays_name
from pairtune import Run
from pairtune.runs.recipe import STAGE_TABLES

WantedSettings = dict[str, list[str]]


@dataclass(frozen=True)
class Exclusion:
    """mark: stands at the scores. why: what is wrong with them. stages: what one stage has to have, any of these.

    rows: the names of rows that are meant, whatever they have.
    """

    mark: str
    why: str
    finished_before: str
    encoders: tuple[str, ...]
    stages: tuple[WantedSettings, ...] = ()
    rows: tuple[str, ...] = ()

    def forbids(self, run: Run) -> bool:
        """Whether a record is one of those."""
        if run.encoder not in self.encoders or _time(run.finished) >= _time(self.finished_before):
            return False
        return run.name in self.rows or any(_has(stage, wanted) for stage in run.recipe["stages"] for wanted in self.stages)


@cache
def rules() -> tuple[Exclusion, ...]:
    """Those of validity.toml."""
    return tuple(
        Exclusion(**{**entry, **{key: tuple(entry.get(key, ())) for key in ("encoders", "stages", "rows")}})
        for entry in read_data("validity.toml")["rules"]
    )


def problem_of(run: Run) -> Exclusion | None:
    """The first rule that forbids a record; None for a valid one."""
    return next((rule for rule in rules() if rule.forbids(run)), None)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _has(stage: Mapping[str, Any], wanted: WantedSettings) -> bool:
    told = {f"{part}.{todays_name(part, name)}": value for part in STAGE_TABLES for name, value in stage.get(part, {}).items()}
    return all(told.get(setting) in values for setting, values in wanted.items())
