"""Attention among texts that stand one after the other in a single row, by transformers' interface for attention functions.

MPNet computes its attention itself, with a bias by relative position that all layers share: `patch_mpnet`. T5 asks for the
bias of a whole row: `patch_t5`. DeBERTa's bias depends on the tokens, too: `patch_deberta`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

from pairtune.fast.packing import Block, Packed
from pairtune.loss.large.fused import can_compile

NAME = "pairtune_packed"  # no mask function has this name, so that transformers makes no masks for it
HIDDEN = -1e4  # added to scores that do not count: exp of it is 0, and a row of nothing else is still finite
LONGEST_RELATIVE = 128  # tokens of a text that our kernel for a bias by relative position takes

Masks = list[Tensor | None]

_batch: ContextVar[tuple[Packed, dict[Any, Any]]] = ContextVar("batch")


class Projected(NamedTuple):
    """Of T tokens in a row, each (T, heads, width); of keys and values there may be fewer heads, each for several of a query."""

    query: Tensor
    key: Tensor
    value: Tensor


@contextmanager
def attending_within(batch: Packed) -> Iterator[None]:
    """Inside, `attend` keeps the texts of this batch apart."""
    token = _batch.set((batch, {}))
    try:
        yield
    finally:
        _batch.reset(token)


def current_batch() -> Packed:
    """The batch that is being encoded."""
    return _batch.get()[0]


@cache
def flash_serves(width: int) -> bool:
    """Whether torch has a kernel for texts of different lengths here, for heads of this width in bf16."""
    return (
        torch.cuda.is_available()
        and torch.backends.cuda.is_flash_attention_available()
        and torch.cuda.get_device_capability() >= (8, 0)
        and width % 8 == 0
        and width <= 256
    )


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    masks: Masks | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Each text of the batch attends to itself. query, key, value: (1, heads, T, width) to (1, T, heads, width).

    sliding_window: a token sees those that are less than this away. masks: of each block, what is added to its scores, where
    that is more than `mask_block`. position_bias: (1, heads, length, length), added to the scores of every text. Whether a token
    sees those after it, the module says. The rest is transformers' own.
    """
    batch, known = _batch.get()
    if position_bias is not None:
        masks = _remember_biased(known, position_bias, batch, query.dtype)
    causal = bool(getattr(module, "is_causal", False))
    window = None if sliding_window is None or sliding_window >= batch.longest else sliding_window
    projected = Projected(*(side.squeeze(0).transpose(0, 1) for side in (query, key, value)))
    half = query.is_cuda and query.dtype in (torch.bfloat16, torch.float16)
    if masks is None and half and flash_serves(query.shape[-1]):
        return _attend_flash(projected, batch, dropout, scaling, causal, window)[None], None
    kind = causal, window, query.dtype
    if masks is None and kind not in known:  # the same in all layers of a kind
        known[kind] = [mask_block(block, query, causal, window) for block in batch.blocks]
    given = known[kind] if masks is None else masks
    parts = [_attend_block(projected, block, dropout, scaling, mask) for block, mask in zip(batch.blocks, given, strict=True)]
    return torch.cat(parts)[None] if len(parts) > 1 else parts[0][None], None


def _remember_biased(known: dict[Any, Any], bias: Tensor, batch: Packed, dtype: torch.dtype) -> Masks:
    """The masks of a bias, once for all layers that share it; it is kept, so that no other one gets its id."""
    if (id(bias), dtype) not in known:
        known[id(bias), dtype] = bias, bias_blocks(bias.to(dtype), batch)
    return known[id(bias), dtype][1]


def bias_blocks(bias: Tensor, batch: Packed) -> Masks:
    """Of each block, the bias of its texts, and what hides their padding. bias: (1, heads, length, length)."""
    masks: Masks = []
    for block in batch.blocks:
        cut, hidden = bias[:, :, : block.length, : block.length], mask_block(block, bias)
        masks.append(cut if hidden is None else cut + hidden)
    return masks


def _attend_flash(
    projected: Projected, batch: Packed, dropout: float, scaling: float | None, causal: bool, window: int | None
) -> Tensor:
    """(T, heads, width) by the kernel for texts of different lengths; `varlen_attn` is the same without dropout."""
    starts, longest = batch.starts, batch.longest
    reach = {} if window is None else {"window_size_left": window - 1, "window_size_right": 0 if causal else window - 1}
    operator = torch.ops.aten._flash_attention_forward
    return operator(*projected, starts, starts, longest, longest, dropout, causal, False, scale=scaling, **reach)[0]


def _attend_block(projected: Projected, block: Block, dropout: float, scaling: float | None, mask: Tensor | None) -> Tensor:
    """The tokens of one block, (tokens, heads, width): moved to where they would be with padding, and back."""
    query, key, value = (_spread(side, block) for side in projected)
    if key.shape[1] < query.shape[1]:
        key, value = (one.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for one in (key, value))
    found = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling)
    found = found.transpose(1, 2).reshape(-1, *projected.query.shape[1:])
    return found if block.slots is None else _Unpad.apply(found, block.slots)


def mask_block(block: Block, like: Tensor, causal: bool = False, window: int | None = None) -> Tensor | None:
    """What hides the rest from a token of a block: (texts or 1, 1, length or 1, length), added to its scores; None for nothing.

    like: has the device and the type that it should have.
    """
    place = torch.arange(block.length, device=like.device)
    hidden: Tensor | None = None
    if causal or window is not None:
        before = place[:, None] - place  # (length, length), by how much a key is before a query
        hidden = before < 0 if causal else torch.zeros_like(before, dtype=torch.bool)
        hidden = (hidden if window is None else hidden | (before.abs() >= window))[None]
    if block.lengths is not None and not causal:  # padding comes after all tokens
        beyond = (place >= block.lengths[:, None])[:, None]  # (texts, 1, length)
        hidden = beyond if hidden is None else hidden | beyond
    return None if hidden is None else torch.where(hidden, HIDDEN, 0.0).to(like.dtype)[:, None]


def _spread(side: Tensor, block: Block) -> Tensor:
    """The tokens of a block where they would be with padding, (texts, heads, length, width)."""
    rows = side[block.first : block.last]
    spread = rows if block.slots is None else _Pad.apply(rows, block.slots, block.texts * block.length)
    return spread.view(block.texts, block.length, *side.shape[1:]).transpose(1, 2)


class _Pad(torch.autograd.Function):
    """Rows to their slots, zeros elsewhere. Each slot is taken once, so the gradient is a plain look-up."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, slots: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(slots)
        return rows.new_zeros(count, *rows.shape[1:]).index_copy_(0, slots, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0].index_select(0, ctx.saved_tensors[0]), None, None


class _Unpad(torch.autograd.Function):
    """The rows in these slots; the inverse of `_Pad`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.count = len(rows)
        return rows.index_select(0, slots)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0]
        return gradient.new_zeros(ctx.count, *gradient.shape[1:]).index_copy_(0, ctx.saved_tensors[0], gradient), None


@cache
def relative_serves(width: int) -> bool:
    """Whether our kernel for a bias by relative position runs here, for heads of this width in bf16."""
    return can_compile() and torch.cuda.get_device_capability() >= (8, 0) and width in (16, 32, 64, 128)


def patch_mpnet(encoder: nn.Module, undo: ExitStack) -> None:
    """Replace MPNet's attention until `undo` closes."""
    inner: Any = encoder.encoder
    compute = inner.compute_position_bias

    def compute_once(hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor | Masks:
        batch, width = current_batch(), inner.layer[0].attention.attn.attention_head_size
        blocks = batch.blocks
        dtype = torch.get_autocast_dtype(hidden.device.type) if torch.is_autocast_enabled(hidden.device.type) else hidden.dtype
        if hidden.is_cuda and dtype != torch.float32 and batch.longest <= LONGEST_RELATIVE and relative_serves(width):
            return compute(hidden.new_empty(1, batch.longest, 0)).squeeze(0).float().contiguous()
        bias = compute(hidden.new_empty(1, max(block.length for block in blocks), 0)).to(dtype)  # (1, heads, length, length)
        return bias_blocks(bias, batch)

    patches: list[tuple[Any, str, Any]] = [(inner, "compute_position_bias", compute_once)]
    patches += [(layer.attention.attn, "forward", partial(_attend_mpnet, layer.attention.attn)) for layer in inner.layer]
    for module, name, function in patches:
        module.__dict__[name] = function
        undo.callback(module.__dict__.pop, name)


def patch_t5(encoder: nn.Module, undo: ExitStack) -> None:
    """Let T5 compute its bias by relative position for the longest text, not for the whole row, until `undo` closes."""
    inner: Any = encoder.encoder
    for attention in (block.layer[0].SelfAttention for block in inner.block):
        if attention.has_relative_attention_bias:
            attention.__dict__["compute_bias"] = partial(_bias_of_longest, attention.compute_bias)
            undo.callback(attention.__dict__.pop, "compute_bias")


def _bias_of_longest(compute: Any, *lengths: int, device: torch.device | None = None, **kwargs: Any) -> Tensor:
    longest = max(block.length for block in current_batch().blocks)
    return compute(longest, longest, device=device)


def patch_deberta(encoder: nn.Module, undo: ExitStack) -> None:
    """Replace the attention of DeBERTa v2 and v3, and what they compute for a whole row, until `undo` closes."""
    inner: Any = encoder.encoder
    patches: list[tuple[Any, str, Any]] = [
        (inner, "get_attention_mask", lambda mask: mask),
        (inner, "get_rel_pos", partial(_distances_of_longest, inner)),
    ]
    attentions = [layer.attention.self for layer in inner.layer]
    patches += [(attention, "forward", partial(_attend_deberta, attention)) for attention in attentions]
    for module, name, function in patches:
        module.__dict__[name] = function
        undo.callback(module.__dict__.pop, name)


def _distances_of_longest(encoder: Any, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor | None:
    if not encoder.relative_attention:
        return None
    length = 1 << (current_batch().longest - 1).bit_length()  # few of them: they are kept
    return find_distances(length, encoder.position_buckets, encoder.max_relative_positions, hidden.device)


@cache
def find_distances(length: int, buckets: int, most: int, device: torch.device) -> Tensor:
    """How far a key is before a query, in DeBERTa's buckets: (1, length, length). A graph cannot compute it, but read it."""
    texts: Any = torch.empty(length, 1)  # only its length counts
    return build_relative_position(texts, texts, bucket_size=buckets, max_position=most).to(device)


def _attend_deberta(
    attention: Any,
    hidden: Tensor,
    mask: Tensor | None = None,
    *args: Any,
    relative_pos: Tensor | None = None,
    rel_embeddings: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    heads = attention.num_attention_heads
    projections = attention.query_proj, attention.key_proj, attention.value_proj
    sides = [part(hidden).view(*hidden.shape[:-1], heads, -1).transpose(1, 2) for part in projections]
    parts = 1 + len({"c2p", "p2c"} & set(attention.pos_att_type))  # of a score: of contents, and by position
    masks: Masks | None = None
    if rel_embeddings is not None and relative_pos is not None:
        table = attention.pos_dropout(rel_embeddings)
        rows = [side.squeeze(0).transpose(0, 1) for side in sides[:2]]
        masks = [_bias_of_contents(attention, rows, block, relative_pos, table, parts) for block in current_batch().blocks]
    dropout = attention.dropout.p if attention.training else 0.0
    scaling = (sides[0].shape[-1] * parts) ** -0.5
    found, _ = attend(attention, *sides, dropout=dropout, scaling=scaling, masks=masks)
    return found.reshape(*hidden.shape[:-1], -1), None


def _bias_of_contents(
    attention: Any, rows: list[Tensor], block: Block, distances: Tensor, table: Tensor, parts: int
) -> Tensor | None:
    """What DeBERTa adds to the scores of a block's texts: (texts, heads, length, length). rows: queries and keys."""
    query, key = (_spread(side, block).flatten(0, 1) for side in rows)  # (texts · heads, length, width)
    bias = attention.disentangled_attention_bias(query, key, distances[:, : block.length, : block.length], table, parts)
    hidden = mask_block(block, query)
    if isinstance(bias, int):  # it has positions, and no part of a score that asks for them
        return hidden
    bias = bias.view(block.texts, -1, block.length, block.length).to(query.dtype)
    return bias if hidden is None else bias + hidden


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


AttentionInterface.register(NAME, attend)
