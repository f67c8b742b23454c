"""Cases of a user's own data: the paper's datasets and `stdlib`, as they are and in other guises, and files of other texts."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from lab.own import packages, senses
from pairtune import PairSet, Task, load_task, read_pairs
from pairtune.data.negatives import fill_queries
from pairtune.data.pairs import Kind
from pairtune.data.splits import METRICS_OF_KIND

TRAIN, HELD_OUT = 5000, 3000  # pairs at most: what a user has, and what a comparison needs
SMALL = 500  # pairs of a user who has few
POOL = 10  # right texts for each query where a search engine gathered them

MADE = {name: maker for maker in (packages, senses) for name in maker.HEADERS}  # cases that come as files, and what writes them


@dataclass(frozen=True)
class Case:
    """dataset: where the pairs come from; cases of one dataset are left out together. make: the task in this guise.

    most: training pairs at most.
    """

    dataset: str
    make: Callable[[Task], Task]
    most: int = TRAIN


@cache
def load_case(name: str) -> Task:
    """The case as a task: so many training pairs at most, and HELD_OUT for dev and for test."""
    case = CASES[name]
    task = read_files(name) if name in MADE else case.make(load_task(case.dataset))
    cut = {
        part: cut_by_query(task.split(part), most) for part, most in (("train", case.most), ("dev", HELD_OUT), ("test", HELD_OUT))
    }
    return replace(task, name=name, extra={}, f1_threshold="best", **cut)  # as in all records, of stock losses too


def read_files(name: str) -> Task:
    """A case that comes as three files, as a user's are read."""
    maker = MADE[name]
    left, right, *label = maker.HEADERS[name]
    with tempfile.TemporaryDirectory() as folder:
        paths = {split: Path(folder) / f"{split}.csv" for split in maker.SHARES}
        for split, rows in maker.make_files().items():
            with paths[split].open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([maker.HEADERS[name], *rows[name]])
        files = {split: str(path) for split, path in paths.items()}
        return read_pairs(**files, left=left, right=right, label=label[0] if label else None)


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


def high_grades(task: Task) -> Task:
    """Only pairs with a grade above 0.4 of the scale: most of a user's pairs are similar, few are not."""
    return as_kind(task, "regression", lambda pairs: pairs.take(pairs.label > 0.4))


def one_answer(task: Task) -> Task:
    """A ranking with one right answer to a question: its other right answers are left out; POOL texts for each question."""

    def keep_one(pairs: PairSet) -> PairSet:
        positive = pairs.positives(task.positive_above)
        first = {pairs.query[row]: row for row in np.flatnonzero(positive)[::-1].tolist()}
        kept = [
            row == first.get(query) if good else query in first
            for row, (query, good) in enumerate(zip(pairs.query, positive, strict=True))
        ]
        return fill_queries(PairSet.of(pairs.left, pairs.right, positive, query=pairs.query).take(np.array(kept)), POOL)

    return as_kind(task, "ranking", keep_one)


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
    "stsb-high": Case("stsb", high_grades),
    "stsb-small": Case("stsb", as_it_is, SMALL),
    "mrpc-small": Case("mrpc", as_it_is, SMALL),
    "antique-one": Case("antique", one_answer),
    "cqa-a-one": Case("cqa-a", one_answer),
    "cqa-b-one": Case("cqa-b", one_answer),
    "stdlib-answers": Case("stdlib", one_answer),
    "stdlib-small": Case("stdlib", as_it_is, SMALL),
    **{name: Case(name.partition("-")[0], as_it_is) for name in MADE},
}
