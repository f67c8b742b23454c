"""The Triton kernels around the products of the dense loss: everything that is not a product, in as few launches as possible."""

# Arguments of kernels are pointers and numbers of the device, for which Python has no types.
# ruff: noqa: ANN001, ANN201
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
from __future__ import annotations

import triton
import triton.language as tl

from pairtune.loss.large.kernels import divisor_of

LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def scale_pairs(
    left, right, temperature, q, a, own, width, left_stride, right_stride, stride,
    UNIT: tl.constexpr, LEARNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """q = left/(τ·ln 2), a = right, each row divided by its length with UNIT; own = q·a of each pair. A pair per program.

    LEARNED: τ is in the memory of the device. q, a: (m, stride), with zeros beyond the width.
    """
    row, x = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    one = tl.load(left + row * left_stride + x, x < width, 0.0).to(tl.float32)
    other = tl.load(right + row * right_stride + x, x < width, 0.0).to(tl.float32)
    if UNIT:
        one /= divisor_of(one)
        other /= divisor_of(other)
    tau = tl.load(temperature) if LEARNED else temperature
    one = (one / (tau * LN2)).to(q.dtype.element_ty)
    other = other.to(a.dtype.element_ty)
    tl.store(q + row * stride + x, one, x < stride)
    tl.store(a + row * stride + x, other, x < stride)
    tl.store(own + row, tl.sum(one.to(tl.float32) * other.to(tl.float32)))


@triton.jit
def enter_tiles(scores, entries, row_sums, column_sums, pairs, stride, KEEP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """E = 2^S of one tile, 0 on the diagonal, and the sums of its rows and columns, stored apart for each tile.

    scores: (m, m). entries: (m, stride), written with KEEP. row_sums: (tiles across, m), column_sums: (tiles down, m).
    """
    y, x = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (y < pairs)[:, None] & (x < pairs)[None, :]
    rows = y.to(tl.int64)[:, None]
    found = tl.exp2(tl.load(scores + rows * pairs + x[None, :], inside, float("-inf")))
    found = tl.where(y[:, None] == x[None, :], 0.0, found)
    tl.store(row_sums + tl.program_id(1) * pairs + y, tl.sum(found, 1), y < pairs)
    tl.store(column_sums + tl.program_id(0) * pairs + x, tl.sum(found, 0), x < pairs)
    if KEEP:
        tl.store(entries + rows * stride + x[None, :], found.to(entries.dtype.element_ty), inside)


@triton.jit
def share_of(total, score):
    """r/(r + 2^s) and log(r + 2^s) − s·ln 2, both exact where r is almost nothing beside 2^s, or the other way round."""
    above = tl.where(total > 0, tl.log2(tl.where(total > 0, total, 1.0)), -1e30) - score
    small = tl.exp2(-tl.abs(above))
    share = tl.where(above > 0, 1.0, small) / (1.0 + small)
    rest = tl.where(small < 1e-3, small - small * small / 2, tl.log(1.0 + small))
    return share, tl.maximum(above, 0.0) * LN2 + rest


@triton.jit
def add_parts(parts, i, pairs, count, BM: tl.constexpr, BP: tl.constexpr):
    """The sum of what every tile found for some rows. parts: (count, m); i: (BM,)."""
    total = tl.zeros((BM,), tl.float32)
    for start in range(0, count, BP):
        part = start + tl.arange(0, BP)
        inside = (part < count)[:, None] & (i < pairs)[None, :]
        total += tl.sum(tl.load(parts + part[:, None].to(tl.int64) * pairs + i[None, :], inside, 0.0), 0)
    return total


@triton.jit
def finish_sums(
    row_sums, column_sums, own, positive, alpha, beta, weight, costs, pairs, across, down, scale,
    LABELLED: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, BM: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """From the sums of tiles: the loss of some pairs, and its gradients by E, which is αᵢ + βⱼ, and by their own scores.

    positive: (m,), read with LABELLED. LEFT, RIGHT: the directions. weight: (m,). costs: one number per program, times scale.
    """
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = i < pairs
    score = tl.load(own + i, inside, 0.0)
    counts = inside.to(tl.float32)
    if LABELLED:
        counts = tl.load(positive + i, inside, 0).to(tl.float32)
    cost, pulled = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    one, other = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    if LEFT:
        total = add_parts(row_sums, i, pairs, across, BM, BP)
        share, found = share_of(total, score)
        one = counts / (total + tl.exp2(score))
        cost += found
        pulled += share
    if RIGHT:
        total = add_parts(column_sums, i, pairs, down, BM, BP)
        share, found = share_of(total, score)
        other = counts / (total + tl.exp2(score))
        cost += found
        pulled += share
    tl.store(alpha + i, one, inside)
    tl.store(beta + i, other, inside)
    tl.store(weight + i, -counts * pulled, inside)
    tl.store(costs + tl.program_id(0), tl.sum(cost * counts) * scale)


@triton.jit
def weigh_entries(entries, alpha, beta, pairs, stride, BM: tl.constexpr, BN: tl.constexpr):
    """P = E (αᵢ + βⱼ), in the place of E."""
    y, x = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (y < pairs)[:, None] & (x < pairs)[None, :]
    at = entries + y.to(tl.int64)[:, None] * stride + x[None, :]
    weight = tl.load(alpha + y, y < pairs, 0.0)[:, None] + tl.load(beta + x, x < pairs, 0.0)[None, :]
    tl.store(at, (tl.load(at, inside, 0.0).to(tl.float32) * weight).to(entries.dtype.element_ty), inside)


@triton.jit
def pull_pairs(
    left, right, temperature, q, a, by_q, by_a, weight, upstream, by_left, by_right,
    width, left_stride, right_stride, stride, scale,
    UNIT: tl.constexpr, LEARNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of left and right, from those of q and a by E and the weight of each pair's own score. A pair per program."""
    row, x = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    at = row * stride + x
    mine, factor = tl.load(weight + row), tl.load(upstream).to(tl.float32) * scale
    tau = tl.load(temperature) if LEARNED else temperature
    gradient = tl.load(by_q + at, x < width, 0.0) + mine * tl.load(a + at, x < width, 0.0).to(tl.float32)
    gradient *= factor / tau
    if UNIT:
        gradient = across_length(tl.load(left + row * left_stride + x, x < width, 0.0).to(tl.float32), gradient)
    tl.store(by_left + row * width + x, gradient, x < width)
    gradient = tl.load(by_a + at, x < width, 0.0) + mine * tl.load(q + at, x < width, 0.0).to(tl.float32)
    gradient *= factor * LN2
    if UNIT:
        gradient = across_length(tl.load(right + row * right_stride + x, x < width, 0.0).to(tl.float32), gradient)
    tl.store(by_right + row * width + x, gradient, x < width)


@triton.jit
def across_length(vector, gradient):
    """The gradient of a vector, from that of the vector divided by its length."""
    divisor = divisor_of(vector)
    vector /= divisor
    along = tl.sum(vector * gradient) * tl.sum(vector * vector)  # of a row of zeros: 0
    return (gradient - along * vector) / divisor
