"""A small search that tests run here and in other processes, which are given this file."""

from __future__ import annotations

import sys

from pairtune.data.pairs import Task
from pairtune.tune.tuner import tune
from small import small_pairs, small_recipe

TRAININGS = 9


def small_search(encoder, out, train_seed=1, test_seed=3, **options):
    """Race on 72 pairs, by a count of trainings: no clock has a say in it."""
    metrics = ("Spearman", "Pearson")
    splits = (small_pairs(48, train_seed), small_pairs(24, 2), small_pairs(24, test_seed))
    task = Task("small", "regression", *splits, "Spearman", metrics)
    start = small_recipe(encoder, loss={"kind": "pearson"}, train={"epochs": 1})
    return tune(task, out=out, start=start, **{"minutes": None, "most_trainings": TRAININGS, **options})


if __name__ == "__main__":
    encoder, out, *options = sys.argv[1:]
    small_search(encoder, out, **dict(option.split("=") for option in options if "=" in option), join="join" in options)
