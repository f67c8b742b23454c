"""Cases of a user's own data: the paper's datasets and `stdlib`, as they are and in other guises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pairtune import PairSet, Task, load_task
from pairtune.data.pairs import Kind
from pairtune.data.splits import METRICS_OF_KIND

TRAIN, HELD_OUT = 5000, 3000  # pairs at most: what a user has, and what a comparison needs


@dataclass(frozen=True)
class Case:
    """dataset: where the pairs come from; cases of one dataset are left out together. make: the task in this guise."""

    dataset: str
    make: Callable[[Task], Task]


def load_case(name: str) -> Task:
    """The case as a task: at most TRAIN training pairs, and HELD_OUT for dev and for test."""
    case = CASES[name]
    task = case.make(load_task(case.dataset))
    cut = {part: cut_by_query(task.split(part), most) for part, most in (("train", TRAIN), ("dev", HELD_OUT), ("test", HELD_OUT))}
    return replace(task, name=name, extra={}, **cut)


def cut_by_query(pairs: PairSet, most: int) -> PairSet:
    """The first queries, whole, that have at most so many pairs together. A search keeps its corpus."""
    if len(pairs) <= most:
        return pairs
    first: dict[str, int] = {}
    numbers = np.array([first.setdefault(query, len(first)) for query in pairs.query])
    sizes = np.bincount(numbers)
    shuffled = np.random.default_rng(0).permutation(len(sizes))
    kept = shuffled[np.cumsum(sizes[shuffled]) <= most]
    return pairs.take(np.isin(numbers, kept))


def as_it_is(task: Task) -> Task:
    """The dataset's own guise."""
    return task


def as_kind(task: Task, kind: Kind, change: Callable[[PairSet], PairSet]) -> Task:
    """The same pairs, changed, as another kind of task."""
    parts = {part: change(task.split(part)) for part in ("train", "dev", "test")}
    return replace(task, kind=kind, metrics=METRICS_OF_KIND[kind], metric=METRICS_OF_KIND[kind][0], positive_above=0.5, **parts)


def yes_or_no(task: Task) -> Task:
    """Labels cut at the task's bound, or at 0.6 for a similarity: a classification of pairs."""
    above = 0.6 if task.kind == "regression" else task.positive_above
    return as_kind(task, "classification", lambda pairs: PairSet.of(pairs.left, pairs.right, pairs.label > above))


def graded(task: Task) -> Task:
    """The dataset's own grades as labels: a regression."""
    low, high = task.train.grade.min(), task.train.grade.max()
    return as_kind(
        task,
        "regression",
        lambda pairs: PairSet.of(pairs.left, pairs.right, (pairs.grade - low) / (high - low), grade=pairs.grade),
    )


def search(task: Task) -> Task:
    """The positive pairs alone: each left text is searched in all right texts of its split."""

    def positives(pairs: PairSet) -> PairSet:
        kept = pairs.take(pairs.positives(task.positive_above))
        return PairSet.of(kept.left, kept.right, corpus=tuple(dict.fromkeys(pairs.right)))

    return as_kind(task, "retrieval", positives)


CASES = {
    "stsb": Case("stsb", as_it_is),
    "stsb-yes-no": Case("stsb", yes_or_no),
    "antique-grades": Case("antique", graded),
    "mrpc": Case("mrpc", as_it_is),
    "qqp": Case("qqp", as_it_is),
    "cqa-a-yes-no": Case("cqa-a", yes_or_no),
    "cqa-a": Case("cqa-a", as_it_is),
    "cqa-b": Case("cqa-b", as_it_is),
    "antique": Case("antique", as_it_is),
    "qqp-search": Case("qqp", search),
    "cqa-b-search": Case("cqa-b", search),
    "pfcc-s": Case("pfcc-s", as_it_is),
    "stdlib": Case("stdlib", as_it_is),
}
