"""Compiled parts of an encoder's layers, for batches so large that kernels take the time, and not their launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import nn

LEAST_TOKENS = 8_192  # in a batch; below, a captured step is as fast


@cache
def compile_part(forward: Any) -> Any:
    """One compiled function for all layers: their parameters are arguments, and the number of tokens may vary."""
    return torch.compile(forward, dynamic=True)


@contextmanager
def compiled(parts: Sequence[nn.Module]) -> Iterator[None]:
    """Inside, these parts of an encoder's layers run compiled; afterwards all is as it was."""
    try:
        for part in parts:
            part.__dict__["forward"] = compile_part(type(part).forward).__get__(part)
        yield
    finally:
        for part in parts:
            part.__dict__.pop("forward", None)
