"""The parts of train and dev that variants are judged by."""

from __future__ import annotations

import numpy as np

from pairtune.data.pairs import PairSet, Task
from pairtune.tune.folds import fold_name, limit, make_folds


def pairs_of(task):
    return [*zip(task.train.left, task.train.right, strict=True), *zip(task.dev.left, task.dev.right, strict=True)]


def make_ranking(questions=60, answers=5):
    query = np.repeat([f"question {number}" for number in range(questions)], answers)
    right = [f"answer {number} to {text}" for number, text in enumerate(query)]
    pairs = PairSet.of(list(query), right, np.tile([1.0, *[0.0] * (answers - 1)], questions))
    train, dev = pairs.take(range(250)), pairs.take(range(250, 300))
    return Task("ranking", "ranking", train, dev, PairSet.of(["secret"], ["secret"]), "MAP", ("MAP",))


def test_no_fold_holds_a_text_of_test(small_task):
    folds = make_folds(small_task)
    hidden = {*small_task.test.left, *small_task.test.right} - {text for pair in pairs_of(small_task) for text in pair}
    assert len(hidden) > 10
    for number in folds.numbers:
        fold = folds(fold_name(number))
        texts = {text for part in (fold.train, fold.dev, fold.test) for column in (part.left, part.right) for text in column}
        assert not texts & hidden


def test_every_pair_is_held_out_once(small_task):
    folds = make_folds(small_task)
    held_out = [pair for number in folds.numbers for pair in zip(*_columns(folds(fold_name(number)).dev), strict=True)]
    assert sorted(held_out) == sorted(pairs_of(small_task))


def _columns(pairs):
    return pairs.left, pairs.right


def test_fewer_folds_of_fewer_pairs_keep_whole_queries():
    task = make_ranking()
    folds = make_folds(task, pairs=102, most=3)
    assert len(folds.numbers) == 3
    for number in folds.numbers:
        fold = folds(fold_name(number))
        assert len(fold.train) == 100 and len(fold.dev) == 30
        assert all(count == 5 for count in np.unique(fold.train.query.astype(str), return_counts=True)[1])


def test_enough_pairs_change_nothing(small_task):
    assert limit(small_task.train, "regression", 0) is limit(small_task.train, "regression", 10_000) is small_task.train


def test_texts_that_are_all_entangled_are_judged_by_seeds_on_the_given_dev():
    left = ["the same question"] * 40
    right = [f"answer {number}" for number in range(40)]
    pairs = PairSet.of(left, right, np.tile([0.0, 1.0], 20))
    dev = PairSet.of(left[:8], [f"late {number}" for number in range(8)], [0.0, 1.0] * 4)
    folds = make_folds(Task("one", "classification", pairs, dev, dev, "F1", ("F1",)))
    assert not folds.tenths and len(folds.numbers) == 5
    assert folds(fold_name(2)).dev.right == dev.right


def test_a_search_in_a_large_corpus_keeps_the_answers_and_some_others():
    texts = [f"text {number}" for number in range(5000)]
    pairs = PairSet.of([f"query {number}" for number in range(900)], texts[:900], corpus=texts)
    small = limit(pairs, "retrieval", 300)
    assert len(small) == 300 and set(small.right) <= set(small.corpus) and 1000 < len(small.corpus) <= 1300
