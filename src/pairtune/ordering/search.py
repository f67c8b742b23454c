"""A search for neighbours that is opened once and then asked for those of some rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Found = tuple[np.ndarray, np.ndarray]  # (b, count) int32 ids, nearest first, and their float32 similarities


@dataclass(frozen=True, eq=False)
class Search:
    """find: from (b,) int64 rows to what is near them. block: how many rows at a time."""

    find: Callable[[np.ndarray], Found]
    block: int

    def __call__(self, rows: np.ndarray) -> Found:
        """The neighbours of the rows, however many."""
        if len(rows) <= self.block:
            return self.find(rows)
        parts = [self.find(rows[start : start + self.block]) for start in range(0, len(rows), self.block)]
        ids, similarities = zip(*parts, strict=True)
        return np.concatenate(ids), np.concatenate(similarities)
