"""What variants are judged by: parts of train and dev that are held out in turn. Test is no part of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

import numpy as np

from pairtune.data.pairs import Kind, PairSet, Task
from pairtune.data.sources import change_each, without_test
from pairtune.data.splits import PARTS, connect, distinct, hash_to_unit, rotate_dev
from pairtune.errors import UserError

FEWEST_FOLDS = 3  # tenths that can be held out; with fewer, seeds are compared on the given dev
SEEDS = 5  # folds of that kind
MOST_DEV = 1000  # pairs that a fold is judged by
FEW_PAIRS = 50
FEWEST_OTHERS = 1000  # right texts that a search is made in beside its own answers


@dataclass(frozen=True)
class Folds:
    """The folds of a task. numbers: of its tenths; or, where `tenths` is false, the seeds that train for the given dev.

    pairs: a fold trains on at most so many, 0 for all.
    """

    task: Task
    numbers: tuple[int, ...]
    tenths: bool
    pairs: int = 0

    def __call__(self, name: str) -> Task:
        """The fold of this name, as a task for a worker: `fold-3`."""
        return change_each(self.task, partial(self._hold_out, number=int(name.removeprefix("fold-"))))

    def _hold_out(self, task: Task, number: int) -> Task:
        fold = rotate_dev(task, number) if self.tenths else task
        part = len(task.train) / len(self.task.train)  # of several sources
        train, dev = (
            limit(pairs, fold.kind, ceil(most * part)) for pairs, most in ((fold.train, self.pairs), (fold.dev, MOST_DEV))
        )
        return replace(fold, train=train, dev=dev, test=_stand_in(dev))

    def __str__(self) -> str:
        if self.tenths:
            return f"{len(self.numbers)} tenths of train and dev, each held out in turn"
        return f"{len(self.numbers)} seeds on the given dev, because most pairs share texts with each other"


def fold_name(number: int) -> str:
    """How a worker asks for a fold."""
    return f"fold-{number}"


def make_folds(task: Task, pairs: int = 0, most: int = PARTS) -> Folds:
    """At most so many folds, each of which trains on at most so many pairs, 0 for all."""
    blind = without_test(task)
    if pairs:  # what no fold will use need not be cut into tenths
        blind = limit_train(blind, 2 * pairs + PARTS * MOST_DEV)
    usable = tuple(number for number in range(1, PARTS + 1) if _can_hold_out(blind, number))
    if len(usable) >= FEWEST_FOLDS:
        return Folds(blind, usable[:most], True, pairs)
    return Folds(blind, tuple(range(1, min(SEEDS, most) + 1)), False, pairs)


def _can_hold_out(task: Task, number: int) -> bool:
    try:
        change_each(task, lambda one: rotate_dev(one, number))
    except UserError:
        return False
    return True


def limit_train(task: Task, most: int) -> Task:
    """About so many of the training pairs; of several sources, each its part."""
    total = len(task.train)
    return change_each(task, lambda one: replace(one, train=limit(one.train, one.kind, ceil(most * len(one.train) / total))))


def limit(pairs: PairSet, kind: Kind, most: int) -> PairSet:
    """About so many of the pairs, 0 for all, always the same ones.

    Whole queries in a ranking; elsewhere pairs that share a text stay together, as far as that is possible.
    """
    if not 0 < most < len(pairs):
        return pairs
    rows = _first_sets(_kept_together(pairs, kind, most), most)
    return _smaller_corpus(pairs.take(rows), max(most, FEWEST_OTHERS))


def _kept_together(pairs: PairSet, kind: Kind, most: int) -> list[str]:
    """What each pair is kept together with, by name."""
    queries = list(map(str, pairs.query))
    if kind == "ranking":
        return queries
    connected = connect(pairs.left, pairs.right)
    return connected if Counter(connected).most_common(1)[0][1] <= most / PARTS else queries


def _first_sets(names: Sequence[str], most: int) -> np.ndarray:
    """(N,) bool: whole sets, in an order that their names alone decide, up to so many pairs; at least one."""
    sizes = Counter(names)
    taken: set[str] = set()
    count = 0
    for name in sorted(sizes, key=hash_to_unit):
        if not taken or count + sizes[name] <= most:
            taken.add(name)
            count += sizes[name]
    return np.array([name in taken for name in names], bool)


def _smaller_corpus(pairs: PairSet, others: int) -> PairSet:
    """In a search, the texts that are right answers and so many others."""
    if pairs.corpus is None:
        return pairs
    answers = set(pairs.right)
    rest = [text for text in pairs.corpus if text not in answers]
    return replace(pairs, corpus=distinct((*pairs.right, *sorted(rest, key=hash_to_unit)[:others])))


def _stand_in(dev: PairSet) -> PairSet:
    """A few pairs in the place of test, whose scores nobody reads."""
    few = dev.take(range(min(FEW_PAIRS, len(dev))))
    few = few if few.corpus is None else replace(few, corpus=distinct(few.right))
    return few if few.corpus is not None or len(np.unique(few.label)) > 1 else dev
