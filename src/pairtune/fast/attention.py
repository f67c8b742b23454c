"""Attention among texts that stand one after the other in a single row, for encoders that the host runs padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Normalize, Pooling
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from pairtune.fast.packing import QUANTUM, Block, Packed
from pairtune.loss.large.paths import can_compile

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

NAME = "pairtune_packed"
LONGEST_RELATIVE = 128  # tokens of a text that our kernel for MPNet takes
HIDDEN = -1e4  # added to scores that do not count: exp of it is 0, and a row of nothing else is still finite

KINDS = ("bert", "distilbert", "electra", "mpnet", "roberta", "xlm-roberta")  # all but mpnet ask transformers for their attention
AFTER_PADDING = ("mpnet", "roberta", "xlm-roberta")  # the table of positions begins after the place of padding
AFTER = (Pooling, Normalize, Dense, Dropout, LayerNorm)
POOLED = {"mean", "cls", "mean_sqrt_len_tokens"}

_batch: ContextVar[Packed] = ContextVar("batch")


class Sides(NamedTuple):
    """Of T tokens in a row, each (T, heads, width)."""

    query: Tensor
    key: Tensor
    value: Tensor


def why_padded(model: SentenceTransformer) -> str | None:
    """Why this encoder cannot go without padding, or None if it can."""
    first, *rest = model.children()
    if not isinstance(first, Transformer) or first.backend != "torch":
        return f"its first module is {type(first).__name__}, not a Transformer on torch"
    return _why_not_tokens(first.tokenizer) or _why_not_encoder(first.auto_model) or _why_not_after(rest)


def _why_not_tokens(tokenizer: Any) -> str | None:
    if tokenizer is None or not tokenizer.is_fast:
        return "its tokenizer is not a fast one"
    return None if tokenizer.padding_side == "right" else "its texts are padded in front, which moves their positions"


def _why_not_encoder(encoder: Any) -> str | None:
    if encoder.config.model_type not in KINDS:
        return f"its architecture is {encoder.config.model_type}; known: {', '.join(KINDS)}"
    if "flash" in str(encoder.config._attn_implementation):
        return "its attention does without padding already"
    return "it checkpoints gradients" if encoder.is_gradient_checkpointing else None


def _why_not_after(modules: Sequence[nn.Module]) -> str | None:
    for module in modules:
        if not isinstance(module, AFTER):
            return f"it has the module {type(module).__name__}"
        if isinstance(module, Pooling):
            modes = {module.pooling_mode} if isinstance(module.pooling_mode, str) else set(module.pooling_mode)
            if modes - POOLED:
                return f"it pools by {', '.join(sorted(modes - POOLED))}; known: {', '.join(sorted(POOLED))}"
    return None


def first_position(model: SentenceTransformer) -> int:
    """The position of a text's first token."""
    encoder = inner_encoder(model)
    return encoder.embeddings.padding_idx + 1 if encoder.config.model_type in AFTER_PADDING else 0


@cache
def relative_serves(width: int) -> bool:
    """Whether our kernel for a bias by relative position runs here, for heads of this width in bf16."""
    return can_compile() and torch.cuda.get_device_capability() >= (8, 0) and width in (16, 32, 64, 128)


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


def lengths_to_capture(model: SentenceTransformer, precision: str) -> int:
    """What to round the longest text of a batch to: where a kernel takes any lengths, all batches can have the same."""
    config = inner_encoder(model).config
    width = config.hidden_size // config.num_attention_heads
    any_length = precision == "bf16" and config.model_type != "mpnet" and flash_serves(width)
    return int(model.max_seq_length or 512) if any_length else QUANTUM


def inner_encoder(model: SentenceTransformer) -> Any:
    """The model of transformers inside the host's."""
    first: Any = model[0]
    return first.auto_model


@contextmanager
def packed_attention(model: SentenceTransformer, batch: Packed) -> Iterator[None]:
    """Inside, the encoder's attention keeps the texts of this batch apart; afterwards all is as it was."""
    encoder = inner_encoder(model)
    config, before = encoder.config, encoder.config._attn_implementation
    token = _batch.set(batch)
    with ExitStack() as undo:
        undo.callback(_batch.reset, token)
        undo.callback(setattr, config, "_attn_implementation", before)
        config._attn_implementation = NAME
        if config.model_type == "mpnet":
            _patch_mpnet(encoder, undo)
        yield


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    masks: Sequence[Tensor | None] | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Each text of the batch attends to itself. query, key, value: (1, heads, T, width) to (1, T, heads, width).

    masks: of each block, what is added to its scores, where that is more than `mask_padding`. The rest is transformers' own.
    """
    batch = _batch.get()
    sides = Sides(*(side.squeeze(0).transpose(0, 1) for side in (query, key, value)))
    half = query.is_cuda and query.dtype in (torch.bfloat16, torch.float16)
    if masks is None and half and flash_serves(query.shape[-1]):
        return _attend_flash(sides, batch, dropout, scaling)[None], None
    given = masks or [mask_padding(block, query.dtype) for block in batch.blocks]
    parts = [_attend_block(sides, block, dropout, scaling, mask) for block, mask in zip(batch.blocks, given, strict=True)]
    return torch.cat(parts)[None] if len(parts) > 1 else parts[0][None], None


def _attend_flash(sides: Sides, batch: Packed, dropout: float, scaling: float | None) -> Tensor:
    """(T, heads, width) by the kernel for texts of different lengths; `varlen_attn` is the same without dropout."""
    starts, longest = batch.starts, batch.longest
    operator = torch.ops.aten._flash_attention_forward
    return operator(*sides, starts, starts, longest, longest, dropout, False, False, scale=scaling)[0]


def _attend_block(sides: Sides, block: Block, dropout: float, scaling: float | None, mask: Tensor | None) -> Tensor:
    """The tokens of one block, (tokens, heads, width): moved to where they would be with padding, and back."""
    rest = sides.query.shape[1:]
    shape = (block.texts, block.length, *rest)
    query, key, value = (_pad(side[block.first : block.last], block).view(shape).transpose(1, 2) for side in sides)
    found = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling)
    found = found.transpose(1, 2).reshape(-1, *rest)
    return found if block.slots is None else _Unpad.apply(found, block.slots)


def mask_padding(block: Block, dtype: torch.dtype) -> Tensor | None:
    """What hides the padding of a block: (texts, 1, 1, length), added to its scores; None where there is none."""
    if block.lengths is None:
        return None
    beyond = torch.arange(block.length, device=block.lengths.device) >= block.lengths[:, None]  # (texts, length)
    return torch.where(beyond, HIDDEN, 0.0).to(dtype)[:, None, None, :]


def _pad(side: Tensor, block: Block) -> Tensor:
    return side if block.slots is None else _Pad.apply(side, block.slots, block.texts * block.length)


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


def _patch_mpnet(encoder: nn.Module, undo: ExitStack) -> None:
    """MPNet computes its attention itself, with a bias by relative position that is the same in all layers."""
    inner: Any = encoder.encoder
    compute = inner.compute_position_bias

    def compute_once(hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor | list[Tensor]:
        batch, width = _batch.get(), inner.layer[0].attention.attn.attention_head_size
        blocks = batch.blocks
        dtype = torch.get_autocast_dtype(hidden.device.type) if torch.is_autocast_enabled(hidden.device.type) else hidden.dtype
        if hidden.is_cuda and dtype != torch.float32 and batch.longest <= LONGEST_RELATIVE and relative_serves(width):
            return compute(hidden.new_empty(1, batch.longest, 0)).squeeze(0).float().contiguous()
        bias = compute(hidden.new_empty(1, max(block.length for block in blocks), 0)).to(dtype)  # (1, heads, length, length)
        cut = [bias[:, :, : block.length, : block.length] for block in blocks]
        return [
            one if block.lengths is None else one + mask_padding(block, dtype) for one, block in zip(cut, blocks, strict=True)
        ]

    patches: list[tuple[Any, str, Any]] = [(inner, "compute_position_bias", compute_once)]
    patches += [(layer.attention.attn, "forward", partial(_attend_mpnet, layer.attention.attn)) for layer in inner.layer]
    for module, name, function in patches:
        module.__dict__[name] = function
        undo.callback(module.__dict__.pop, name)


def _attend_mpnet(
    attention: Any, hidden: Tensor, mask: Tensor | None = None, position_bias: Tensor | list[Tensor] | None = None, **kwargs: Any
) -> tuple[Tensor]:
    width = attention.attention_head_size
    sides = [part(hidden).view(*hidden.shape[:-1], -1, width) for part in (attention.q, attention.k, attention.v)]
    dropout = attention.dropout.p if attention.training else 0.0
    if isinstance(position_bias, Tensor):
        from pairtune.fast.relative import RelativeAttention

        rows = [side.squeeze(0) for side in sides]
        found = RelativeAttention.apply(*rows, position_bias, _batch.get().starts, dropout, width**-0.5)
    else:
        found, _ = attend(attention, *(side.transpose(1, 2) for side in sides), dropout=dropout, masks=position_bias)
    return (attention.o(found.reshape(*hidden.shape[:-1], -1)),)


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """The texts are kept apart by `attend`; transformers need not make a mask."""


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, _no_mask)
