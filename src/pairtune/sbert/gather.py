"""The batches of all processes as one batch."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """How many processes train together; 1 when nothing was started by torchrun or accelerate."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def join_ranks(*columns: Tensor) -> list[Tensor]:
    """Each column with the rows of every process below each other, in the order of the ranks; gradients flow back.

    columns: (m, …) on each process, where m may differ from process to process but not from column to column.
    The gradient is whole after DDP's averaging, provided that every process computes the same loss of the joined rows.
    """
    rows = torch.tensor([len(columns[0])], device=columns[0].device)
    counts = [torch.zeros_like(rows) for _ in range(world_size())]
    dist.all_gather(counts, rows)
    return [_JoinRanks.apply(column, [int(count) for count in counts]) for column in columns]


class _JoinRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        padded = local.new_zeros(max(counts), *local.shape[1:])  # all_gather wants equal shapes
        padded[: len(local)] = local
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        # Each rank holds the gradient of the one joined loss; DDP divides by the number of ranks, this undoes it.
        own = gradients[0].split(ctx.counts)[dist.get_rank()]
        return own * len(ctx.counts), None
