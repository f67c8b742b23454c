"""Compiled parts of an encoder's layers, for batches so large that kernels take the time, and not their launches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from operator import attrgetter
from typing import Any

import torch
from torch import nn

LEAST_TOKENS = 8_192  # in a batch; below, a captured step is as fast

# What follows the attention in a layer, by the encoder's kind: products with dropout, residuals, norms and activations.
LAYERS = {"distilbert": "transformer.layer"}
PARTS = {"distilbert": ("ffn",), "mpnet": ("intermediate", "output")}
LIKE_BERT = ("attention.output", "intermediate", "output")


@cache
def compile_part(forward: Any) -> Any:
    """One compiled function for all layers: their parameters are arguments, and the number of tokens may vary."""
    return torch.compile(forward, dynamic=True)


@contextmanager
def compiled_parts(encoder: Any) -> Iterator[None]:
    """Inside, the parts of the encoder's layers run compiled; afterwards all is as it was."""
    kind = encoder.config.model_type
    layers = attrgetter(LAYERS.get(kind, "encoder.layer"))(encoder)
    parts: list[nn.Module] = [attrgetter(name)(layer) for layer in layers for name in PARTS.get(kind, LIKE_BERT)]
    try:
        for part in parts:
            part.__dict__["forward"] = compile_part(type(part).forward).__get__(part)
        yield
    finally:
        for part in parts:
            part.__dict__.pop("forward", None)
