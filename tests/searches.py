"""A small search that tests run here and in other processes, which are given this file."""

from __future__ import annotations

import os
import sys

from transformers import TrainerCallback
from transformers.trainer import DEFAULT_CALLBACKS

from pairtune.data.pairs import Task
from pairtune.tune.tuner import tune
from small import small_pairs, small_recipe

TRAININGS = 9
HELD = "held\n"


def small_search(encoder, out, train_seed=1, test_seed=3, **options):
    """Race on 72 pairs, by a count of trainings: no clock has a say in it."""
    metrics = ("Spearman", "Pearson")
    splits = (small_pairs(48, train_seed), small_pairs(24, 2), small_pairs(24, test_seed))
    task = Task("small", "regression", *splits, "Spearman", metrics)
    start = small_recipe(encoder, loss={"kind": "pearson"}, train={"epochs": 1})
    return tune(task, out=out, start=start, **{"minutes": None, "most_trainings": TRAININGS, **options})


class Hold(TrainerCallback):
    """After so many trainings, at the beginning of the next, says so on standard output and waits for a line."""

    def __init__(self, after):
        self.left, self.output = after, os.dup(1)  # a training has its output in a file

    def on_train_begin(self, args, state, control, **kwargs):
        if self.left == 0:
            os.write(self.output, HELD.encode())
            sys.stdin.readline()
        self.left -= 1


if __name__ == "__main__":
    encoder, out, after, *options = sys.argv[1:]
    DEFAULT_CALLBACKS.append(Hold(int(after)))
    given = dict(option.split("=", 1) for option in options if "=" in option)
    given |= {"test_seed": int(given["test_seed"])} if "test_seed" in given else {}
    small_search(encoder, out, **given, join="join" in options)
