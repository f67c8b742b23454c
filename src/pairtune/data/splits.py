"""Dev as part of what is trained on: another tenth held out for every seed, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pairtune.data.info import connect, distinct, share
from pairtune.data.pairs import PairSet, Task
from pairtune.errors import UserError

PARTS = 10


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
    """The pairs of both, the first ones first."""
    return PairSet.of(
        first.left + second.left,
        first.right + second.right,
        np.concatenate([first.label, second.label]),
        query=np.concatenate([first.query, second.query]),
        grade=np.concatenate([first.grade, second.grade]),
        corpus=distinct((*(first.corpus or ()), *(second.corpus or ()))) or None,
    )


def number_parts(groups: Sequence[str]) -> np.ndarray:
    """(N,) from 0 to 9: groups in an order that their names alone decide, cut into parts of about equally many pairs."""
    begins: dict[str, int] = {}
    begin = 0
    for name, size in sorted(Counter(groups).items(), key=lambda item: share(item[0])):
        begins[name] = begin
        begin += size
    return np.array([begins[name] * PARTS // len(groups) for name in groups])
