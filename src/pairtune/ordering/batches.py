"""Batches: consecutive slices of an order, as in the paper; what that does to the groups is counted and said."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pairtune.ordering.order import Order


def cut_batches(order: Order, size: int, drop_last: bool = False) -> Iterator[np.ndarray]:
    """The rows of each batch, in the order of training: N // size full ones, then a short one unless it is dropped.

    A group that does not fit is cut: keeping it whole would need batches of other sizes, or an order that is no longer
    the curriculum of Algorithm 1. `count_cut_groups` tells how many.
    """
    for start in range(0, len(order), size):
        if start + size <= len(order) or not drop_last:
            yield order.rows[start : start + size]


def count_batches(pairs: int, size: int, drop_last: bool = False) -> int:
    """How many batches `cut_batches` gives.

    >>> count_batches(10, 4), count_batches(10, 4, drop_last=True)
    (3, 2)
    """
    return pairs // size if drop_last else -(-pairs // size)


def count_cut_groups(order: Order, size: int) -> int:
    """The groups whose pairs fall into more than one batch."""
    last = order.groups + order.sizes() - 1
    return int(np.count_nonzero(order.groups // size != last // size))


def describe_order(order: Order, size: int) -> str:
    """Groups and batches of an order, in words.

    >>> describe_order(Order(np.arange(5), np.array([0, 1, 2])), 4)
    '5 pairs in 3 groups (largest 3, 2 pairs alone); batches of 4 cut 1 of them'
    """
    sizes = order.sizes()
    alone = np.count_nonzero(sizes == 1)
    return (
        f"{len(order):,} pairs in {len(sizes):,} groups (largest {sizes.max(initial=0)}, {alone:,} pairs alone); "
        f"batches of {size} cut {count_cut_groups(order, size):,} of them"
    )
