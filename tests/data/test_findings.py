"""Oddities in a user's pairs, from texts and labels alone."""

from __future__ import annotations

from pairtune.data.inspection import find_oddities
from pairtune.data.pairs import PairSet, Task


def make_task(train, dev=(), test=()):
    parts = [PairSet.of(*map(list, zip(*rows, strict=True))) if rows else PairSet.of([], [], []) for rows in (train, dev, test)]
    return Task("odd", "regression", *parts, "Spearman", ("Spearman",))


def test_a_pair_repeats_another_whatever_its_case_white_space_or_direction():
    found = find_oddities(make_task([("A  cat", "a dog", 1.0), ("a Dog", "a cat", 1.0), ("a cat", "a bird", 0.5)]))
    assert found.repeated == 1 and found.pairs == 3


def test_labels_of_the_same_pair_contradict_when_they_are_far_apart_and_the_widest_comes_first():
    rows = [("a", "b", 0.0), ("B", "a", 0.4), ("c", "d", 0.0), ("c", "d", 1.0), ("e", "f", 0.50), ("e", "f", 0.55)]
    torn = find_oddities(make_task(rows)).contradictions
    assert [(one.left, one.right) for one in torn] == [("c", "d"), ("a", "b")]
    assert torn[0].grades == (0.0, 1.0)


def test_a_leak_is_a_pair_of_test_in_train_and_shared_texts_are_counted_once():
    task = make_task([("a", "b", 1.0), ("c", "d", 0.0)], [("x", "y", 1.0)], [("B", "a", 1.0), ("c", "z", 0.0), ("c", "w", 0.0)])
    dev, test = find_oddities(task).leaks
    assert (dev.pairs, dev.left, dev.right) == (0, 0.0, 0.0)
    assert (test.pairs, test.left, test.right) == (1, 0.5, 0.0)


def test_texts_with_themselves_and_empty_ones_are_counted():
    found = find_oddities(make_task([("a", "A ", 1.0), ("  ", "b", 0.0)]))
    assert found.identical == 1 and found.empty == 1


def test_few_labels_are_counted_one_by_one_and_many_are_not():
    assert find_oddities(make_task([("a", "b", 0.0), ("c", "d", 1.0), ("e", "f", 1.0)])).grades == {0.0: 1, 1.0: 2}
    many = [(f"a{number}", f"b{number}", number / 20) for number in range(20)]
    found = find_oddities(make_task(many))
    assert found.grades == {} and (found.lowest, round(found.highest, 2)) == (0.0, 0.95)
