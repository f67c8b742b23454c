"""The record of a search: what was tried, how it went, what was chosen. Reports read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from pairtune.errors import UserError

TUNING = "tuning.json"


class Tried(BaseModel):
    """A candidate. changes: in what it differs from the starting recipe, by axis. scores: on dev, by the number of the fold.

    gain, error: over the starting recipe on `folds` common folds, and its standard error (None: not known).
    ended: how its race ended.
    """

    model_config = ConfigDict(frozen=True)

    number: int
    levels: dict[str, str]
    changes: dict[str, str]
    scores: dict[int, float]
    seconds: float
    folds: int
    gain: float
    error: float | None
    ended: str


class Tuning(BaseModel):
    """A search. name: tells it from those of other pairs or encoders.

    chosen: the place of the winner in `tried`; the first of them is the starting recipe. before: the encoder as it came, by fold.
    notes: what was done to fit the time. untried: neighbors of the winner that were not tried. importance: how much of the
    differences each axis explains, by Optuna's estimate. noise: how much differences vary from fold to fold.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    task: str
    kind: str
    metric: str
    encoder: str
    reasons: list[str]
    notes: list[str]
    tried: list[Tried]
    before: dict[int, float]
    chosen: int
    recipe: dict[str, Any]
    untried: int
    importance: dict[str, float]
    noise: float | None
    seconds: float

    @property
    def winner(self) -> Tried:
        """The candidate that was chosen."""
        return self.tried[self.chosen]

    @property
    def trainings(self) -> int:
        """Of folds, in all."""
        return sum(len(one.scores) for one in self.tried)

    @property
    def gain_over_encoder(self) -> float | None:
        """The mean difference of the winner to the encoder as it came, on its folds; None where it has none."""
        found = [score - self.before[fold] for fold, score in self.winner.scores.items()]
        return sum(found) / len(found) if found else None


def read_tuning(folder: Path) -> Tuning:
    """The record of a search in the folder that `pairtune tune` wrote to."""
    path = folder / TUNING
    if not path.exists():
        raise UserError(f"{folder} holds no finished search: give a folder that `pairtune tune` made")
    try:
        return Tuning.model_validate_json(path.read_bytes())
    except ValidationError as problem:
        raise UserError(f"{path} is not the record of a search ({problem.error_count()} problems): search again") from problem
