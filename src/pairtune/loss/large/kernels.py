"""The Triton kernels of the fused loss: a tile of S = qaᵀ is computed, used and forgotten. S is in units of log 2."""

# Arguments of kernels are pointers, descriptors and numbers of the device, for which Python has no types.
# ruff: noqa: ANN001, ANN201
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
from __future__ import annotations

import triton
import triton.language as tl

SIZES = ["rows", "columns", "diagonal", "row_stride", "column_stride"]
VECTORS = ["row_tags", "column_tags", "row_bias", "column_bias"]
SUMS = ["row_sums", "column_sums", "row_tops", "column_tops"]
WEIGHTS = ["by_row", "by_column", "row_at", "column_at"]


@triton.jit
def place_tile(tile, rows, columns, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """The first row and column of a tile. GROUP row blocks go through the columns together, so that both stay in the cache."""
    high, wide = tl.cdiv(rows, BM), tl.cdiv(columns, BN)
    first = tile // (GROUP * wide) * GROUP
    size = tl.minimum(high - first, GROUP)
    return (first + tile % (GROUP * wide) % size) * BM, tile % (GROUP * wide) // size * BN


@triton.jit
def score_tile(
    q, a, row_tags, column_tags, row_bias, column_bias, row, column, rows, columns, diagonal, row_stride, column_stride,
    WIDTH: tl.constexpr, ROW_TAGS: tl.constexpr, COLUMN_TAGS: tl.constexpr, BIAS: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """S of one tile, plus biases, and −∞ where an entry stays out: beyond the edge, with a common tag, or on the diagonal."""
    scores = tl.zeros((BM, BN), tl.float32)
    for k in range(0, WIDTH, BK):
        scores = tl.dot(q.load([row, k]), a.load([column, k]).T, scores, input_precision=PRECISION)
    y, x = row + tl.arange(0, BM), column + tl.arange(0, BN)
    if BIAS:
        scores += tl.load(row_bias + y, y < rows, 0.0)[:, None]
        scores += tl.load(column_bias + x, x < columns, 0.0)[None, :]
    if ROW_TAGS > 0:
        inside = (y < rows)[:, None] & (x < columns)[None, :]
        for i in tl.static_range(ROW_TAGS):
            for j in tl.static_range(COLUMN_TAGS):
                mine = tl.load(row_tags + i * row_stride + y, y < rows, -1)
                inside &= mine[:, None] != tl.load(column_tags + j * column_stride + x, x < columns, -1)[None, :]
        scores = tl.where(inside, scores, float("-inf"))
    else:  # most tiles lie inside and off the diagonal: a branch spares them the comparisons
        crosses = (row + diagonal < column + BN) & (column < row + diagonal + BM)
        if crosses | (row + BM > rows) | (column + BN > columns):
            inside = (y < rows)[:, None] & (x < columns)[None, :] & ((y + diagonal)[:, None] != x[None, :])
            scores = tl.where(inside, scores, float("-inf"))
    return scores


@triton.jit
def store_tile(target, found, row, column, HALVES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Store a tile through a descriptor; in HALVES it takes half the space, which leaves room for one more stage."""
    if HALVES:
        left, right = tl.split(tl.permute(tl.reshape(found, (BM, 2, BN // 2)), (0, 2, 1)))
        target.store([row, column], left)
        target.store([row, column + BN // 2], right)
    else:
        target.store([row, column], found)


# what a number is divisible by would only multiply the compilations
@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=VECTORS + SUMS)
def sum_tiles(
    q, a, row_tags, column_tags, row_bias, column_bias, row_sums, column_sums, row_tops, column_tops, kept,
    rows, columns, diagonal, row_stride, column_stride,
    WIDTH: tl.constexpr, ROW_TAGS: tl.constexpr, COLUMN_TAGS: tl.constexpr, BIAS: tl.constexpr, PRECISION: tl.constexpr,
    MAXIMUM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    KEEP: tl.constexpr = False, HALVES: tl.constexpr = False,
):  # fmt: skip
    """Σ 2^(S − top) of every tile's rows and columns, stored apart for each tile: whoever adds them needs no atomics.

    top is 0, or with MAXIMUM the largest of the tile's row or column, stored beside. row_sums: (tiles across, rows),
    column_sums: (tiles down, columns). With KEEP, 2^S itself goes to kept, (rows, columns).
    """
    tiles = tl.cdiv(rows, BM) * tl.cdiv(columns, BN)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        row, column = place_tile(tile, rows, columns, BM, BN, GROUP)
        scores = score_tile(
            q, a, row_tags, column_tags, row_bias, column_bias, row, column, rows, columns, diagonal, row_stride, column_stride,
            WIDTH, ROW_TAGS, COLUMN_TAGS, BIAS, PRECISION, BM, BN, BK,
        )  # fmt: skip
        y, x = row + tl.arange(0, BM), column + tl.arange(0, BN)
        in_rows, in_columns = column // BN * rows + y, row // BM * columns + x
        if MAXIMUM:
            top = tl.max(scores, 1)
            base = tl.where(top == float("-inf"), 0.0, top)
            tl.store(row_tops + in_rows, top, y < rows)
            tl.store(row_sums + in_rows, tl.sum(tl.exp2(scores - base[:, None]), 1), y < rows)
            top = tl.max(scores, 0)
            base = tl.where(top == float("-inf"), 0.0, top)
            tl.store(column_tops + in_columns, top, x < columns)
            tl.store(column_sums + in_columns, tl.sum(tl.exp2(scores - base[None, :]), 0), x < columns)
        else:
            entries = tl.exp2(scores)
            tl.store(row_sums + in_rows, tl.sum(entries, 1), y < rows)
            tl.store(column_sums + in_columns, tl.sum(entries, 0), x < columns)
            if KEEP:
                store_tile(kept, entries.to(kept.dtype), row, column, HALVES, BM, BN)


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=VECTORS + WEIGHTS)
def weigh_tiles(
    q, a, row_tags, column_tags, row_bias, column_bias, by_row, by_column, row_at, column_at, weights,
    rows, columns, diagonal, row_stride, column_stride,
    WIDTH: tl.constexpr, ROW_TAGS: tl.constexpr, COLUMN_TAGS: tl.constexpr, BIAS: tl.constexpr, PRECISION: tl.constexpr,
    MAXIMUM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    """P, the gradient of S: 2^S (αᵢ + βⱼ), or with MAXIMUM gᵢ 2^(S − Lᵢ) + hⱼ 2^(S − Lⱼ). weights: (rows, columns).

    by_row, by_column: α and β, or g and h; row_at, column_at: Lᵢ and Lⱼ.
    """
    tiles = tl.cdiv(rows, BM) * tl.cdiv(columns, BN)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        row, column = place_tile(tile, rows, columns, BM, BN, GROUP)
        scores = score_tile(
            q, a, row_tags, column_tags, row_bias, column_bias, row, column, rows, columns, diagonal, row_stride, column_stride,
            WIDTH, ROW_TAGS, COLUMN_TAGS, BIAS, PRECISION, BM, BN, BK,
        )  # fmt: skip
        y, x = row + tl.arange(0, BM), column + tl.arange(0, BN)
        one = tl.load(by_row + y, y < rows, 0.0)[:, None]
        other = tl.load(by_column + x, x < columns, 0.0)[None, :]
        if MAXIMUM:
            found = one * tl.exp2(scores - tl.load(row_at + y, y < rows, 0.0)[:, None])
            found += other * tl.exp2(scores - tl.load(column_at + x, x < columns, 0.0)[None, :])
        else:
            found = tl.exp2(scores) * (one + other)
        store_tile(weights, found.to(weights.dtype), row, column, HALVES, BM, BN)


@triton.jit
def scale_chosen(
    vectors, chosen, factor, found, width, vector_stride, stride,
    CHOSEN: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """found[i] = factor · vectors[chosen[i]], divided by its length with UNIT, and zeros beyond the width. A row per program."""
    row, x = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    source = tl.load(chosen + row) if CHOSEN else row
    vector = tl.load(vectors + source * vector_stride + x, x < width, 0.0).to(tl.float32)
    if UNIT:
        vector /= divisor_of(vector)
    tl.store(found + row * stride + x, vector * tl.load(factor), x < stride)


@triton.jit
def pull_rows(
    vectors, chosen, factor, given, own, others, starts, partners, found, edges, width, vector_stride, stride,
    CHOSEN: tl.constexpr, UNIT: tl.constexpr, LISTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `scale_chosen`: of vectors[chosen[i]], when found[i] has given[i] and the share of its edges.

    That is own[i] · others[i] for i < edges; with LISTED Σ own[e] · others[partners[e]] over starts[i] ≤ e < starts[i + 1].
    """
    row, x = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    source = tl.load(chosen + row) if CHOSEN else row
    gradient = tl.load(given + row * stride + x, x < width, 0.0)
    if LISTED:
        for edge in range(tl.load(starts + row), tl.load(starts + row + 1)):
            other = tl.load(others + tl.load(partners + edge) * stride + x, x < width, 0.0)
            gradient += tl.load(own + edge) * other.to(tl.float32)
    elif row < edges:
        gradient += tl.load(own + row) * tl.load(others + row * stride + x, x < width, 0.0).to(tl.float32)
    gradient *= tl.load(factor)
    if UNIT:
        vector = tl.load(vectors + source * vector_stride + x, x < width, 0.0).to(tl.float32)
        divisor = divisor_of(vector)
        vector /= divisor
        along = tl.sum(vector * gradient) * tl.sum(vector * vector)  # of a row of zeros: 0
        gradient = (gradient - along * vector) / divisor
    tl.store(found + source * vector_stride + x, gradient, x < width)


@triton.jit
def divisor_of(vector):
    """The length of a vector, or 1 for zeros, as in `normalize`."""
    length = tl.sqrt(tl.sum(vector * vector))
    return tl.where(length > 1.1754943508222875e-38, length, 1.0)


@triton.jit
def dot_rows(one, other, rows, columns, found, stride, INDEXED: tl.constexpr, BLOCK: tl.constexpr):
    """found[e] = one[rows[e]] · other[columns[e]], in float32."""
    edge, x = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    row = tl.load(rows + edge) if INDEXED else edge
    column = tl.load(columns + edge) if INDEXED else edge
    left = tl.load(one + row * stride + x, x < stride, 0.0).to(tl.float32)
    tl.store(found + edge, tl.sum(left * tl.load(other + column * stride + x, x < stride, 0.0).to(tl.float32)))
