"""The training pairs of a task in another guise, as a comparator or the released code needs them: `cqa-a+labelled`.

Dev and test stay as they are, but for `sep`, which joins subject and body of all questions in the authors' way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lab.augmented import read_silver
from pairtune import PairSet, Task, UserError, load_task

MINER = "minilm"  # the encoder as it comes that finds negatives, whatever is trained on them
SEPARATOR = " [SEP] "
POSITIVE_ABOVE = {"stsb": 0.6}  # as the paper cuts grades; of the others the task says it


def base_task(name: str) -> str:
    """The dataset of a task in some guise.

    >>> base_task("cqa-a+labelled"), base_task("cqa-a")
    ('cqa-a', 'cqa-a')
    """
    return name.partition("+")[0]


def load_guise(name: str, silver: Path | None = None) -> Task:
    """The task of this name; after a +, in that guise. silver: the folder of pairs that a cross-encoder has labelled."""
    base, _, guise = name.partition("+")
    task = replace(load_task(base), f1_threshold="best")  # as in the paper, and in all records
    if not guise:
        return task
    if guise.startswith("silver"):
        return replace(task, name=name, train=add_silver(task, guise, silver))
    if guise not in GUISES:
        raise UserError(f"task {name}: unknown guise {guise!r}; known: {', '.join([*GUISES, 'silver-bm25', 'silver-semantic'])}")
    return replace(GUISES[guise](task), name=name)


def joined_by_sep(task: Task) -> Task:
    """Questions with [SEP] in place of the full stop between subject and body: the first one, which the loader has put there.

    On CQA-A the left texts are questions, on CQA-B both.
    """

    def join(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(text.replace(". ", SEPARATOR, 1) for text in texts)

    def change(pairs: PairSet) -> PairSet:
        return replace(pairs, left=join(pairs.left), right=join(pairs.right) if task.name == "cqa-b" else pairs.right)

    extra = {name: change(pairs) for name, pairs in task.extra.items()}
    return replace(task, train=change(task.train), dev=change(task.dev), test=change(task.test), extra=extra)


def labelled_triplets(task: Task, *, most: int | None = None) -> Task:
    """Each positive pair with each labelled negative of the same left text; most: only so many of them, drawn at random."""
    rng = np.random.default_rng(0)
    rows = [
        (left, right, negative)
        for left, good, bad in sides_of(task.train, positive_above(task))
        for right in good
        for negative in (bad if most is None else rng.permutation(np.array(bad, object))[:most])
    ]
    return with_negatives(task, rows)


def mined_triplets(task: Task) -> Task:
    """Each positive pair with one negative that the host mines: the nearest text that is 5 % farther than the positive."""
    from datasets import Dataset
    from sentence_transformers.util import mine_hard_negatives

    from pairtune import load_encoder

    kept = task.train.take(task.train.positives(positive_above(task)))
    pairs = Dataset.from_dict({"anchor": kept.left, "positive": kept.right})
    options: Any = {"num_negatives": 1, "relative_margin": 0.05, "batch_size": 128, "verbose": False, "output_format": "triplet"}
    found = mine_hard_negatives(pairs, load_encoder(MINER), corpus=list(kept.corpus) if kept.corpus else None, **options)
    return with_negatives(task, zip(found["anchor"], found["positive"], found["negative"], strict=True))


def texts_alone(task: Task) -> Task:
    """Every training text as a pair with itself: dropout makes two views of it (SimCSE)."""
    texts = list(dict.fromkeys((*task.train.left, *task.train.right)))
    return replace(task, train=PairSet.of(texts, texts))


def positive_above(task: Task) -> float:
    """Above which label a pair is positive."""
    return POSITIVE_ABOVE.get(base_task(task.name), task.positive_above)


def sides_of(pairs: PairSet, positive_above: float) -> Iterator[tuple[str, list[str], list[str]]]:
    """Left texts that have both, each with its positive and its negative right texts, none twice."""
    sides: dict[str, tuple[dict[str, None], dict[str, None]]] = defaultdict(lambda: ({}, {}))
    for left, right, positive in zip(pairs.left, pairs.right, pairs.positives(positive_above), strict=True):
        sides[left][0 if positive else 1][right] = None
    return ((left, list(good), list(bad)) for left, (good, bad) in sides.items() if good and bad)


def with_negatives(task: Task, rows: Iterator[tuple[str, str, str]] | list[tuple[str, str, str]]) -> Task:
    """The task with these triplets to train on."""
    rows = list(rows)
    if not rows:
        raise UserError(f"task {task.name}: no left text has both a positive and a negative pair")
    anchors, positives, negatives = zip(*rows, strict=True)
    train = PairSet.of(anchors, positives, negatives=[(text,) for text in negatives], corpus=task.train.corpus)
    return replace(task, train=train)


def add_silver(task: Task, guise: str, folder: Path | None) -> PairSet:
    """The training pairs, and after them those of `guise` that a cross-encoder has labelled."""
    found = None if folder is None else read_silver(folder, task.name, guise.removeprefix("silver-"))
    if found is None:
        raise UserError(f"task {task.name}+{guise}: no pairs are labelled yet: python -m lab augment makes them")
    left, right, label = found
    gold = task.train
    return PairSet.of([*gold.left, *left], [*gold.right, *right], np.concatenate([gold.label, label]), corpus=gold.corpus)


GUISES: dict[str, Callable[[Task], Task]] = {
    "sep": joined_by_sep,
    "triplets": labelled_triplets,
    "sep-triplets": lambda task: labelled_triplets(joined_by_sep(task)),
    "labelled": partial(labelled_triplets, most=1),
    "mined": mined_triplets,
    "texts": texts_alone,
}
