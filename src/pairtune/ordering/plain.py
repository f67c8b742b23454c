"""The two orders that look at nothing: as the data came, and at random."""

from __future__ import annotations

import numpy as np

from pairtune.ordering.hashing import rank_rows
from pairtune.ordering.order import Order, Side
from pairtune.recipe import OrderSettings


def order_original(side: Side, settings: OrderSettings, seed: int) -> Order:
    """The pairs as they came, each a group of its own."""
    return Order(np.arange(len(side)), np.arange(len(side)))


def order_uniformly(side: Side, settings: OrderSettings, seed: int) -> Order:
    """The pairs by their random numbers, each a group of its own."""
    return Order(shuffle_rows(len(side), seed), np.arange(len(side)))


def shuffle_rows(count: int, seed: int) -> np.ndarray:
    """(count,) int64: a random permutation, the same on every machine and in every engine."""
    return np.argsort(rank_rows(count, seed), kind="stable")
