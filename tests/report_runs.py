"""Small real runs for the tests of the report: duplicates of short sentences, with labelled negatives."""

from __future__ import annotations

import numpy as np

from pairtune.data.pairs import PairSet, Task
from pairtune.runs.toml import make_recipe

WORDS = ["stone", "river", "cloud", "engine", "garden", "paper", "silver", "window", "forest", "needle", "bridge", "candle"]
NASTY = 'a <b>bold</b> </script><script>alert(1)</script> "quoted" & cut &lt;'


def make_pairs(count, seed):
    """Every second pair is a rewording of one sentence, the others share a word or two; the first text is a nasty one."""
    rng = np.random.default_rng(seed)
    left = [" ".join(rng.choice(WORDS, size=4, replace=False)) for _ in range(count)]
    right, label = [], []
    for place, text in enumerate(left):
        words = text.split()
        same = place % 2 == 0
        right.append(" ".join(rng.permutation(words)) if same else " ".join([words[0], *rng.choice(WORDS, size=3)]))
        label.append(float(same))
    left[0] = NASTY
    return PairSet.of(left, right, label)


def duplicates_task():
    metrics = ("F1", "F1@best", "AP")
    return Task("twins", "classification", make_pairs(48, 1), make_pairs(30, 2), make_pairs(60, 3), "F1", metrics)


def search_task():
    pairs = make_pairs(40, 4)
    found = pairs.take(pairs.positives())
    corpus = tuple(dict.fromkeys(pairs.right))
    found = PairSet.of(found.left, found.right, corpus=corpus)
    return Task("finding", "retrieval", found, found, found, "HP@1", ("HP@1", "HP@5", "MRR"))


def ranking_task():
    rng = np.random.default_rng(6)
    query = np.repeat([f"question {number}" for number in range(12)], 4)
    left = [f"{WORDS[int(one.split()[1])]} and more" for one in query]
    right = [" ".join(rng.choice(WORDS, size=3)) for _ in query]
    pairs = PairSet.of(left, right, np.tile([1.0, 0, 0, 1], 12), query=query)
    return Task("answers", "ranking", pairs, pairs, pairs, "MAP", ("MAP", "MRR", "P@1"))


def make_small_recipe(encoder, **tables):
    train = {"epochs": 4, "batch_size": 12, "learning_rate": 1e-4, "max_seq_length": 16, **tables.pop("train", {})}
    order = {"by": "examples", "group": 4, "neighbors": 20, **tables.pop("order", {})}
    loss = {"kind": "combo", "learn_temperature": True, **tables.pop("loss", {})}
    return make_recipe({"name": "small/twins", "encoder": encoder, "train": train, "order": order, "loss": loss, **tables})
