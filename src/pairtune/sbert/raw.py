"""What the loss sees: embeddings before a final `Normalize`, which only what evaluates or loads the model applies."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

UNIT = 1e-3  # how far the length of a unit vector may be from 1, in bf16 too


def final_normalizations(model: SentenceTransformer) -> list[Any]:
    """The modules that give a text's embedding length 1 and that nothing follows; most models have one or none."""
    return list(takewhile(normalizes_embeddings, reversed(list(model.children()))))


def normalizes_embeddings(module: torch.nn.Module) -> bool:
    """Whether this is a `Normalize` of embeddings of whole texts, in place."""
    names = getattr(module, "module_input_name", None), getattr(module, "module_output_name", None)
    return isinstance(module, Normalize) and names == ("sentence_embedding", "sentence_embedding")


@contextmanager
def raw_embeddings(model: SentenceTransformer) -> Iterator[None]:
    """Inside, a final `Normalize` does nothing while the model trains; evaluated or saved, the model is as it was.

    The module stays where it is, so every checkpoint and the saved folder have it.
    """
    modules = final_normalizations(model)
    try:
        for module in modules:
            module.__dict__["forward"] = MethodType(_normalize_in_evaluation, module)
        yield
    finally:
        for module in modules:
            module.__dict__.pop("forward", None)


def _normalize_in_evaluation(module: Normalize, features: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
    return features if module.training else Normalize.forward(module, features, **kwargs)


def warn_of_unit_vectors(vectors: Tensor, normalize: str) -> None:
    """Say that a setting which works on raw vectors got unit ones. vectors: (m, n). Waits for the device: ask once."""
    if bool((torch.linalg.vector_norm(vectors.detach().float(), dim=1) - 1).abs().max() < UNIT):
        warnings.warn(
            f"normalize={normalize!r} works on raw embeddings, but this model's have length 1: "
            f"train without its final Normalize module, and put it back before saving (`pairtune train` does both)",
            stacklevel=2,
        )
