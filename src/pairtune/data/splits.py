"""What is held out: a tenth for dev and one for test by left text, another tenth for every seed, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pairtune.data.info import connect, distinct, fold, share
from pairtune.data.pairs import PairSet, Task
from pairtune.errors import UserError

PARTS = 10
FEWEST_LEFT = 10  # distinct left texts: one for dev, one for test
FEW_LEFT = 100  # below this, chance could leave dev or test next to empty


def rotate_dev(task: Task, seed: int) -> Task:
    """The task with train and dev put together, of which the tenth number `seed` (from 1, then from 1 again) is dev.

    In a ranking a query is never on both sides; elsewhere no text is.
    """
    both = join(task.train, task.dev)
    groups = list(map(str, both.query)) if task.kind == "ranking" else connect(both.left, both.right)
    part = (seed - 1) % PARTS
    held_out = number_parts(groups) == part
    train, dev = both.take(~held_out), both.take(held_out)
    alike = task.kind != "retrieval" and len(np.unique(dev.label)) == 1  # nothing to tell apart
    if not len(dev) or not len(train) or alike:
        found = f"has {len(dev)} pairs, all labelled {dev.label[0]:g}" if alike else f"has {len(dev)} pairs"
        raise UserError(
            f'task {task.name}: dev = "rotating": tenth {part + 1} of {len(both)} pairs, which fall into {len(set(groups))} '
            f'groups that share no text or query, {found}: take another seed, or dev = "given"'
        )
    note = f"dev: tenth {part + 1} of train and dev together, {len(dev)} of {len(both)} pairs, another one for each seed"
    others = (said for said in task.notes if not said.startswith("dev:"))
    return replace(task, train=train, dev=dev, notes=(*others, note))


def join_dev(task: Task) -> Task:
    """The task with the pairs of dev among those of train, for a recipe that is already chosen."""
    if task.kind == "classification":
        raise UserError(
            f'task {task.name}: dev = "joined" would train on the pairs by which F1 chooses its threshold: set dev = "given"'
        )
    note = f"dev: its {len(task.dev)} pairs are trained on too, so the scores on it say nothing about others"
    others = (said for said in task.notes if not said.startswith("dev:"))
    return replace(task, train=join(task.train, task.dev), notes=(*others, note))


def join(first: PairSet, second: PairSet) -> PairSet:
    """The pairs of both, the first ones first; either both have negatives, equally many, or none has."""
    if (first.negatives is None) != (second.negatives is None):
        raise UserError("only one of two splits has columns of negatives: give them to both, or to none")
    return PairSet.of(
        first.left + second.left,
        first.right + second.right,
        np.concatenate([first.label, second.label]),
        query=np.concatenate([first.query, second.query]),
        grade=np.concatenate([first.grade, second.grade]),
        corpus=distinct((*(first.corpus or ()), *(second.corpus or ()))) or None,
        negatives=None if first.negatives is None or second.negatives is None else first.negatives + second.negatives,
    )


def number_parts(groups: Sequence[str]) -> np.ndarray:
    """(N,) from 0 to 9: groups in an order that their names alone decide, cut into parts of about equally many pairs."""
    begins: dict[str, int] = {}
    begin = 0
    for name, size in sorted(Counter(groups).items(), key=lambda item: share(item[0])):
        begins[name] = begin
        begin += size
    return np.array([begins[name] * PARTS // len(groups) for name in groups])


def split_by_left(left: Sequence[str], seed: int, origin: str = "the data") -> np.ndarray:
    """(N,) 0, 1 or 2: train, dev or test, by a hash of the seed and the left text (white space folded).

    From 100 distinct left texts on, each falls where its own hash says; fewer are cut by the order of their hashes,
    so that dev and test each get a tenth for sure.
    """
    return split_by_key([fold(text) for text in left], seed, origin)


def split_by_key(keys: Sequence[str], seed: int, origin: str) -> np.ndarray:
    """`split_by_left` by names that need no folding."""
    at = {key: share(f"{seed}\n{key}") for key in set(keys)}
    if len(at) < FEWEST_LEFT:
        raise UserError(
            f"{origin}: {len(at)} different left texts, and the split into train, dev and test is by left text: "
            f"give at least {FEWEST_LEFT}, or swap left and right"
        )
    if len(at) < FEW_LEFT:
        held_out = len(at) // 10  # the highest hashes are test and the next dev, as with many texts
        at = {key: 1 - (place + 0.5) / (10 * held_out) for place, key in enumerate(sorted(at, key=at.__getitem__, reverse=True))}
    return np.array([0 if at[key] < 0.8 else 1 if at[key] < 0.9 else 2 for key in keys])
