"""The sums of the fused loss on a GPU, in memory that grows with m: Triton for the tiles, the library for the products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2
from triton.tools.tensor_descriptor import TensorDescriptor

from pairtune.loss.large.fused import LN2, STEP, TileSizes
from pairtune.loss.large.kernels import dot_rows, pull_rows, scale_chosen, sum_tiles, weigh_tiles
from pairtune.loss.large.layout import Layout, weigh

# measured on an H200 at n = 768; PER: programs per multiprocessor, of which one does exponentials while the other multiplies
BF16 = {"BM": 128, "BN": 128, "BK": 64, "GROUP": 4, "PER": 2, "num_warps": 4, "num_stages": 3}
FLOAT32 = {"BM": 128, "BN": 128, "BK": 32, "GROUP": 8, "PER": 1, "num_warps": 8, "num_stages": 3}
CONFIGS: dict[tuple[str, torch.dtype], dict[str, Any]] = {
    ("sum", torch.bfloat16): BF16,
    ("keep", torch.bfloat16): BF16 | {"HALVES": True, "KEEP": True},
    ("weigh", torch.bfloat16): BF16 | {"HALVES": True},
    ("sum", torch.float16): BF16,
    ("keep", torch.float16): BF16 | {"HALVES": True, "KEEP": True},
    ("weigh", torch.float16): BF16 | {"HALVES": True},
    ("sum", torch.float32): FLOAT32,
    ("keep", torch.float32): FLOAT32 | {"HALVES": False, "KEEP": True},
    ("weigh", torch.float32): FLOAT32 | {"HALVES": False},
}


Places = tuple[Tensor, Tensor] | None


class Tiled:
    """The sums of one batch. q: (U, w), a: (V, w), bf16 or float32, w a multiple of STEP, with S = qaᵀ in units of log 2.

    maximum: subtract the true maximum of each tile's rows and columns; without it 2^S must not overflow.
    """

    def __init__(self, layout: Layout, q: Tensor, a: Tensor, *, maximum: bool, sizes: TileSizes) -> None:
        self.layout, self.q, self.a, self.maximum, self.sizes = layout, q, a, maximum, sizes
        self.kept: list[Tensor] = []  # nothing: tiles are computed again
        self.biases = [None if count is None else count.float().log2() for count in (layout.row_counts, layout.column_counts)]
        self.processors = torch.cuda.get_device_properties(q.device).multi_processor_count if q.is_cuda else 2

    def sums(self) -> tuple[Tensor, Tensor]:
        """log₂ Σ 2^S over each row and each column, without what the layout leaves out. (U,) and (V,)."""
        by_row, by_column = (torch.full((len(x),), -torch.inf, device=x.device) for x in (self.q, self.a))
        for rows, columns in self.layout.regions(STEP):
            for part in _cut_slice(rows, self.sizes.sum_rows):
                row_sums, column_sums = self._sum_block(part, columns)
                torch.logaddexp2(by_row[part], row_sums, out=by_row[part])
                torch.logaddexp2(by_column[columns], column_sums, out=by_column[columns])
        return by_row, by_column

    def gradients(self, rows_at: Tensor, columns_at: Tensor, by_row: Tensor, by_column: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of q·ln 2 and of a/ln 2, float32. rows_at, columns_at: what `sums` gave; by_row, by_column: see `Stored`."""
        by_q, by_a = (torch.zeros(x.shape, device=x.device) for x in (self.q, self.a))
        weights = *self._weights(by_row, rows_at), *self._weights(by_column, columns_at)
        blocks = list(self._blocks())
        space = self.q.new_empty(max((_height(rows) * _padded(columns) for rows, columns in blocks), default=0))
        for rows, columns in blocks:
            block = space[: _height(rows) * _padded(columns)].view(_height(rows), -1)
            one, row_at, other, column_at = (at[part] for at, part in zip(weights, (rows, rows, columns, columns), strict=True))
            self._launch("weigh", rows, columns, one, other, row_at, column_at, block)
            block = block[:, : _height(columns)]
            add_product(by_q[rows], block, self.a[columns])
            add_product(by_a[columns], block.T, self.q[rows])
        return by_q, by_a

    def enter(self, entries: Tensor | None) -> tuple[Tensor, Tensor]:
        """The sums of every tile of the whole batch, by row and by column. entries: (m, ·), where 2^S goes; None to forget it."""
        config, pairs = self._config("sum"), len(self.q)
        parts = cdiv(pairs, config["BN"]), cdiv(pairs, config["BM"])
        sums = [torch.empty(count, pairs, device=self.q.device) for count in parts]
        self._launch("sum" if entries is None else "keep", slice(0, pairs), slice(0, pairs), *sums, None, None, entries)
        return sums[0], sums[1]

    def _sum_block(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
        """The sums of every tile, and then of all tiles."""
        config, size = self._config("sum"), (_height(rows), _height(columns))
        parts = (cdiv(size[1], config["BN"]), size[0]), (cdiv(size[0], config["BM"]), size[1])
        sums = [torch.empty(shape, device=self.q.device) for shape in parts]
        if not self.maximum:
            self._launch("sum", rows, columns, *sums, None, None, None)
            return sums[0].sum(0).log2(), sums[1].sum(0).log2()
        tops = [torch.empty_like(part) for part in sums]
        self._launch("sum", rows, columns, *sums, *tops, None)
        found = [torch.logsumexp(part.log_().add_(top, alpha=LN2), 0) / LN2 for part, top in zip(sums, tops, strict=True)]
        return found[0], found[1]

    def _weights(self, gradient: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """α or β, and nothing of use; with a true maximum the gradient itself and the logarithm of the sum, finite if empty."""
        if self.maximum:
            return gradient, at.clamp_min(torch.finfo(at.dtype).min)
        return weigh(gradient, at), at

    def _blocks(self) -> Iterator[tuple[slice, slice]]:
        """Blocks of P: as many rows as keep all processors busy in the product with a, as many columns as there is space."""
        tall = min(128 * max(1, self.processors // cdiv(self.q.shape[1], 256)), 8_448)
        wide = max(STEP, self.sizes.weight_bytes // self.q.itemsize // tall // STEP * STEP)
        for rows, columns in self.layout.regions(STEP):
            for part in _cut_slice(columns, wide):
                for strip in _cut_slice(rows, tall):
                    yield strip, part

    def _config(self, kernel: str) -> dict[str, Any]:
        return CONFIGS[kernel, self.q.dtype] | dict(self.sizes.tile)

    def _launch(self, kernel: str, rows: slice, columns: slice, *outputs: Tensor | None) -> None:
        config = self._config(kernel)
        height, width = _height(rows), _height(columns)
        tiles = cdiv(height, config["BM"]) * cdiv(width, config["BN"])
        grid = (min(tiles, self.processors * config.pop("PER")),)
        tags = self.layout.tags
        described = [TensorDescriptor.from_tensor(self.q[rows], [config["BM"], config["BK"]])]
        described += [TensorDescriptor.from_tensor(self.a[columns], [config["BN"], config["BK"]])]
        if outputs[-1] is not None:
            outputs = *outputs[:-1], TensorDescriptor.from_tensor(outputs[-1], [config["BM"], config["BN"] >> config["HALVES"]])
        {"sum": sum_tiles, "keep": sum_tiles, "weigh": weigh_tiles}[kernel][grid](
            *described,
            *((None, None) if tags is None else (tags[0][:, rows], tags[1][:, columns])),
            *(None if bias is None else bias[part] for bias, part in zip(self.biases, (rows, columns), strict=True)),
            *outputs,
            height,
            width,
            rows.start - columns.start,
            *((0, 0) if tags is None else (tags[0].stride(0), tags[1].stride(0))),
            WIDTH=self.q.shape[1],
            ROW_TAGS=0 if tags is None else len(tags[0]),
            COLUMN_TAGS=0 if tags is None else len(tags[1]),
            BIAS=self.biases[0] is not None,
            PRECISION="tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "tf32x3",
            MAXIMUM=self.maximum,
            **config,
        )


def scale(vectors: Tensor, chosen: Tensor | None, factor: Tensor, dtype: torch.dtype, *, unit: bool) -> Tensor:
    """The chosen vectors times a factor, with `unit` divided by their length, padded with zeros. (m, n) to (U, w)."""
    vectors, count, width = vectors.contiguous(), len(vectors if chosen is None else chosen), vectors.shape[1]
    found = torch.empty(count, cdiv(width, STEP) * STEP, dtype=dtype, device=vectors.device)
    block = next_power_of_2(found.shape[1])
    sizes = (width, width, found.shape[1])
    scale_chosen[(count,)](vectors, chosen, factor, found, *sizes, CHOSEN=chosen is not None, UNIT=unit, BLOCK=block)
    return found


def pull(
    vectors: Tensor,
    chosen: Tensor | None,
    factor: Tensor,
    given: Tensor,
    own: Tensor,
    others: Tensor,
    places: Places,
    *,
    unit: bool,
) -> Tensor:
    """The gradient of the vectors when what `scale` made of them has the gradient `given` and that of its edges, times factor.

    own: (k,), the weight of each edge. places: the row of each edge in `given` and in `others`; None when both are its number.
    """
    vectors, (count, stride) = vectors.contiguous(), given.shape
    found = torch.zeros_like(vectors)
    starts = partners = None
    if places is not None:
        place, order = torch.sort(places[0], stable=True)
        starts = torch.searchsorted(place, torch.arange(count + 1, device=place.device))
        own, partners = own[order], places[1][order]
    sizes = (len(own), vectors.shape[1], vectors.shape[1], stride)
    flags = {"CHOSEN": chosen is not None, "UNIT": unit, "LISTED": places is not None, "BLOCK": next_power_of_2(stride)}
    pull_rows[(count,)](vectors, chosen, factor, given, own, others, starts, partners, found, *sizes, **flags)
    return found


def dot(one: Tensor, other: Tensor, count: int, rows: Tensor | None = None, columns: Tensor | None = None) -> Tensor:
    """The products of rows with rows, in float32; of the first `count`, or of those given. one, other: (·, w), to (count,)."""
    found = torch.empty(count, device=one.device)
    block = next_power_of_2(one.shape[1])
    if count:
        dot_rows[(count,)](one, other, rows, columns, found, one.shape[1], INDEXED=rows is not None, BLOCK=block)
    return found


def add_product(total: Tensor, one: Tensor, other: Tensor) -> None:
    """total += one @ other in float32, whatever the two have. total: float32."""
    if one.dtype == total.dtype:
        total.addmm_(one, other)
    elif total.is_cuda:
        torch.ops.aten.addmm.dtype_out(total, one, other, torch.float32, out=total)
    else:
        total.addmm_(one.float(), other.float())


def _cut_slice(whole: slice, size: int) -> Iterator[slice]:
    """Parts of about equal size, a multiple of STEP, at most about `size`."""
    length = _height(whole)
    step = cdiv(cdiv(length, cdiv(length, size)), STEP) * STEP
    for start in range(whole.start, whole.stop, step):
        yield slice(start, min(start + step, whole.stop))


def _height(part: slice) -> int:
    return int(part.stop - part.start)


def _padded(columns: slice) -> int:
    return cdiv(_height(columns), STEP) * STEP
