from __future__ import annotations

import numpy as np
import pytest

from pairtune.errors import UserError
from pairtune.ordering import Order
from pairtune.ordering.hardness import inspect_batches
from pairtune.ordering.order import count_batches, count_cut_groups, cut_batches, describe_groups


def order_of(*groups):
    return Order(np.array([row for group in groups for row in group]), np.cumsum([0, *map(len, groups)])[:-1])


@pytest.mark.parametrize(
    ("pairs", "size", "drop_last"), [(10, 4, False), (10, 4, True), (8, 4, True), (3, 4, True), (0, 4, False)]
)
def test_batches_are_consecutive_slices(pairs, size, drop_last):
    rows = np.random.default_rng(0).permutation(pairs)
    batches = [batch.tolist() for batch in cut_batches(Order(rows, np.arange(pairs)), size, drop_last)]
    assert len(batches) == count_batches(pairs, size, drop_last)
    kept = pairs // size * size if drop_last else pairs
    assert [row for batch in batches for row in batch] == rows[:kept].tolist()
    assert all(len(batch) == size for batch in batches[:-1])


def test_groups_that_a_batch_ends_in_are_counted():
    order = order_of([0], [1, 2, 3], [4, 5, 6, 7], [8, 9])
    assert count_cut_groups(order, 4) == 0
    assert count_cut_groups(order, 3) == 3
    assert count_cut_groups(order, 100) == 0
    assert count_cut_groups(order, 1) == 3  # all but the one that stands alone
    assert describe_groups(order, 3) == "10 pairs in 4 groups (largest 4, 1 pairs alone); batches of 3 cut 3 of them"


def test_inspection_agrees_with_loops_over_the_batches():
    rng = np.random.default_rng(1)
    count, size, margin = 37, 6, 0.1
    left, right = rng.normal(size=(2, count, 5))
    left_text, right_text = rng.integers(0, 20, size=(2, count))
    positive = rng.random(count) < 0.6
    rows = rng.permutation(count)
    order = Order(rows, np.array([0, 3, 4, 20]))
    cosine = [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in right] for a in left]
    negatives, tops, false, repeated = [], [], 0, 0
    for start in range(0, count, size):
        batch = rows[start : start + size].tolist()
        for place, i in enumerate(batch):
            repeated += any(left_text[i] == left_text[j] or right_text[i] == right_text[j] for j in batch[:place])
            others = [j for j in batch if j != i]
            if positive[i] and others:
                negatives += [cosine[i][j] for j in others]
                tops.append(max(cosine[i][j] for j in others))
                false += sum(
                    cosine[i][j] > cosine[i][i] + margin and left_text[i] != left_text[j] and right_text[i] != right_text[j]
                    for j in others
                )
    found = inspect_batches(order, size, left, right, left_text, right_text, positive, margin=margin, examples=2)
    assert found.negative_similarity == pytest.approx(np.mean(negatives), abs=1e-6)
    assert found.top_similarity == pytest.approx(np.mean(tops), abs=1e-6)
    assert found.positive_similarity == pytest.approx(np.mean([cosine[i][i] for i in range(count) if positive[i]]), abs=1e-6)
    assert found.likely_false_negatives == pytest.approx(false / len(negatives))
    assert found.repeated_texts == pytest.approx(repeated / 7)
    assert (found.pairs, found.batches, found.groups, found.largest_group, found.alone, found.groups_cut) == (37, 7, 4, 17, 1, 2)


def test_the_hardest_groups_come_first():
    vectors = np.eye(7)
    vectors[1] = vectors[0] + 0.1 * vectors[1]
    order = order_of([2, 3, 6], [0, 1], [4], [5])
    vectors[6] = vectors[2]
    found = inspect_batches(order, 3, vectors, vectors, np.arange(7), np.arange(7), examples=5)
    assert [group.rows for group in found.hardest] == [(0, 1), (2, 3, 6)]
    assert found.hardest[0].similarity == pytest.approx(1 / np.sqrt(1.01))
    assert found.hardest[1].similarity == pytest.approx(1 / 3)  # one of its three pairs of rows is alike


def test_nothing_to_inspect_is_no_division_by_zero():
    nobody = inspect_batches(Order(np.arange(0), np.arange(0)), 4, np.ones((0, 3)), np.ones((0, 3)), np.arange(0), np.arange(0))
    assert (nobody.batches, nobody.negative_similarity, nobody.hardest) == (0, 0.0, ())
    with pytest.raises(UserError, match="an order of 1 pairs, but 2 left and 2 right vectors"):
        inspect_batches(order_of([0]), 4, np.ones((2, 3)), np.ones((2, 3)), np.arange(2), np.arange(2))
