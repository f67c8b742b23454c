"""What all processes of a search agree on: the recipe that it starts from, how large its folds are, and how many."""

from __future__ import annotations

import time
from dataclasses import replace
from math import inf
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pairtune.data.pairs import Task
from pairtune.errors import UserError
from pairtune.runs.recipe import Recipe
from pairtune.tune.budget import Budget, Speed, fit_pairs
from pairtune.tune.folds import MOST_DEV, limit, without_test
from pairtune.tune.job import Job
from pairtune.tune.race import ENOUGH
from pairtune.tune.worker import Setup, attempt

TRIAL_PAIRS = 512  # of the short training that shows how fast this machine is
FEW_FOLDS, MANY_FOLDS, MANY_TRAININGS = 5, 10, 60  # ten folds only where so many trainings can be made
FEWEST_TRAININGS = ENOUGH + 2  # with fewer no candidate could win


class Plan(BaseModel):
    """pairs: a fold trains on at most so many, 0 for all. folds: at most so many of them; 0: no race.

    reasons: why the base is what it is. notes: what was done to fit the time.
    """

    model_config = ConfigDict(frozen=True)

    base: Recipe
    pairs: int = 0
    folds: int = MANY_FOLDS
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def make_plan(task: Task, base: Recipe, reasons: tuple[str, ...], budget: Budget, scratch: Path) -> Plan:
    """Folds that fit the budget. Only a budget in seconds needs the trial that shows how fast this machine is."""
    if budget.seconds is None:
        return Plan(base=base, folds=count_folds(float(budget.trainings or inf)), reasons=reasons)
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
            f"the race trains on {pairs:,} of {total:,} pairs at a time, to fit about {expected:.0f} trainings in; "
            f"more minutes would use more pairs"
        )
    return Plan(base=base, pairs=pairs, folds=count_folds(expected), reasons=reasons, notes=tuple(notes))


def count_folds(trainings: float) -> int:
    """How many folds a candidate may be judged by, when so many trainings can be made; 0: there is no use in a race."""
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
    small = replace(task, train=limit(task.train, task.kind, TRIAL_PAIRS), dev=limit(task.dev, task.kind, TRIAL_PAIRS // 10))
    small = without_test(small)
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
