"""What was tried: which variant is better, by differences on the same folds with their noise, and the record of a search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from pairtune.errors import UserError
from pairtune.progress import describe_count

FoldScores = Mapping[int, float]  # the number of a fold → the main metric on its dev
Verdict = Literal["dropped", "open", "better", "tie"]
ENOUGH = 4  # folds before a variant may win
PRIOR = 2.0  # how many folds the noise of the other variants is worth
FEWEST_DEGREES = 2  # degrees of freedom before the noise of the others is believed


@dataclass(frozen=True)
class Comparison:
    """gain: the mean difference over `folds` common folds. error: its standard error, infinite where nothing is known of it."""

    folds: int
    gain: float
    error: float

    def __str__(self) -> str:
        noise = "" if self.error == inf else f" ± {self.error:.4f}"
        return f"{self.gain:+.4f}{noise} on {describe_count(self.folds, 'fold')}"


def compare(one: FoldScores, other: FoldScores, noise: float | None = None) -> Comparison:
    """How much better one is than the other.

    noise: the standard deviation of such differences from fold to fold, as other variants show it; two or three folds alone say
    little about it.
    """
    found = differences(one, other)
    count = len(found)
    if not count:
        return Comparison(0, 0.0, inf)
    squares, freedom = float(((found - found.mean()) ** 2).sum()), float(count - 1)
    if noise is not None:
        squares, freedom = squares + PRIOR * noise**2, freedom + PRIOR
    error = sqrt(squares / freedom / count) if freedom else inf
    return Comparison(count, float(found.mean()), error)


def differences(one: FoldScores, other: FoldScores) -> np.ndarray:
    """On each common fold, in the order of their numbers."""
    return np.array([one[fold] - other[fold] for fold in sorted(one.keys() & other.keys())])


def common_noise(scores: Iterable[FoldScores], base: FoldScores) -> float | None:
    """The standard deviation, from fold to fold, of the differences of variants to the base; None where too few are known."""
    squares, freedom = 0.0, 0
    for one in scores:
        found = differences(one, base)
        if len(found) > 1:
            squares += float(((found - found.mean()) ** 2).sum())
            freedom += len(found) - 1
    return sqrt(squares / freedom) if freedom >= FEWEST_DEGREES else None


def judge(found: Comparison, most: int) -> Verdict:
    """What to do with a challenger, given how it compares with the best so far; most: how many folds there are.

    It is dropped when it is behind by more than its standard error, or not ahead after four folds; it wins when it is ahead by
    more than that on four folds or more, and ties when all folds cannot tell.
    """
    enough = min(ENOUGH, most)
    if found.folds and found.error < inf and found.gain < -found.error:
        return "dropped"
    if found.folds >= enough and found.gain <= 0:
        return "dropped"
    if found.folds >= enough and found.gain > found.error:
        return "better"
    return "tie" if found.folds >= most else "open"


def choose_winner(scores: Sequence[FoldScores], changes: Sequence[int], most: int) -> int:
    """The place of the variant to take; the first one is the starting recipe.

    Of those with enough folds, find the one with the largest mean gain over the first, and all that are not clearly behind it.
    Of these take the simplest: the one with the fewest changes, then the one with the largest gain.
    """
    base, noise = scores[0], common_noise(scores[1:], scores[0])
    gains = [compare(one, base, noise) for one in scores]
    ready = [place for place, found in enumerate(gains) if place == 0 or found.folds >= min(ENOUGH, most)]
    best = max(ready, key=lambda place: gains[place].gain)
    alike = [place for place in ready if not _behind(compare(scores[place], scores[best], noise))]
    return min(alike, key=lambda place: (changes[place], -gains[place].gain, place))


def choose_finalists(scores: Sequence[FoldScores], chosen: int, most: int, count: int) -> list[int]:
    """The places of at most so many variants whose weights may be averaged with those of the winner.

    The starting recipe, which rests on more data than these pairs, is the first; then those that are not clearly behind the
    winner, the best first.
    """
    noise = common_noise(scores[1:], scores[0])
    ready = [place for place in range(1, len(scores)) if place != chosen and len(scores[place]) >= min(ENOUGH, most)]
    beside = {place: compare(scores[place], scores[chosen], noise) for place in ready}
    alike = [place for place in ready if not _behind(beside[place])]
    start = [0] if chosen else []
    return [*start, *sorted(alike, key=lambda place: -beside[place].gain)][:count]


def _behind(found: Comparison) -> bool:
    return found.error < inf and found.gain < -found.error


TUNING = "tuning.json"


class Tried(BaseModel):
    """A variant. changes: in what it differs from the starting recipe, by axis. scores: on dev, by the number of the fold.

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

    chosen: the place of the winner in `tried`; the first of them is the starting recipe. finalists: recipes of others that are
    trained in the end to be averaged with it; last: how many trainings that is, further seeds included. before: the encoder as
    it came, by fold. notes: what was done to fit the time. untried: neighbors of the winner that were not tried. importance: how
    much of the differences each axis explains, by Optuna's estimate. noise: how much differences vary from fold to fold.
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
    finalists: list[dict[str, Any]] = []
    last: int = 1
    recipe: dict[str, Any]
    untried: int
    importance: dict[str, float]
    noise: float | None
    seconds: float

    @property
    def winner(self) -> Tried:
        """The variant that was chosen."""
        return self.tried[self.chosen]

    @property
    def trainings(self) -> int:
        """Of folds, in all."""
        return sum(len(one.scores) for one in self.tried)

    @property
    def beside_encoder(self) -> Comparison:
        """The winner beside the original encoder, on the winner's folds."""
        return compare(self.winner.scores, self.before)


def read_tuning(folder: Path) -> Tuning:
    """The record of a search in the folder that `pairtune tune` wrote to."""
    path = folder / TUNING
    if not path.exists():
        raise UserError(f"{folder} holds no finished search: give a folder that `pairtune tune` made")
    try:
        return Tuning.model_validate_json(path.read_bytes())
    except ValidationError as problem:
        raise UserError(f"{path} is not the record of a search ({problem.error_count()} problems): search again") from problem
