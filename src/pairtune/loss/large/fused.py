"""The batch-softmax loss with one product and one exponential for both directions and the gradient: see docs/equations.md.

A batch takes the plain path, or this one: through one stored matrix on a CPU, in tiles on a GPU, and there through one stored
matrix where that is faster (`dense`).
"""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from pairtune.errors import UserError
from pairtune.loss.large.layout import Edges, Layout, Stored
from pairtune.loss.terms import NORMALIZATIONS, without_autocast

LN2 = math.log(2)
ROW_BY_ROW = ("l2", "none")
STEP = 64  # of the width of tiles, and of the sizes of blocks
FUSE_FROM = {"cpu": 512, "cuda": 4096}  # pairs; below, the plain path is as fast, and can be captured in a CUDA graph
WIDEST = 1024  # coordinates of a vector
EXPONENT = 125  # 2 to this and a little more is still a float32


@cache
def can_compile() -> bool:
    """Whether Triton can compile kernels for the GPU of this machine: it is installed, and finds a C compiler."""
    compiler = sys.platform == "win32" or os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")  # or brings one
    return find_spec("triton") is not None and bool(compiler) and torch.cuda.is_available()


def suits(left: Tensor, right: Tensor, *, any_size: bool = False) -> bool:
    """Is the batch one for the fused loss: large (or of any size), not too wide, below float64, not being compiled?"""
    kind, (pairs, width) = left.device.type, left.shape
    return (
        kind in FUSE_FROM
        and (any_size or pairs >= FUSE_FROM[kind])
        and width <= WIDEST
        and torch.float64 not in (left.dtype, right.dtype)
        and not torch.compiler.is_compiling()
        and (kind == "cpu" or can_compile())
    )


@dataclass(frozen=True)
class DenseSizes:
    """How many pairs on a GPU take the dense path, which stores E, 2·m² bytes: from first to last.

    From tiles_from on a kernel of ours computes E, below it the library computes S. Until `benchmarks/loss.py` has measured the
    path on a GPU, no batch takes it unless a caller gives a `last`.
    """

    first: int = 512
    last: int = 0
    tiles_from: int = 4096


def fuse_dense(
    left: Tensor,
    right: Tensor,
    temperature: float | Tensor,
    positive: Tensor | None,
    directions: str,
    normalize: str,
    divisor: float,
    sizes: DenseSizes = DenseSizes(),  # noqa: B008  # it is frozen
) -> Tensor | None:
    """The loss through a stored E on a GPU; None where the batch is not one for it. positive: (m,) bool, or None for all."""
    pairs = len(left)
    suited = left.is_cuda and sizes.first <= pairs <= sizes.last and normalize in ROW_BY_ROW
    if not suited or _operands(left, right) != torch.bfloat16 or not suits(left, right, any_size=True):
        return None
    known = normalize == "l2" and not isinstance(temperature, Tensor)  # otherwise |S| is read from the device
    if not known and torch.cuda.is_current_stream_capturing():
        return None
    everything = Layout(pairs, None, None, pairs, pairs, Edges(pairs))
    if not _sums_are_safe(everything, _reach(left, right, temperature, normalize)):
        return None
    from pairtune.loss.large.dense import DenseLoss, DenseSetup  # needs Triton

    how = {"left": directions != "right", "right": directions != "left", "by_tiles": pairs >= sizes.tiles_from}
    setup = DenseSetup(torch.bfloat16, unit=normalize == "l2", divisor=divisor, sizes=TileSizes(), **how)
    with without_autocast(left):
        found: Tensor = DenseLoss.apply(left, right, temperature, positive, setup)
    return found


def fuse(
    left: Tensor, right: Tensor, temperature: float | Tensor, layout: Layout, normalize: str, divisor: float
) -> Tensor | None:
    """The sum of the layout's terms over the divisor; None where a CPU would need maxima: the plain path finds those."""
    capturing = left.is_cuda and torch.cuda.is_current_stream_capturing()
    maximum = capturing or not _sums_are_safe(layout, _reach(left, right, temperature, normalize))
    if maximum and not left.is_cuda:
        return None
    setup = FusedSetup(layout, normalize, _operands(left, right), stored=not left.is_cuda, maximum=maximum, divisor=divisor)
    with without_autocast(left):
        found: Tensor = FusedLoss.apply(left, right, temperature, setup)
    return found


def _operands(left: Tensor, right: Tensor) -> torch.dtype:
    """bf16 on CUDA for bf16 embeddings and under bf16 autocast, otherwise float32."""
    autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    asked = autocast or left.dtype == right.dtype == torch.bfloat16
    return torch.bfloat16 if left.is_cuda and asked else torch.float32


def _reach(left: Tensor, right: Tensor, temperature: float | Tensor, normalize: str) -> float:
    """A bound of |S|, from the lengths of the vectors. Waits for the device where τ or those lengths are only known there."""
    with torch.no_grad():
        longest = 1.0
        if normalize != "l2":
            for side in (left, right):
                longest *= float(torch.linalg.vector_norm(NORMALIZATIONS[normalize](side.float()), dim=1).amax())
        return longest / float(temperature)


def _sums_are_safe(layout: Layout, reach: float) -> bool:
    """Can 2^S be summed without a shift? A sum has at most m entries; where rows have counts, it is taken times that count."""
    return reach / LN2 + math.log2(layout.pairs) * (1 if layout.row_counts is None else 2) <= EXPONENT


@dataclass(frozen=True)
class TileSizes:
    """How much a GPU holds at a time. sum_rows: rows whose sums are taken, as the sums of single tiles are stored until they are
    added; weight_bytes: of P; tile: what to change in the kernels' own sizes."""

    sum_rows: int = 16_384
    weight_bytes: int = 5_632 * 65_536 * 2
    tile: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FusedSetup:
    """How to compute one batch.

    dtype: of the operands of the products. stored: through `Stored`, otherwise `Tiled`, for which maximum is meant.
    divisor: of the sum of all terms. sizes: of `Tiled`.
    """

    layout: Layout
    normalize: str
    dtype: torch.dtype
    stored: bool
    maximum: bool
    divisor: float
    sizes: TileSizes = TileSizes()

    @property
    def by_rows(self) -> bool:
        """Is every row normalized by itself, on a GPU? Then one kernel does that, and another its gradient."""
        return not self.stored and self.normalize in ROW_BY_ROW


class FusedLoss(torch.autograd.Function):
    """The loss of left, right: (m, n), before normalization, at τ, a number or a tensor of one value. Differentiable once."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, temperature: float | Tensor, setup: FusedSetup) -> Tensor:
        """The loss, and already its gradients by the scores of the positives and by the logarithms of the sums."""
        q = _operand(left, setup.layout.rows, setup, 1 / (LN2 * temperature))  # S = qaᵀ·ln 2: powers of 2 are cheaper than of e
        a = _operand(right, setup.layout.columns, setup, 1.0)
        engine = _engine(setup, q, a, kept=[] if any(ctx.needs_input_grad) else None)
        at = engine.sums()
        with torch.enable_grad():
            parts = [(part * LN2).requires_grad_() for part in (_own_scores(setup, q, a), *at)]
            loss = _sum_terms(setup.layout, *parts)
            given = torch.autograd.grad(loss, parts, allow_unused=True, materialize_grads=True)
        ctx.setup, ctx.temperature = setup, temperature
        ctx.save_for_backward(left, right, q, a, *at, parts[0].detach(), *given, *engine.kept)
        return loss.detach() / setup.divisor

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        """The gradients of left, right and τ."""
        if torch.is_grad_enabled():  # create_graph=True: what follows would count as constant
            raise UserError("the fused loss has no second derivative: call batch_softmax_loss with fused=False")
        left, right, q, a, rows_at, columns_at, scores, *rest = ctx.saved_tensors
        setup, layout, temperature = ctx.setup, ctx.setup.layout, ctx.temperature
        own, by_row, by_column, *kept = rest
        by_q, by_a = _engine(setup, q, a, kept).gradients(rows_at, columns_at, by_row, by_column)
        factor, by_temperature = upstream / setup.divisor, None
        if ctx.needs_input_grad[2]:  # τ divides all of S: its gradient is that of S times S, over −τ
            whole = LN2 * _dot(setup, q, by_q) + (own * scores).sum()
            by_temperature = (-factor * whole / temperature).reshape(temperature.shape).to(temperature)
        if not setup.by_rows:
            _add_own(layout, by_q, by_a, q, a, own)
        row, column = layout.edges.row, layout.edges.column
        by_left = by_right = None
        if ctx.needs_input_grad[0]:
            by_left = _unscale(left, layout.rows, setup, factor / temperature, by_q, own, a, row, column)
        if ctx.needs_input_grad[1]:
            by_right = _unscale(right, layout.columns, setup, factor * LN2, by_a, own, q, column, row)
        return by_left, by_right, by_temperature, None


def _engine(setup: FusedSetup, q: Tensor, a: Tensor, kept: list[Tensor] | None) -> Any:
    """What computes the sums. kept: what it stored for the gradient, to be filled by `sums`; None when no gradient is wanted."""
    if setup.stored:
        return Stored(setup.layout, q, a, kept)
    return _tiled().Tiled(setup.layout, q, a, maximum=setup.maximum, sizes=setup.sizes)


def _tiled() -> ModuleType:
    from pairtune.loss.large import tiled  # needs Triton

    return tiled


def _sum_terms(layout: Layout, own: Tensor, rows_at: Tensor, columns_at: Tensor) -> Tensor:
    """The sum of all terms. own: (k,), S of the edges; rows_at, columns_at: (U,) and (V,), log Σ exp S of everything else."""
    edges, total = layout.edges, 0 * own.sum()
    by_row = (rows_at, layout.row_terms, edges.row, layout.row_counts, edges.column, layout.column_counts)
    by_column = (columns_at, layout.column_terms, edges.column, layout.column_counts, edges.row, layout.row_counts)
    for at, terms, place, counts, other, other_counts in (by_row, by_column):
        if not terms:
            continue
        at = at[:terms] if counts is None else at[:terms] - counts[:terms].log()  # each was summed times its own count
        if layout.together:
            assert place is not None and other is not None and other_counts is not None
            whole = torch.logaddexp(at, _log_sum_by(own + other_counts[other].log(), place, terms))
            cost = whole[place] - own
        else:
            cost = softplus((at if place is None else at[place]) - own)  # log(e^at + e^own) − own
        total = total + (cost if edges.pairs is None else cost * edges.pairs).sum()
    return total


def _log_sum_by(values: Tensor, place: Tensor, size: int) -> Tensor:
    """log Σ exp of the values at each place. values, place: (k,), to (size,)."""
    top = values.new_full((size,), -torch.inf).scatter_reduce(0, place, values.detach(), "amax")
    return values.new_zeros(size).index_add(0, place, torch.exp(values - top[place])).log() + top


def _own_scores(setup: FusedSetup, q: Tensor, a: Tensor) -> Tensor:
    """q·a of the edges, in float32. (k,)."""
    edges = setup.layout.edges
    if not setup.stored:
        return _tiled().dot(q, a, edges.count, edges.row, edges.column)
    row, column = _edge_places(setup.layout)
    return (q[row] * a[column]).sum(1)


def _add_own(layout: Layout, by_q: Tensor, by_a: Tensor, q: Tensor, a: Tensor, own: Tensor) -> None:
    """The edges' share of both gradients, in place: exact, where P may have but eight bits."""
    row, column = _edge_places(layout)
    if isinstance(row, slice):
        by_q[row].addcmul_(a[column].float(), own[:, None])
        by_a[column].addcmul_(q[row].float(), own[:, None])
    else:
        by_q.index_add_(0, row, a[column].float() * own[:, None])
        by_a.index_add_(0, column, q[row].float() * own[:, None])


def _edge_places(layout: Layout) -> tuple[Any, Any]:
    """The rows and the columns of the edges."""
    diagonal = slice(0, layout.edges.count)
    return (diagonal, diagonal) if layout.edges.row is None else (layout.edges.row, layout.edges.column)


def _dot(setup: FusedSetup, one: Tensor, other: Tensor) -> Tensor:
    if setup.stored:
        return (one * other).sum()
    return _tiled().dot(one, other, len(one)).sum()


def _operand(vectors: Tensor, chosen: Tensor | None, setup: FusedSetup, factor: float | Tensor) -> Tensor:
    """The chosen vectors, normalized and multiplied, in the operands' dtype; for tiles padded with zeros. (m, n) to (U, w)."""
    if setup.by_rows:
        return _tiled().scale(vectors, chosen, _scalar(factor, vectors), setup.dtype, unit=setup.normalize == "l2")
    found = NORMALIZATIONS[setup.normalize](vectors.float()) * factor
    found = (found if chosen is None else found[chosen]).to(setup.dtype)
    return found if setup.stored else pad(found, (0, -found.shape[1] % STEP))


def _unscale(
    vectors: Tensor,
    chosen: Tensor | None,
    setup: FusedSetup,
    factor: Tensor,
    given: Tensor,
    own: Tensor,
    others: Tensor,
    place: Tensor | None,
    partner: Tensor | None,
) -> Tensor:
    """The gradient of the vectors, when what `_operand` made of them has the gradient `given` · factor.

    By rows, the edges' share is still to be added: own[e] · others[partner[e]] at place[e].
    """
    if setup.by_rows:
        places = None if place is None else (place, partner)
        unit = setup.normalize == "l2"
        return _tiled().pull(vectors, chosen, _scalar(factor, vectors), given, own, others, places, unit=unit)
    given = given[:, : vectors.shape[1]] * factor
    if chosen is not None:
        given = given.new_zeros(vectors.shape).index_copy_(0, chosen, given)
    with torch.enable_grad():  # the normalization is computed again: keeping it would cost more memory than it is worth
        vectors = vectors.detach().requires_grad_()
        return torch.autograd.grad(NORMALIZATIONS[setup.normalize](vectors.float()), vectors, given)[0]


def _scalar(value: float | Tensor, like: Tensor) -> Tensor:
    """One number in the memory of the device, without waiting for it."""
    if isinstance(value, Tensor):
        return value.to(like.device, torch.float32)
    return torch.full((), value, device=like.device)
