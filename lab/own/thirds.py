"""Cross-validation of variants: thirds of train and dev, each held out in turn. Test has no part in it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lab.own.own_runs import OwnRun, mean
from pairtune import PairSet, Task
from pairtune.data.splits import connect, distinct, join

THIRDS = (1, 2, 3)
MOST = 2500  # pairs to train on, about: what a user has, and many of these trainings fit into an hour
FEW = 60  # pairs that stand in for test, whose scores nobody reads


def hold_out(task: Task, third: int) -> Task:
    """A task that trains on two thirds of train and dev; its dev is the rest, which in a search is sought in all right texts."""
    pool = join(task.train, task.dev)
    groups = groups_of(pool, task)
    held = np.array([drawn(group, len(THIRDS)) == third - 1 for group in groups])
    rows = np.flatnonzero(~held)
    if len(rows) > MOST:
        share = np.array([drawn(f"x{group}", 10_007) / 10_007 for group in groups])
        rows = rows[share[rows] < MOST / len(rows)]
    train, dev = pool.take(rows), pool.take(held)
    if task.kind == "retrieval":
        train, dev = replace(train, corpus=distinct(train.right)), replace(dev, corpus=distinct(pool.right))
    few = dev.take(np.arange(min(FEW, len(dev))))
    few = replace(few, corpus=distinct(few.right)) if task.kind == "retrieval" else few
    return replace(task, train=train, dev=dev, test=few)


def groups_of(pool: PairSet, task: Task) -> list[str]:
    """What stays together: the pairs of a query; outside rankings all pairs that share texts, unless most of the data does."""
    if task.kind != "ranking":
        connected = connect(pool.left, pool.right)
        if Counter(connected).most_common(1)[0][1] < len(pool) / 10:
            return connected
    return [str(query) for query in pool.query]


def drawn(name: str, of: int) -> int:
    """A number below `of` that only the name decides."""
    return int(hashlib.md5(name.encode(), usedforsecurity=False).hexdigest(), 16) % of


def thirds_table(runs: Sequence[OwnRun], rule: str, base: str) -> str:
    """Variants of a rule beside `base`: the difference on the held-out thirds, in thousandths; markdown."""
    mine = [run for run in runs if run.rule == rule]
    cases = list(dict.fromkeys(run.case for run in mine))
    rows = [
        f"| variant | {' | '.join(f'`{case}`' for case in cases)} | mean | ± | best without a dataset |",
        "| --- " * (len(cases) + 4) + "|",
    ]
    lines = []
    for name in dict.fromkeys(run.name for run in mine):
        found = differences(mine, name, base)
        if set(found) == set(cases) and name != base:
            cells = " | ".join(f"{1000 * found[case]:+.0f}" for case in cases)
            middle, error = 1000 * mean([*found.values()]), 1000 * float(np.std([*found.values()])) / (len(cases) - 1) ** 0.5
            first = sum(best_without(mine, dataset, base) == name for dataset in {run.dataset for run in mine})
            lines.append((middle, f"| {name} | {cells} | {middle:+.1f} | {error:.1f} | {first} |"))
    return "\n".join([*rows, *(line for _, line in sorted(lines, reverse=True))])


def differences(runs: Sequence[OwnRun], name: str, base: str) -> dict[str, float]:
    """By case, the mean over its thirds of a variant's score on dev less that of `base`."""
    scores = {(run.case, run.name, run.seed): run.after["dev"] for run in runs}
    found: dict[str, list[float]] = {}
    for case, other, third in scores:
        if other == name and (case, base, third) in scores:
            found.setdefault(case, []).append(scores[case, name, third] - scores[case, base, third])
    return {case: mean(values) for case, values in found.items()}


def best_without(runs: Sequence[OwnRun], dataset: str, base: str) -> str:
    """The variant with the highest mean over the cases of all other datasets."""
    others = [run for run in runs if run.dataset != dataset]
    cases = {run.case for run in others}
    means = {name: differences(others, name, base) for name in dict.fromkeys(run.name for run in others)}
    whole = {name: mean([*found.values()]) for name, found in means.items() if set(found) == cases}
    return max(whole, key=whole.__getitem__)
