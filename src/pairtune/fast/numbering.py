"""Numbers by which equal texts are known, wherever they were tokenized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pairtune.errors import UserError


def text_ids(features: Mapping[str, Any]) -> Tensor:
    """A 64-bit number for each tokenized text, equal for equal token ids, in whatever batch, padding or process. (m,)."""
    if not isinstance(features.get("input_ids"), Tensor):
        found = ", ".join(features)
        raise UserError(
            f'equal texts are known by their token ids, but the features are {found}: no duplicates="mask", no guide here'
        )
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
