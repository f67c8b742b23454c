"""All randomness of the orderings: one hash that numpy, DuckDB and Spark compute alike; and the orders that need nothing else."""

from __future__ import annotations

import hashlib

import numpy as np

from pairtune.ordering.order import Order, Side
from pairtune.runs.recipe import OrderSettings


def hash_text(text: str) -> int:
    """60 bits of MD5: the first 15 hexadecimal digits, which fit the BIGINT of every engine.

    >>> hash_text("7|0")
    317837971778625153
    """
    return int(hashlib.md5(text.encode("utf-8"), usedforsecurity=False).hexdigest()[:15], 16)


def rank_rows(count: int, seed: int) -> np.ndarray:
    """(count,) int64: the random number of each row, its only one."""
    digests = bytearray()
    for row in range(count):
        digests += hashlib.md5(b"%d|%d" % (seed, row), usedforsecurity=False).digest()  # hash_text(f"{seed}|{row}") of each
    return (np.frombuffer(digests, ">u8")[::2] >> 4).astype(np.int64)  # the first 60 bits of 128


def epoch_seed(seed: int, epoch: int) -> int:
    """The seed of an epoch: the first has the seed itself, so that it is the order a file is shuffled to with that seed.

    Later ones are hashed rather than counted up: otherwise epoch 1 of seed 1 would be epoch 0 of seed 2.
    """
    return seed if epoch == 0 else hash_text(f"{seed}|epoch|{epoch}")


def order_original(side: Side, settings: OrderSettings, seed: int) -> Order:
    """The pairs as they came, each a group of its own."""
    return Order(np.arange(len(side)), np.arange(len(side)))


def order_uniformly(side: Side, settings: OrderSettings, seed: int) -> Order:
    """The pairs by their random numbers, each a group of its own."""
    return Order(shuffle_rows(len(side), seed), np.arange(len(side)))


def shuffle_rows(count: int, seed: int) -> np.ndarray:
    """(count,) int64: a random permutation, the same on every machine and in every engine."""
    return np.argsort(rank_rows(count, seed), kind="stable")


def order_by_queries(side: Side, settings: OrderSettings, seed: int) -> Order:
    """All pairs of one text together, such as the answers to a question; the groups, and the pairs in each, in random order."""
    rank = rank_rows(len(side), seed)
    first = np.full(len(side.texts), np.iinfo(np.int64).max)
    np.minimum.at(first, side.text, rank)  # a group stands where its first pair would
    rows = np.lexsort((rank, side.text, first[side.text]))
    return Order(rows, np.flatnonzero(np.diff(side.text[rows], prepend=-1)))
