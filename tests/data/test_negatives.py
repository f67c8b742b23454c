"""The paper's 100 + 2^k negatives and triplets, against loops that follow its text."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairtune.data.negatives import logarithmic_negatives, logarithmic_positions, triplets
from pairtune.data.pairs import PairSet
from pairtune.errors import UserError


@pytest.fixture
def corpus():
    rng = np.random.default_rng(3)
    texts = [f"claim {i}" for i in range(400)]
    return texts, rng.normal(size=(400, 8)) * rng.uniform(0.1, 9, size=(400, 1))


def draw(corpus, pairs, seed=0, **options):
    texts, vectors = corpus
    lefts = np.random.default_rng(5).normal(size=(len(pairs), 8))
    lefts = np.stack([lefts[pairs.left.index(left)] for left in pairs.left])  # the same text, the same vector
    return lefts, logarithmic_negatives(pairs, lefts, texts, vectors, np.random.default_rng(seed), **options)


PAIRS = PairSet.of(
    ["tweet a", "tweet b", "tweet a", "tweet c"], ["claim 7", "claim 8", "claim 9", "claim 10"], [1.0, 1.0, 1.0, 0.2]
)


def test_negatives_stand_where_the_paper_says(corpus):
    lefts, both = draw(corpus, PAIRS)
    texts, vectors = corpus
    for row, anchor, own in ((0, "tweet a", {"claim 7", "claim 9"}), (1, "tweet b", {"claim 8"})):
        cosine = {}
        for text, vector in zip(texts, vectors, strict=True):
            if text not in own:
                cosine[text] = float(lefts[row] @ vector) / (np.linalg.norm(lefts[row]) * np.linalg.norm(vector))
        ranked = sorted(cosine, key=lambda text: -cosine[text])
        expected, power = set(), 0
        while 100 + 2**power <= len(ranked):
            expected.add(ranked[100 + 2**power - 1])
            power += 1
        drawn = {
            right for left, right, label in zip(both.left, both.right, both.label, strict=True) if left == anchor and label == 0
        }
        assert drawn == expected and len(expected) == 9  # 101, 102, 104, …, 356


def test_positives_are_repeated_until_the_classes_balance(corpus):
    _, both = draw(corpus, PAIRS)
    positive = Counter((left, right) for left, right, y in zip(both.left, both.right, both.label, strict=True) if y == 1)
    assert sum(positive.values()) == (both.label == 0).sum() == 18
    assert set(positive) == {("tweet a", "claim 7"), ("tweet a", "claim 9"), ("tweet b", "claim 8")}
    assert max(positive.values()) - min(positive.values()) <= 1


def test_labelled_negatives_are_no_anchors(corpus):
    _, both = draw(corpus, PAIRS)
    assert "tweet c" not in both.left


def test_the_anchor_itself_is_no_negative(corpus):
    texts, vectors = corpus
    pairs = PairSet.of(["claim 1"], ["claim 2"])
    both = logarithmic_negatives(pairs, vectors[1:2], texts, vectors, np.random.default_rng(0), skip=0)
    assert "claim 1" not in both.right


def test_the_same_seed_gives_the_same_pairs(corpus):
    first, second, third = (draw(corpus, PAIRS, seed)[1] for seed in (1, 1, 2))
    assert (first.left, first.right) == (second.left, second.right)
    assert first.left != third.left and Counter(first.left) == Counter(third.left)


@given(st.integers(0, 5000), st.integers(0, 300))
def test_positions_are_all_powers_of_two_past_the_skipped_ones(count, skip):
    assert logarithmic_positions(count, skip) == [p for p in range(skip + 1, count + 1) if (p - skip).bit_count() == 1]


@pytest.mark.parametrize(("size", "enough"), [(101, False), (102, True)])
def test_a_corpus_too_small_to_skip_the_nearest_is_refused(corpus, size, enough):
    texts, vectors = corpus
    small = (texts[:size], vectors[:size])
    pairs = PairSet.of(["tweet"], ["claim 5"])
    if enough:
        assert len(draw(small, pairs)[1]) == 2
    else:
        with pytest.raises(UserError, match=r"101 different right texts are too few .* the nearest 100 of each left text"):
            draw(small, pairs)


def test_pairs_without_a_positive_are_refused(corpus):
    with pytest.raises(UserError, match=r"no pair is positive"):
        draw(corpus, PairSet.of(["a"], ["b"], [0.0]))


def test_triplets_share_their_anchor_and_use_every_pair():
    pairs = PairSet.of(
        ["a", "a", "a", "a", "b", "b", "c", "d"],
        ["a1", "a2", "x", "a3", "b1", "y", "c1", "z"],
        [0.9, 0.8, 0.1, 0.7, 1.0, 0.5, 1.0, 0.0],
    )
    found = list(zip(*triplets(pairs, 0.5, np.random.default_rng(0)), strict=True))
    assert sorted(found) == [("a", "a1", "x"), ("a", "a2", "x"), ("a", "a3", "x"), ("b", "b1", "y")]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.booleans()), min_size=1, max_size=30))
def test_a_triplet_holds_a_positive_and_a_negative_pair_of_the_data(rows):
    pairs = PairSet.of([left for left, _, _ in rows], [f"{y}{right}" for _, right, y in rows], [float(y) for *_, y in rows])
    sides = {
        anchor: [{right for left, right, y in rows if (left, y) == (anchor, side)} for side in (True, False)] for anchor in "ab"
    }
    expected = sum(max(len(good), len(bad)) for good, bad in sides.values() if good and bad)
    if not expected:
        with pytest.raises(UserError, match=r"no left text has both a positive and a negative pair"):
            triplets(pairs, 0.5, np.random.default_rng(0))
        return
    known = set(zip(pairs.left, pairs.right, strict=True))
    anchors, positives, negatives = triplets(pairs, 0.5, np.random.default_rng(0))
    assert len(anchors) == expected
    assert all(text.startswith("True") for text in positives) and all(text.startswith("False") for text in negatives)
    assert set(zip(anchors, positives, strict=True)) | set(zip(anchors, negatives, strict=True)) <= known


def test_triplets_of_drawn_negatives_number_as_many_as_the_negatives(corpus):
    _, both = draw(corpus, PAIRS)
    anchors, positives, _ = triplets(both, 0.5, np.random.default_rng(0))
    assert Counter(anchors) == {"tweet a": 9, "tweet b": 9} and set(positives) == {"claim 7", "claim 8", "claim 9"}
