"""Attention with a bias by relative position, among texts of different lengths in one row: MPNet's, which flash kernels lack."""

# Arguments of kernels are pointers and numbers of the device, for which Python has no types.
# ruff: noqa: ANN001, ANN201
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# A text has at most attention.LONGEST_RELATIVE tokens: all of its keys and values stay in registers.
ROWS = 32  # queries at a time
SUMMED_APART = 2**21  # numbers in the bias gradients of parts of a batch, which are added up apart, always in the same order
NUMBERS = ["texts", "longest", "scale", "drop"]


@triton.jit
def attention_rows(
    q, k, bias, seeds, program, row, count, longest, scale, drop,
    ROWS: tl.constexpr, LENGTH: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """The attention of some rows before dropout, and what dropout multiplies it with, both (ROWS, LENGTH)."""
    i, j = row + tl.arange(0, ROWS), tl.arange(0, LENGTH)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    inside = (i < count)[:, None] & (j < count)[None, :]
    place = i[:, None] * longest + j[None, :]
    scores = tl.where((j < count)[None, :], scores + tl.load(bias + place, inside, 0.0), float("-inf"))
    scores = tl.exp(scores - tl.max(scores, 1)[:, None])
    weights = scores / tl.sum(scores, 1)[:, None]
    kept = tl.full((ROWS, LENGTH), 1.0, tl.float32)
    if DROP:
        draws = tl.rand(tl.load(seeds), program * longest * longest + place)
        kept = tl.where(draws < drop, 0.0, 1.0 / (1.0 - drop))
    return weights, kept


@triton.jit(do_not_specialize=NUMBERS)
def attend_texts(
    query, key, value, starts, bias, seeds, found, texts, longest, scale, drop,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, LENGTH: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """One head of one text."""
    text, head = tl.program_id(0), tl.program_id(1)
    first = tl.load(starts + text)
    count = tl.load(starts + text + 1) - first
    j, c = tl.arange(0, LENGTH), tl.arange(0, WIDTH)
    columns = (first + j)[:, None] * (HEADS * WIDTH) + head * WIDTH + c[None, :]
    k = tl.load(key + columns, (j < count)[:, None], 0.0)
    v = tl.load(value + columns, (j < count)[:, None], 0.0)
    for row in range(0, count, ROWS):
        i = row + tl.arange(0, ROWS)
        places = (first + i)[:, None] * (HEADS * WIDTH) + head * WIDTH + c[None, :]
        q = tl.load(query + places, (i < count)[:, None], 0.0)
        of_head = bias + head * longest * longest
        weights, kept = attention_rows(
            q, k, of_head, seeds, text * HEADS + head, row, count, longest, scale, drop, ROWS, LENGTH, DROP
        )
        o = tl.dot((weights * kept).to(v.dtype), v, input_precision="ieee")
        tl.store(found + places, o.to(v.dtype), (i < count)[:, None])


@triton.jit(do_not_specialize=NUMBERS)
def attend_texts_back(
    query, key, value, starts, bias, seeds, gradient, to_query, to_key, to_value, to_bias, texts, longest, scale, drop,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, LENGTH: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """One head of every so-manieth text. Nobody else adds to this part of to_bias, so the order of its sums is fixed."""
    chunk, head, chunks = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    j, c = tl.arange(0, LENGTH), tl.arange(0, WIDTH)
    mine = to_bias + (chunk * HEADS + head) * longest * longest
    for text in range(chunk, texts, chunks):
        first = tl.load(starts + text)
        count = tl.load(starts + text + 1) - first
        columns = (first + j)[:, None] * (HEADS * WIDTH) + head * WIDTH + c[None, :]
        k = tl.load(key + columns, (j < count)[:, None], 0.0)
        v = tl.load(value + columns, (j < count)[:, None], 0.0)
        sum_k, sum_v = tl.zeros((LENGTH, WIDTH), tl.float32), tl.zeros((LENGTH, WIDTH), tl.float32)
        for row in range(0, count, ROWS):
            i = row + tl.arange(0, ROWS)
            places = (first + i)[:, None] * (HEADS * WIDTH) + head * WIDTH + c[None, :]
            q = tl.load(query + places, (i < count)[:, None], 0.0)
            g = tl.load(gradient + places, (i < count)[:, None], 0.0)
            of_head = bias + head * longest * longest
            weights, kept = attention_rows(
                q, k, of_head, seeds, text * HEADS + head, row, count, longest, scale, drop, ROWS, LENGTH, DROP
            )
            sum_v += tl.dot(tl.trans(weights * kept).to(v.dtype), g, input_precision="ieee")
            back = tl.dot(g, tl.trans(v), input_precision="ieee") * kept
            back = weights * (back - tl.sum(weights * back, 1)[:, None])
            inside = (i < count)[:, None] & (j < count)[None, :]
            square = mine + i[:, None] * longest + j[None, :]
            tl.store(square, tl.load(square, inside, 0.0) + back, inside)
            tl.debug_barrier()  # the next text adds to it
            half = (back * scale).to(k.dtype)
            tl.store(to_query + places, tl.dot(half, k, input_precision="ieee").to(k.dtype), (i < count)[:, None])
            sum_k += tl.dot(tl.trans(half), q, input_precision="ieee")
        tl.store(to_key + columns, sum_k.to(k.dtype), (j < count)[:, None])
        tl.store(to_value + columns, sum_v.to(v.dtype), (j < count)[:, None])


class RelativeAttention(torch.autograd.Function):
    """softmax(qkᵀ·scale + bias)·v within each text, with dropout of the softmax: (T, heads, width), contiguous.

    starts: (texts + 1,). bias: (heads, longest, longest) float32, contiguous; no text is longer. drop: the share of dropout.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, starts: Tensor, drop: float, scale: float
    ) -> Tensor:
        """Keeps only what it was given."""
        texts, longest = len(starts) - 1, bias.shape[-1]
        # drawn on the device, so that a captured step draws anew each time that it is played
        seeds = torch.randint(2**31 - 1, (1,), device=query.device, dtype=torch.int32) if drop else starts
        found = torch.empty_like(query)
        given = query, key, value, starts, bias, seeds
        ctx.numbers = texts, longest, scale, drop
        attend_texts[texts, query.shape[1]](*given, found, *ctx.numbers, **_sizes(query, longest, drop))
        ctx.save_for_backward(*given)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The attention again, and its gradients; those of the bias by parts, which are then added up."""
        query, key, value, _, bias, _ = given = ctx.saved_tensors
        texts, longest, _, drop = ctx.numbers
        to_query, to_key, to_value = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        to_bias = bias.new_zeros(min(texts, max(8, SUMMED_APART // bias.numel())), *bias.shape)
        outputs = to_query, to_key, to_value, to_bias
        grid = len(to_bias), query.shape[1]
        attend_texts_back[grid](*given, gradients[0].contiguous(), *outputs, *ctx.numbers, **_sizes(query, longest, drop))
        return to_query, to_key, to_value, to_bias.sum(dim=0), None, None, None


def _sizes(query: Tensor, longest: int, drop: float) -> dict[str, Any]:
    heads, width = query.shape[1:]
    length = max(ROWS, triton.next_power_of_2(longest))
    sizes = {"HEADS": heads, "WIDTH": width, "ROWS": ROWS, "LENGTH": length, "DROP": drop > 0}
    return sizes | {"num_warps": 4 if length < 64 else 8, "num_stages": 1}
