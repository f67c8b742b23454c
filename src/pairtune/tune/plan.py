"""How much may be tried, in minutes or trainings, and what all processes of a search agree on for that.

The plan says which recipe the search starts from, how large its folds are, and how many.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pairtune.data.pairs import Task
from pairtune.data.sources import change_each, without_test
from pairtune.errors import UserError
from pairtune.progress import describe_count
from pairtune.runs.recipe import Recipe
from pairtune.tune.folds import MOST_DEV, limit, limit_train
from pairtune.tune.ledger import Entry
from pairtune.tune.tried import ENOUGH
from pairtune.tune.worker import Job, Setup, attempt

TRIAL_PAIRS = 512  # of the short training that shows how fast this machine is
FEW_FOLDS, MANY_FOLDS, MANY_TRAININGS = 5, 10, 60  # ten folds only where so many trainings can be made
FEWEST_TRAININGS = ENOUGH + 2  # with fewer no variant could win
COMFORTABLE = 24  # trainings that a search should have, where pairs have to be left out for it
TOLERABLE = 12  # with so many of full size none are left out
FEWEST_PAIRS = 400  # folds of fewer pairs say too little
CAUTION = 1.2  # the last training may take so many times what is expected
MOST_LAST = 3  # trainings whose weights are averaged in the end
LAST_SHARE = 1 / 3  # of the time, that more than one of them may take


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

    jobs: how many train at once. last: how much longer all that is trained in the end takes than one training of a fold.
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
            words.append(f"{describe_count(max(0, self.trainings - done), 'training')} left")
        return ", ".join(words)


class Plan(BaseModel):
    """pairs: a fold trains on at most so many, 0 for all. folds: at most so many of them; 0: no race.

    last: how many trainings are averaged in the end.
    reasons: why the base is what it is. notes: what was done to fit the time.
    """

    model_config = ConfigDict(frozen=True)

    base: Recipe
    pairs: int = 0
    folds: int = MANY_FOLDS
    last: int = 1
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def make_plan(task: Task, base: Recipe, reasons: tuple[str, ...], budget: Budget, scratch: Path) -> Plan:
    """Folds that fit the budget. Only a budget in seconds needs the trial that shows how fast this machine is."""
    if budget.seconds is None:
        return Plan(base=base, folds=count_folds(float(budget.trainings or inf)), last=MOST_LAST, reasons=reasons)
    total, epochs = len(task.train) + len(task.dev), sum(stage.train.epochs for stage in base.stages)
    speed = measure_speed(task, base, scratch)
    seconds = budget.seconds_left()
    dev = min(MOST_DEV, total // 10)
    pairs = fit_pairs(speed, total, dev, epochs, seconds)
    whole, fold = (speed.seconds(count, epochs, dev) for count in (total, pairs or 0.9 * total))
    expected = min(max(0.0, seconds - whole) / fold, budget.trainings or inf)
    notes = [f"about {whole:.0f} s for a training on all pairs, {fold:.0f} s for one of a fold, by a short trial"]
    if pairs and count_folds(expected):
        notes.append(
            f"the race trains on {pairs:,} of {total:,} pairs at a time, "
            f"to fit about {describe_count(round(expected), 'training')} in; "
            f"more minutes would use more pairs"
        )
    last = count_last(whole, seconds)
    return Plan(base=base, pairs=pairs, folds=count_folds(expected), last=last, reasons=reasons, notes=tuple(notes))


def count_last(whole: float, seconds: float) -> int:
    """How many trainings on all pairs, of so many seconds each, may be averaged in the end.

    >>> count_last(60, 1800), count_last(250, 1800), count_last(900, 1800), count_last(0.5, 1e308)
    (3, 2, 1, 3)
    """
    return max(1, int(min(MOST_LAST, seconds * LAST_SHARE / whole)))


def count_folds(trainings: float) -> int:
    """How many folds a variant may be judged by, when so many trainings can be made; 0: there is no use in a race."""
    if trainings < FEWEST_TRAININGS:
        return 0
    return MANY_FOLDS if trainings >= MANY_TRAININGS else FEW_FOLDS


def estimate_training(task: Task, recipe: Recipe, scratch: Path) -> float:
    """The seconds that a training of the recipe takes on this machine, dev and test included."""
    epochs = sum(stage.train.epochs for stage in recipe.stages)
    return measure_speed(task, recipe, scratch).seconds(len(task.train), epochs, len(task.dev) + len(task.test) / epochs)


def measure_speed(task: Task, base: Recipe, scratch: Path) -> Speed:
    """Train one epoch on a few pairs; what it takes depends on the machine, the encoder and the lengths of the texts."""
    from pairtune.encoders.loading import load_encoder

    load_encoder(base.encoder)  # what takes time once only: imports, a download
    few = limit_train(task, TRIAL_PAIRS)
    small = without_test(change_each(few, lambda one: replace(one, dev=limit(one.dev, one.kind, TRIAL_PAIRS // 10))))
    table = base.model_dump(mode="json")
    stages = [{**stage, "train": {**stage["train"], "epochs": 1}} for stage in table["stages"]]
    recipe = Recipe.model_validate({**table, "name": "trial", "task": "trial", "select": "last", "stages": stages})
    job, begun = Job(recipe, 1), time.monotonic()
    done = attempt(job, Setup(scratch, lambda name: small, checkpoints=False))
    if done.record is None:
        raise UserError(f"{base.name} cannot be trained on these pairs: {done.problem}")
    took = time.monotonic() - begun
    seconds = done.record.seconds
    return Speed(max(0.0, took - seconds), seconds / max(1, len(small.train) * len(stages)))
