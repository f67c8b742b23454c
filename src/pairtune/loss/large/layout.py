"""What the fused loss sums over: rows, columns, how often each counts, which entries stay out; and these sums on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

MOST_TAGS = 8  # each is one more comparison of every entry


@dataclass(frozen=True)
class Edges:
    """The k entries of S that are positive pairs: entry e stands at [row[e], column[e]], and `pairs[e]` pairs share it.

    None for row and column: entry e stands at [e, e]. None for pairs: one each.
    """

    count: int
    row: Tensor | None = None
    column: Tensor | None = None
    pairs: Tensor | None = None


@dataclass(frozen=True)
class Layout:
    """The sums of a batch of m pairs, over a matrix of U rows and V columns.

    rows, columns: (U,) and (V,), the pair whose left or right vector each one is; None when row i is that of pair i.
    row_terms, column_terms: only the first that many have sums of their own, so the rest × the rest is never computed.
    row_counts, column_counts: (U,) and (V,), how many pairs each one stands for; None for one each.
    tags: (D, U) and (D', V). Entries with a tag in common stay out of the sums; None: those on the diagonal do.
    together: the edges of a row or column join its sum with their counts; otherwise an edge joins only its own term.
    """

    pairs: int
    rows: Tensor | None
    columns: Tensor | None
    row_terms: int
    column_terms: int
    edges: Edges
    row_counts: Tensor | None = None
    column_counts: Tensor | None = None
    tags: tuple[Tensor, Tensor] | None = None
    together: bool = False

    def regions(self, step: int = 1) -> list[tuple[slice, slice]]:
        """The rectangles with every entry that a sum needs: all of the rows with terms, then what columns with terms lack.

        step: they end at multiples of this, or at the end.
        """
        height = self.pairs if self.rows is None else len(self.rows)
        width = self.pairs if self.columns is None else len(self.columns)
        top, side = (
            min(-(-terms // step) * step, size) for terms, size in ((self.row_terms, height), (self.column_terms, width))
        )
        found = [(slice(0, top), slice(0, width)), (slice(top, height), slice(0, side))]
        return [(rows, columns) for rows, columns in found if rows.start < rows.stop and columns.stop]


def make_layout(
    positive: Tensor, ids: tuple[Tensor, Tensor] | None, directions: str, *, everything: bool, mask: bool, merge: bool
) -> Layout | None:
    """The layout of m pairs; None where there is none. everything: all are positive. ids, mask, merge: see `layout_of_texts`.

    Sizes are read back from a GPU. A CUDA graph that is being captured forbids that: there negatives and copies are
    computed with like all else, and masking has no layout.
    """
    capturing = positive.is_cuda and torch.cuda.is_current_stream_capturing()
    if ids is not None and (mask or merge) and not capturing:
        layout = layout_of_texts(positive, *ids, directions, mask=mask, merge=merge)
        if layout or mask:
            return layout
    if capturing or everything:
        edges = Edges(len(positive), pairs=None if everything else positive)
        return None if mask else Layout(len(positive), None, None, *_terms(directions, len(positive), len(positive)), edges)
    return layout_of_pairs(positive, directions)


def layout_of_pairs(positive: Tensor, directions: str) -> Layout:
    """Each pair is a row and a column, those of positives first."""
    count = int(positive.sum())
    order = None if count == len(positive) else torch.argsort(positive.byte(), descending=True, stable=True)
    return Layout(len(positive), order, order, *_terms(directions, count, count), Edges(count))


def layout_of_texts(
    positive: Tensor, left_ids: Tensor, right_ids: Tensor, directions: str, *, mask: bool, merge: bool
) -> Layout | None:
    """As `layout_of_pairs`, knowing which texts are equal; None where no text has few partners (see `_tags`).

    mask: known positives stay out of the sums, as `hide_known_positives` says. merge: a text is one row or column with
    the number of its copies, which needs their vectors to be equal.
    """
    lefts, left = left_ids.unique(return_inverse=True)
    rights, right = right_ids.unique(return_inverse=True)
    both, copies = (left * len(rights) + right)[positive].unique(return_counts=True)
    known = (both // len(rights), both % len(rights))  # the distinct positive pairs, as texts
    if merge:
        rows, row, row_terms = _merge(left, len(lefts), known[0])
        columns, column, column_terms = _merge(right, len(rights), known[1])
        edges = Edges(len(both), row[known[0]], column[known[1]], copies)
        counts = left.bincount()[left[rows]], right.bincount()[right[columns]]
        layout = Layout(
            len(positive), rows, columns, *_terms(directions, row_terms, column_terms), edges, *counts, together=not mask
        )
    else:
        layout = layout_of_pairs(positive, directions)
    texts = left if layout.rows is None else left[layout.rows], right if layout.columns is None else right[layout.columns]
    tags = _tags(known, texts, (len(lefts), len(rights)))
    return None if tags is None else replace(layout, tags=tags)


def _terms(directions: str, left: int, right: int) -> tuple[int, int]:
    return {"both": (left, right), "left": (left, 0), "right": (0, right)}[directions]


def _merge(text: Tensor, count: int, known: Tensor) -> tuple[Tensor, Tensor, int]:
    """One row per text, those of positives first: the pair each row is taken from, the row of each text, how many have terms."""
    first = torch.full((count,), len(text), device=text.device)
    first.scatter_reduce_(0, text, torch.arange(len(text), device=text.device), "amin")
    has_term = torch.zeros(count, dtype=torch.bool, device=text.device).index_fill_(0, known, True)
    order = torch.argsort(has_term.byte(), descending=True, stable=True)
    return first[order], torch.argsort(order), int(has_term.sum())


def _tags(known: tuple[Tensor, Tensor], texts: tuple[Tensor, Tensor], counts: tuple[int, int]) -> tuple[Tensor, Tensor] | None:
    """Tags by which exactly the known pairs of texts meet. texts: (U,) and (V,), the text of each row and column.

    A left text's tag is itself and a right text's are its left texts, or the other way round, whichever takes fewer.
    Where both a left and a right text have more than MOST_TAGS partners there is no such table: None.
    """
    sides = [torch.sort(side, stable=True) for side in known]
    places = [torch.arange(len(owner), device=owner.device) - torch.searchsorted(owner, owner) for owner, _ in sides]  # 0, 1, …
    depths = torch.stack([place.max() + 1 for place in places]).tolist() if len(known[0]) else [1, 1]
    if min(depths) > MOST_TAGS:
        return None
    many = int(depths[1] <= depths[0])  # the side with a list for each text
    (owner, order), place = sides[many], places[many]
    shape = (1 << (depths[many] - 1).bit_length(), counts[many])  # a power of two: kernels are compiled for each
    partners = torch.full(shape, -1, dtype=torch.int32, device=owner.device)
    partners[place, owner] = known[1 - many][order].int()
    single, listed = texts[1 - many][None].int(), partners.index_select(1, texts[many])
    return (single, listed) if many else (listed, single)


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
