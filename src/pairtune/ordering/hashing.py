"""All randomness of the orderings: one hash that numpy, DuckDB and Spark compute alike."""

from __future__ import annotations

import hashlib

import numpy as np

from pairtune.ordering.md5 import hash_numbered


def hash_text(text: str) -> int:
    """60 bits of MD5: the first 15 hexadecimal digits, which fit the BIGINT of every engine.

    >>> hash_text("7|0")
    317837971778625153
    """
    return int(hashlib.md5(text.encode("utf-8"), usedforsecurity=False).hexdigest()[:15], 16)


def rank_rows(count: int, seed: int) -> np.ndarray:
    """(count,) int64: the random number of each row, its only one."""
    return hash_numbered(f"{seed}|".encode(), count)  # hash_text(f"{seed}|{row}") of each


def epoch_seed(seed: int, epoch: int) -> int:
    """The seed of an epoch: the first has the seed itself, so that it is the order a file is shuffled to with that seed.

    Later ones are hashed rather than counted up: otherwise epoch 1 of seed 1 would be epoch 0 of seed 2.
    """
    return seed if epoch == 0 else hash_text(f"{seed}|epoch|{epoch}")
