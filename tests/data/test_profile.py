"""The figures that the choice of a recipe looks at, against counts by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pairtune.data.pairs import PairSet, Task
from pairtune.data.profile import describe_profile, profile


def a_task(pairs: PairSet, kind="ranking", **settings) -> Task:
    return Task("t", kind, pairs, pairs.take([0, 1]), pairs, "MAP", ("MAP",), **settings)


PAIRS = PairSet.of(
    ["q one", "q one", "q one", "q two", "q two", "q three"],
    ["a", "b b", "c", "a", "d", "e e e e"],
    [1, 0, 0, 0, 0, 1],
)


def test_a_small_ranking_is_counted_as_by_hand():
    found = profile(a_task(PAIRS))
    assert (found.kind, found.pairs, found.left, found.right) == ("ranking", 6, 3, 5)
    assert found.pairs_per_left == 2 and found.grades == 2
    assert found.positives == 2 / 6
    assert found.mixed == 1 / 3, "only q one has both kinds"
    assert found.answered == 2 / 3, "q two has no right answer"
    assert found.repeated_right == 2 / 6, "a stands in two pairs"
    assert (found.words, found.words_high) == (2, np.quantile([2] * 6 + [1, 2, 1, 1, 1, 4], 0.95))
    assert (found.dev_pairs, found.dev_queries) == (2, 1)


def test_positive_means_above_the_bound_of_the_task():
    graded = replace(PAIRS, label=np.array([1, 0.6, 0.3, 0.6, 0, 1], np.float32))
    assert profile(a_task(graded)).positives == 4 / 6
    assert profile(a_task(graded, positive_above=0.7)).positives == 2 / 6
    assert profile(a_task(graded)).grades == 4


def test_a_text_is_counted_as_it_is_whatever_its_length():
    long = "x" * 100_000
    found = profile(a_task(PairSet.of(["a", "b", "c"], [long, long + "y", long]), "retrieval"))
    assert found.right == 2 and found.repeated_right == 2 / 3


def test_the_description_says_labels_pairs_and_lengths_in_one_line():
    assert describe_profile(profile(a_task(PAIRS))) == (
        "ranking: 6 pairs, 3 left (2.0 pairs each) and 5 right texts, 33% positive; 2 words (95 %: 3); dev: 1 query"
    )
