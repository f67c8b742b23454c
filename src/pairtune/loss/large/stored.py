"""The sums of the fused loss on a CPU: E = 2^S is computed once, kept, and used by both directions and the gradient."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pairtune.loss.large.layout import Layout

LARGEST = 126  # 2 to this is still a float32
STRIP = 512  # rows at a time: a strip stays in the cache between its product, its exponentials and its sums


class Stored:
    """The sums of one batch. q: (U, n), a: (V, n), float32, with S = qaᵀ in units of log 2, so small that sums of 2^S are finite.

    kept: the strips of E, filled by `sums` and read by `gradients`; None when no gradient is wanted.
    """

    def __init__(self, layout: Layout, q: Tensor, a: Tensor, kept: list[Tensor] | None) -> None:
        self.layout, self.q, self.a, self.keep = layout, q, a, kept is not None
        self.kept = kept or []

    def sums(self) -> tuple[Tensor, Tensor]:
        """log₂ Σ 2^S over each row and each column, without what the layout leaves out. (U,) and (V,)."""
        by_row, by_column = self.q.new_zeros(len(self.q)), self.a.new_zeros(len(self.a))
        for rows, columns in self._strips():
            entries = self._entries(rows, columns)
            by_row[rows] += entries.sum(1)
            by_column[columns] += entries.sum(0)
            if self.keep:
                self.kept.append(entries)
        return by_row.log2(), by_column.log2()

    def gradients(self, rows_at: Tensor, columns_at: Tensor, by_row: Tensor, by_column: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of q·ln 2 and of a/ln 2.

        rows_at, columns_at: what `sums` gave; by_row, by_column: the gradients of those times ln 2.
        """
        alpha, beta = (weigh(given, at) for given, at in ((by_row, rows_at), (by_column, columns_at)))
        by_q, by_a = torch.zeros_like(self.q), torch.zeros_like(self.a)
        for (rows, columns), entries in zip(self._strips(), self.kept, strict=True):
            weights = (alpha[rows, None] + beta[columns]).mul_(entries)  # P
            by_q[rows].addmm_(weights, self.a[columns])
            by_a[columns].addmm_(weights.T, self.q[rows])
        return by_q, by_a

    def _strips(self) -> Iterator[tuple[slice, slice]]:
        for rows, columns in self.layout.regions():
            for start in range(rows.start, rows.stop, STRIP):
                yield slice(start, min(start + STRIP, rows.stop)), columns

    def _entries(self, rows: slice, columns: slice) -> Tensor:
        entries = self.q[rows] @ self.a[columns].T
        if self.layout.row_counts is not None and self.layout.column_counts is not None:
            entries += self.layout.row_counts[rows, None].log2() + self.layout.column_counts[columns].log2()
        entries.exp2_()
        if self.layout.tags is None:
            entries.diagonal(rows.start - columns.start).zero_()
            return entries
        for row_tag in self.layout.tags[0]:
            for column_tag in self.layout.tags[1]:
                entries.masked_fill_(row_tag[rows, None] == column_tag[columns], 0)
        return entries


def weigh(gradient: Tensor, at: Tensor) -> Tensor:
    """α or β: the gradient of the logarithm of a sum, over the sum; 0 for an empty one, of which nothing depends."""
    return gradient * torch.exp2(-at.clamp_min(-LARGEST))
