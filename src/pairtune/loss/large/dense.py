"""The fused loss of batches of a middle size on a GPU: E is stored once, so six m²n operations are enough, in few launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2

from pairtune.errors import UserError
from pairtune.loss.large.dense_kernels import enter_tiles, finish_sums, pull_pairs, scale_pairs, weigh_entries
from pairtune.loss.large.fused import LN2, STEP, TileSizes
from pairtune.loss.large.layout import Edges, Layout
from pairtune.loss.large.tiled import Tiled

ENTER = {"BM": 64, "BN": 128, "num_warps": 8}
WEIGH = {"BM": 32, "BN": 256, "num_warps": 8}
FINISH = {"BM": 32, "BP": 32, "num_warps": 4}


@dataclass(frozen=True)
class DenseSetup:
    """How to compute one batch.

    dtype: of the operands of the products, and of E. unit: divide each vector by its length. left, right: the directions.
    divisor: of the sum of all terms. by_tiles: E comes from our own kernel for products, otherwise from the library's scores
    in float32: faster for few pairs, and 4 m² bytes more until the sums are there.
    """

    dtype: torch.dtype
    unit: bool
    left: bool
    right: bool
    divisor: float
    by_tiles: bool
    sizes: TileSizes


class DenseLoss(torch.autograd.Function):
    """The loss of left, right: (m, n), before normalization, at τ, a number or a tensor of one value. Differentiable once.

    positive: (m,) bool, or None where all are. 2^S must not overflow: nobody looks for a maximum.
    """

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, temperature: float | Tensor, positive: Tensor | None, setup: DenseSetup
    ) -> Tensor:
        """The loss, and already its gradients by E and by the scores of the pairs."""
        left, right = left.contiguous(), right.contiguous()
        pairs, width = left.shape
        own, alpha, beta, weight = numbers = torch.empty(4, pairs, device=left.device)
        stride = cdiv(width, STEP) * STEP
        q, a = torch.empty(2, pairs, stride, dtype=setup.dtype, device=left.device)
        sizes, how = (width, width, width, stride), _vectors_how(setup, temperature, stride)
        scale_pairs[(pairs,)](left, right, temperature, q, a, own, *sizes, **how)
        entries, row_sums, column_sums = _enter(q, a, setup, keep=any(ctx.needs_input_grad))
        costs = torch.empty(cdiv(pairs, FINISH["BM"]), device=left.device)
        finish_sums[(len(costs),)](
            row_sums, column_sums, own, positive, alpha, beta, weight, costs,
            pairs, len(row_sums), len(column_sums), 1 / setup.divisor,
            LABELLED=positive is not None, LEFT=setup.left, RIGHT=setup.right, **FINISH,
        )  # fmt: skip
        ctx.setup, ctx.temperature, ctx.weighed = setup, temperature, False
        ctx.save_for_backward(left, right, q, a, numbers, entries)
        return costs.sum()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        """The gradients of left, right and τ. E becomes P on the first call, and stays P where the graph is retained."""
        if torch.is_grad_enabled():  # create_graph=True: what follows would count as constant
            raise UserError("the fused loss has no second derivative: call batch_softmax_loss with fused=False")
        left, right, q, a, numbers, entries = ctx.saved_tensors
        setup, temperature, (pairs, width) = ctx.setup, ctx.temperature, left.shape
        own, alpha, beta, weight = numbers
        if not ctx.weighed:
            grid = cdiv(pairs, WEIGH["BM"]), cdiv(pairs, WEIGH["BN"])
            weigh_entries[grid](entries, alpha, beta, pairs, entries.stride(0), **WEIGH)
            ctx.weighed = True
        weights = entries[:, :pairs]  # P
        by_q, by_a = multiply(weights, a), multiply(weights.T, q)
        by_left, by_right = torch.empty_like(left), torch.empty_like(right)
        pull_pairs[(pairs,)](
            left, right, temperature, q, a, by_q, by_a, weight, upstream, by_left, by_right,
            width, width, width, q.shape[1], 1 / setup.divisor, **_vectors_how(setup, temperature, q.shape[1]),
        )  # fmt: skip
        by_temperature = None
        if ctx.needs_input_grad[2]:  # τ divides all of S: its gradient is that of S times S, over −τ
            whole = LN2 * ((q.float() * by_q).sum() + (own * weight).sum())
            by_temperature = (-upstream / setup.divisor * whole / temperature).reshape(temperature.shape).to(temperature)
        needs = ctx.needs_input_grad
        return by_left if needs[0] else None, by_right if needs[1] else None, by_temperature, None, None


def multiply(one: Tensor, other: Tensor) -> Tensor:
    """one @ other in float32, whatever the two have."""
    if one.dtype == torch.float32:
        return one @ other
    return torch.ops.aten.mm.dtype(one, other, torch.float32) if one.is_cuda else one.float() @ other.float()


def _enter(q: Tensor, a: Tensor, setup: DenseSetup, *, keep: bool) -> tuple[Tensor | None, Tensor, Tensor]:
    """E, (m, m) padded to whole steps, where it is to be kept; and the sums of its tiles by row and by column."""
    pairs = len(q)
    entries = q.new_empty(pairs, cdiv(pairs, STEP) * STEP) if keep else None
    if setup.by_tiles:
        layout = Layout(pairs, None, None, pairs, pairs, Edges(pairs))
        return entries, *Tiled(layout, q, a, maximum=False, sizes=setup.sizes).enter(entries)
    down, across = cdiv(pairs, ENTER["BM"]), cdiv(pairs, ENTER["BN"])
    row_sums, column_sums = (torch.empty(count, pairs, device=q.device) for count in (across, down))
    stride = 0 if entries is None else entries.stride(0)
    enter_tiles[(down, across)](multiply(q, a.T), entries, row_sums, column_sums, pairs, stride, KEEP=keep, **ENTER)
    return entries, row_sums, column_sums


def _vectors_how(setup: DenseSetup, temperature: float | Tensor, stride: int) -> dict[str, Any]:
    """What the kernels over vectors are compiled for."""
    return {"UNIT": setup.unit, "LEARNED": isinstance(temperature, Tensor), "BLOCK": next_power_of_2(stride)}
