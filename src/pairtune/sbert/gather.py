"""The batches of all processes as one batch, and numbers by which equal texts are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pairtune.errors import UserError


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


def text_ids(features: Mapping[str, Any]) -> Tensor:
    """A 64-bit number for each tokenized text, equal for equal token ids, in whatever batch, padding or process. (m,)."""
    if not isinstance(features.get("input_ids"), Tensor):
        raise UserError(f'duplicates="mask" compares token ids, but the features are {", ".join(features)}: use "keep" here')
    token, row, place, rows = _tokens(features)
    return token.new_zeros(rows, dtype=torch.int64).index_add_(0, row, _mix(token ^ _mix(place + 1)))


def _tokens(features: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor, int]:
    """All tokens that are not padding, the text each is in, its place in that text, and how many texts there are."""
    ids = features["input_ids"].long()
    starts = features["cu_seq_lens_q"][:-1] if "cu_seq_lens_q" in features else features.get("offsets")
    if starts is None:
        mask = features.get("attention_mask", torch.ones_like(ids)).bool()
        return ids[mask], mask.nonzero()[:, 0], (mask.cumsum(dim=1) - 1)[mask], len(ids)
    token = ids.reshape(-1)  # texts without padding, one after the other
    index = torch.arange(len(token), device=token.device)
    row = torch.searchsorted(starts.long(), index, right=True) - 1
    return token, row, index - starts[row], len(starts)


def _mix(value: Tensor) -> Tensor:
    """Scatter integers over all 64 bits (the finaliser of SplitMix64, with its multipliers as signed integers)."""
    value = (value ^ (value >> 30)) * -0x40A7B892E31B1A47
    value = (value ^ (value >> 27)) * -0x6B2FB644ECCEEE15
    return value ^ (value >> 31)
