"""One record for each architecture that the step without padding knows, and what it needs of an encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Normalize, Pooling
from torch import nn

from pairtune.fast.attention import NAME, attending_within, flash_serves, patch_deberta, patch_mpnet, patch_t5
from pairtune.fast.packing import QUANTUM, Packed

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

LIKE_BERT = ("attention.output", "intermediate", "output")
NORMS = ("input_layernorm", "post_attention_layernorm")


@dataclass(frozen=True)
class Architecture:
    """What the step without padding has to know of an encoder.

    layers: where they are. parts: what of a layer is compiled for large batches: all but the attention, products with
    dropout, residuals, norms and activations. positions: a table from 0 on, a table that begins after the place of padding, or
    rotary ones, of which only differences count. patch: takes over an attention that does not ask transformers for
    its attention function. why_not: what a configuration may ask for that the step cannot do.
    """

    layers: str = "encoder.layer"
    parts: tuple[str, ...] = LIKE_BERT
    positions: Literal["table", "after padding", "rotary"] = "table"
    patch: Callable[[nn.Module, ExitStack], None] | None = None
    why_not: Callable[[Any], str | None] = lambda config: None

    def parts_of(self, encoder: nn.Module) -> list[nn.Module]:
        """The parts of all layers of an encoder."""
        return [attrgetter(part)(layer) for layer in attrgetter(self.layers)(encoder) for part in self.parts]


ARCHITECTURES = {
    "bert": Architecture(),
    "electra": Architecture(),
    "roberta": Architecture(positions="after padding"),
    "xlm-roberta": Architecture(positions="after padding"),
    "distilbert": Architecture(layers="transformer.layer", parts=("ffn",)),
    "mpnet": Architecture(parts=("intermediate", "output"), positions="after padding", patch=patch_mpnet),
    "albert": Architecture(layers="encoder.albert_layer_groups", parts=()),  # all layers are one, and compute in themselves
    "modernbert": Architecture(layers="layers", parts=("mlp",), positions="rotary"),
    "nomic_bert": Architecture(layers="layers", parts=("mlp",), positions="rotary"),
    "gte": Architecture(layers="layers", parts=("mlp",), positions="rotary"),
    "eurobert": Architecture(layers="layers", parts=("mlp", *NORMS), positions="rotary"),
    "jina_embeddings_v3": Architecture(layers="layers", parts=("mlp",), positions="rotary"),
    "llama": Architecture(layers="layers", parts=("mlp", *NORMS), positions="rotary"),
    "mistral": Architecture(layers="layers", parts=("mlp", *NORMS), positions="rotary"),
    "qwen2": Architecture(layers="layers", parts=("mlp", *NORMS), positions="rotary"),
    "qwen3": Architecture(layers="layers", parts=("mlp", *NORMS), positions="rotary"),
    "t5": Architecture(layers="encoder.block", parts=("layer.1",), patch=patch_t5),
    "deberta-v2": Architecture(  # and v3
        patch=patch_deberta,
        why_not=lambda config: "it convolves neighboring tokens" if getattr(config, "conv_kernel_size", 0) > 0 else None,
    ),
    "gemma3_text": Architecture(
        layers="layers",
        parts=("mlp", *NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm"),
        positions="rotary",
        why_not=lambda config: "its attention caps scores" if config.attn_logit_softcapping else None,
    ),
}

AFTER = (Pooling, Normalize, Dense, Dropout, LayerNorm)
POOLED = {"mean", "cls", "lasttoken", "max", "mean_sqrt_len_tokens"}


def why_padded(model: SentenceTransformer) -> str | None:
    """Why this encoder cannot go without padding, or None if it can."""
    first, *rest = model.children()
    if not isinstance(first, Transformer) or first.backend != "torch":
        return f"its first module is {type(first).__name__}, not a Transformer on torch"
    return _why_not_encoder(first.auto_model) or _why_not_tokens(first.tokenizer, first.auto_model) or _why_not_after(rest)


def _why_not_encoder(encoder: Any) -> str | None:
    known = ARCHITECTURES.get(encoder.config.model_type)
    if known is None:
        return f"its architecture is {encoder.config.model_type}; known: {', '.join(sorted(ARCHITECTURES))}"
    try:
        known.parts_of(encoder)
    except AttributeError as problem:
        return f"its layers are not those of {encoder.config.model_type} ({problem})"
    if "flash" in str(encoder.config._attn_implementation):
        return "its attention does without padding already"
    return "it checkpoints gradients" if encoder.is_gradient_checkpointing else known.why_not(encoder.config)


def _why_not_tokens(tokenizer: Any, encoder: Any) -> str | None:
    if tokenizer is None or not tokenizer.is_fast:
        return "its tokenizer is not a fast one"
    if tokenizer.padding_side == "left" and architecture_of(encoder).positions != "rotary":
        return "its texts are padded in front, which moves their positions"
    return None


def _why_not_after(modules: Sequence[nn.Module]) -> str | None:
    for module in modules:
        if not isinstance(module, AFTER):
            return f"it has the module {type(module).__name__}"
        if isinstance(module, Pooling):
            modes = {module.pooling_mode} if isinstance(module.pooling_mode, str) else set(module.pooling_mode)
            if modes - POOLED:
                return f"it pools by {', '.join(sorted(modes - POOLED))}; known: {', '.join(sorted(POOLED))}"
            if "max" in modes and any(isinstance(other, Dense | LayerNorm) for other in modules):
                return "it pools by max before other layers, where texts without tokens have no gradient"
    return None


def architecture_of(encoder: Any) -> Architecture:
    """The record of a model of transformers; `why_padded` has said that there is one."""
    return ARCHITECTURES[encoder.config.model_type]


def inner_encoder(model: SentenceTransformer) -> Any:
    """The model of transformers inside the host's."""
    first: Any = model[0]
    return first.auto_model


def first_position(model: SentenceTransformer) -> int:
    """The position of a text's first token."""
    encoder = inner_encoder(model)
    return encoder.embeddings.padding_idx + 1 if architecture_of(encoder).positions == "after padding" else 0


def lengths_to_capture(model: SentenceTransformer, precision: str) -> int:
    """What to round the longest text of a batch to: where a kernel takes any lengths, all batches can have the same."""
    encoder = inner_encoder(model)
    any_length = precision == "bf16" and architecture_of(encoder).patch is None and flash_serves(head_width(encoder.config))
    return int(model.max_seq_length or 512) if any_length else QUANTUM


def head_width(config: Any) -> int:
    """Numbers in a head of the attention."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


@contextmanager
def packed_attention(model: SentenceTransformer, batch: Packed) -> Iterator[None]:
    """Inside, the encoder's attention keeps the texts of this batch apart; afterwards all is as it was."""
    encoder = inner_encoder(model)
    config, before = encoder.config, encoder.config._attn_implementation
    patch = architecture_of(encoder).patch
    with ExitStack() as undo:
        undo.enter_context(attending_within(batch))
        undo.callback(setattr, config, "_attn_implementation", before)
        config._attn_implementation = NAME
        if patch is not None:
            patch(encoder, undo)
        yield
