"""How much may be tried: in minutes, in trainings, or both; and how large the folds may be for that."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from pairtune.tune.ledger import Entry

COMFORTABLE = 24  # trainings that a search should have, where pairs have to be left out for it
TOLERABLE = 12  # with so many of full size none are left out
FEWEST_PAIRS = 400  # folds of fewer pairs say too little
CAUTION = 1.2  # the last training may take so many times what is expected


@dataclass(frozen=True)
class Speed:
    """What a short trial has shown. overhead: seconds of a training beside its steps. pair: seconds of a pair in one epoch."""

    overhead: float
    pair: float

    def seconds(self, pairs: float, epochs: int, dev: float = 0) -> float:
        """What a training takes. dev: pairs that are scored before it, after it and after each epoch, without a backward pass."""
        return self.overhead + (pairs * epochs + dev * (epochs + 2) / 3) * self.pair


def fit_pairs(speed: Speed, pairs: int, dev: int, epochs: int, seconds: float) -> int:
    """On how many pairs the folds may train, so that enough trainings fit into the time; 0 for all of the `pairs`.

    dev: how many pairs a fold is judged by.

    >>> fit_pairs(Speed(1, 0.001), 3000, 300, 3, 900), fit_pairs(Speed(2, 0.01), 3000, 300, 3, 900)
    (0, 855)
    """
    left = seconds - CAUTION * speed.seconds(pairs, epochs, dev)
    if speed.seconds(0.9 * pairs, epochs, dev) * TOLERABLE <= left:
        return 0
    fixed = speed.seconds(0, epochs, dev)
    return min(pairs, max(FEWEST_PAIRS, int((left / COMFORTABLE - fixed) / (epochs * speed.pair))))


@dataclass(frozen=True)
class Budget:
    """What a search may use. seconds: from `begun` on, the last training included; None: no limit. trainings: of folds, in all.

    jobs: how many train at once. last: how much longer the last training takes than one of a fold.
    """

    seconds: float | None
    trainings: int | None
    jobs: int = 1
    last: float = 1.0
    clock: Callable[[], float] = time.monotonic
    begun: float = field(default_factory=time.monotonic)

    def left(self, entries: Sequence[Entry]) -> float:
        """How many trainings of folds still fit in; infinite where nothing limits them."""
        begun = sum(len(entry.scores) + len(entry.claimed) for entry in entries)
        by_count = inf if self.trainings is None else self.trainings - begun
        return min(by_count, self._left_by_time(entries))

    def _left_by_time(self, entries: Sequence[Entry]) -> float:
        seconds = self.seconds_left()
        if seconds == inf:
            return inf
        took = [one for entry in entries for one in entry.seconds.values()]
        if not took:
            return inf if seconds > 0 else 0
        expected = sum(took) / len(took)
        return int(max(0.0, seconds - expected * self.last * CAUTION) / expected) * self.jobs

    def seconds_left(self) -> float:
        """Until the end of the time; infinite where there is no limit."""
        return inf if self.seconds is None else self.begun + self.seconds - self.clock()

    def describe_left(self, entries: Sequence[Entry]) -> str:
        """What is left, in words."""
        words = []
        if self.seconds is not None:
            words.append(f"{max(0.0, self.seconds_left()) / 60:.1f} min left")
        if self.trainings is not None:
            done = sum(len(entry.scores) for entry in entries)
            words.append(f"{max(0, self.trainings - done)} trainings left")
        return ", ".join(words)
