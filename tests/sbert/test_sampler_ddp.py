"""Two real processes train together on hard batches."""

from __future__ import annotations

import pytest

from ddp_sampler import BATCH, LEFT, PAIRS, SEED, STEPS, order_settings
from pairtune.ordering import Side, epoch_seed, order_pairs


@pytest.fixture(scope="module")
def ranks(two_ranks):
    """What each of two processes saw."""
    return [found["hard batches"] for found in two_ranks]


def share(order, rank):
    """Every other batch of an order."""
    return [order[start : start + BATCH] for start in range(rank * BATCH, PAIRS, 2 * BATCH)]


def test_two_processes_share_each_epochs_order_between_them(ranks):
    orders = ranks[0]["whole"]["orders"]
    assert ranks[1]["whole"]["orders"] == orders
    assert len({tuple(order) for order in orders}) == 3  # a new one each epoch
    for rank in range(2):
        assert ranks[rank]["whole"]["seen"] == [batch for order in orders for batch in share(order, rank)]
    assert ranks[0]["whole"]["weight"] == ranks[1]["whole"]["weight"]


def test_two_processes_resume_to_the_same_orders_and_batches(ranks):
    for rank in ranks:
        assert rank["resumed"]["orders"] == rank["whole"]["orders"][1:]
        assert rank["resumed"]["seen"] == rank["whole"]["seen"][STEPS + 1 :]
        assert rank["resumed"]["weight"] == pytest.approx(rank["whole"]["weight"], rel=1e-9)


def test_two_processes_know_the_epoch_that_they_resume_in(ranks):
    orders = [order_pairs(Side.of(LEFT), order_settings("words"), epoch_seed(SEED, epoch)).rows.tolist() for epoch in (1, 2)]
    for rank in range(2):
        assert ranks[rank]["words"]["seen"] == [batch for order in orders for batch in share(order, rank)][1:]
