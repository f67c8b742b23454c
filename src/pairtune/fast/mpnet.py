"""MPNet's attention among packed texts. It computes it itself, with a bias by relative position that all layers share."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from pairtune.fast.attention import Masks, attend, current_batch, mask_block
from pairtune.loss.large.paths import can_compile

LONGEST_RELATIVE = 128  # tokens of a text that our kernel takes


@cache
def relative_serves(width: int) -> bool:
    """Whether our kernel for a bias by relative position runs here, for heads of this width in bf16."""
    return can_compile() and torch.cuda.get_device_capability() >= (8, 0) and width in (16, 32, 64, 128)


def patch_mpnet(encoder: nn.Module, undo: ExitStack) -> None:
    """Replace the encoder's attention until `undo` closes."""
    inner: Any = encoder.encoder
    compute = inner.compute_position_bias

    def compute_once(hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor | Masks:
        batch, width = current_batch(), inner.layer[0].attention.attn.attention_head_size
        blocks = batch.blocks
        dtype = torch.get_autocast_dtype(hidden.device.type) if torch.is_autocast_enabled(hidden.device.type) else hidden.dtype
        if hidden.is_cuda and dtype != torch.float32 and batch.longest <= LONGEST_RELATIVE and relative_serves(width):
            return compute(hidden.new_empty(1, batch.longest, 0)).squeeze(0).float().contiguous()
        bias = compute(hidden.new_empty(1, max(block.length for block in blocks), 0)).to(dtype)  # (1, heads, length, length)
        cut = [bias[:, :, : block.length, : block.length] for block in blocks]
        return [one if block.lengths is None else one + mask_block(block, one) for one, block in zip(cut, blocks, strict=True)]

    patches: list[tuple[Any, str, Any]] = [(inner, "compute_position_bias", compute_once)]
    patches += [(layer.attention.attn, "forward", partial(_attend_mpnet, layer.attention.attn)) for layer in inner.layer]
    for module, name, function in patches:
        module.__dict__[name] = function
        undo.callback(module.__dict__.pop, name)


def _attend_mpnet(
    attention: Any, hidden: Tensor, mask: Tensor | None = None, position_bias: Tensor | Masks | None = None, **kwargs: Any
) -> tuple[Tensor]:
    width = attention.attention_head_size
    sides = [part(hidden).view(*hidden.shape[:-1], -1, width) for part in (attention.q, attention.k, attention.v)]
    dropout = attention.dropout.p if attention.training else 0.0
    if isinstance(position_bias, Tensor):
        from pairtune.fast.relative import RelativeAttention

        rows = [side.squeeze(0) for side in sides]
        found = RelativeAttention.apply(*rows, position_bias, current_batch().starts, dropout, width**-0.5)
    else:
        found, _ = attend(attention, *(side.transpose(1, 2) for side in sides), dropout=dropout, masks=position_bias)
    return (attention.o(found.reshape(*hidden.shape[:-1], -1)),)
