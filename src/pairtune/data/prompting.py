"""A task as an encoder reads it: every text with its prompt."""

from __future__ import annotations

from dataclasses import replace

from pairtune.data.pairs import PairSet, Task
from pairtune.encoders.prompts import Prompts

ALIKE = ("classification", "regression")  # kinds whose two texts are of one sort, as a rule


def add_prompts(task: Task, prompts: Prompts) -> Task:
    """The task with the prompts before its texts; queries keep their names."""
    if not prompts:
        return task
    extra = {name: prompt_pairs(pairs, prompts) for name, pairs in task.extra.items()}
    train, dev, test = (prompt_pairs(pairs, prompts) for pairs in (task.train, task.dev, task.test))
    return replace(task, train=train, dev=dev, test=test, extra=extra, notes=(*task.notes, f"prompts: {prompts}"))


def prompt_pairs(pairs: PairSet, prompts: Prompts) -> PairSet:
    """The pairs with the prompts before their texts."""
    return replace(
        pairs,
        left=prompts.of_left(pairs.left),
        right=prompts.of_right(pairs.right),
        corpus=None if pairs.corpus is None else prompts.of_right(pairs.corpus),
        negatives=None if pairs.negatives is None else tuple(prompts.of_right(texts) for texts in pairs.negatives),
    )
