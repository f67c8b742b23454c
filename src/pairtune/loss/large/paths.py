"""Which path a batch takes: the plain one, one stored matrix on a CPU, or tiles on a GPU."""

from __future__ import annotations

import math
import os
import shutil
import sys
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from pairtune.loss.large.fused import FusedLoss, FusedSetup
from pairtune.loss.large.layout import Layout
from pairtune.loss.terms import NORMALIZATIONS, without_autocast

FUSE_FROM = {"cpu": 512, "cuda": 4096}  # pairs; below, the plain path is as fast, and can be captured in a CUDA graph
WIDEST = 1024
EXPONENT = 125  # 2 to this and a little more is still a float32


@cache
def can_compile() -> bool:
    """Whether Triton can compile kernels for the GPU of this machine: it is installed, and finds a C compiler."""
    compiler = sys.platform == "win32" or os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")  # or brings one
    return find_spec("triton") is not None and bool(compiler) and torch.cuda.is_available()


def suits(left: Tensor, right: Tensor) -> bool:
    """Is the batch one for the fused loss: large, not too wide, in a precision below float64, not being compiled?"""
    kind, (pairs, width) = left.device.type, left.shape
    return (
        pairs >= FUSE_FROM.get(kind, math.inf)
        and width <= WIDEST
        and torch.float64 not in (left.dtype, right.dtype)
        and not torch.compiler.is_compiling()
        and (kind == "cpu" or can_compile())
    )


def fuse(
    left: Tensor, right: Tensor, temperature: float | Tensor, layout: Layout, normalize: str, divisor: float
) -> Tensor | None:
    """The sum of the layout's terms over the divisor; None where a CPU would need maxima: the plain path finds those."""
    capturing = left.is_cuda and torch.cuda.is_current_stream_capturing()
    maximum = capturing or not _fits(layout, _reach(left, right, temperature, normalize))
    if maximum and not left.is_cuda:
        return None
    setup = FusedSetup(layout, normalize, _operands(left, right), stored=not left.is_cuda, maximum=maximum, divisor=divisor)
    with without_autocast(left):
        found: Tensor = FusedLoss.apply(left, right, temperature, setup)
    return found


def _operands(left: Tensor, right: Tensor) -> torch.dtype:
    """bf16 on CUDA for bf16 embeddings and under bf16 autocast, otherwise float32."""
    autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    asked = autocast or left.dtype == right.dtype == torch.bfloat16
    return torch.bfloat16 if left.is_cuda and asked else torch.float32


def _reach(left: Tensor, right: Tensor, temperature: float | Tensor, normalize: str) -> float:
    """A bound of |S|, from the lengths of the vectors. Waits for the device where τ or those lengths are only known there."""
    with torch.no_grad():
        longest = 1.0
        if normalize != "l2":
            for side in (left, right):
                longest *= float(torch.linalg.vector_norm(NORMALIZATIONS[normalize](side.float()), dim=1).amax())
        return longest / float(temperature)


def _fits(layout: Layout, reach: float) -> bool:
    """Can 2^S be summed without a shift? A sum has at most m entries; where rows have counts, it is taken times that count."""
    return reach / math.log(2) + math.log2(layout.pairs) * (1 if layout.row_counts is None else 2) <= EXPONENT
