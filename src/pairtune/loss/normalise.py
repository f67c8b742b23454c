"""How embeddings are scaled before their dot products are taken (the paper's section "Normalization")."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CONSTANT = 1e-5  # a coordinate whose range is this small beside its largest value differs by rounding only
DEAD = 1e-2  # one this small beside the others, on average, carries nothing: all-MiniLM-L6-v2 has three, of 1e-33 to 1e-8


def scale_rows(vectors: Tensor) -> Tensor:
    """Each row divided by its L2 norm: dot products become cosines. (m, n) to (m, n); a row of zeros stays zeros."""
    return _divide(vectors, torch.linalg.vector_norm(vectors, dim=1, keepdim=True))


def scale_coordinates(vectors: Tensor) -> Tensor:
    """Each coordinate divided by its L2 norm over the batch. A dead one stays. (m, n) to (m, n)."""
    return _divide_alive(vectors, torch.linalg.vector_norm(vectors, dim=0, keepdim=True))


def stretch_coordinates(vectors: Tensor) -> Tensor:
    """Each coordinate stretched to 0…1 over the batch, (x − min) / (max − min). A constant one becomes 0. (m, n) to (m, n)."""
    return _divide_alive(vectors - vectors.amin(dim=0, keepdim=True), _range(vectors))


def divide_by_range(vectors: Tensor) -> Tensor:
    """Each coordinate divided by its range over the batch, x / (max − min). A constant one stays. (m, n) to (m, n).

    The paper says min-max; its released code does not subtract the minimum, and PFCC-S and QQP were trained so.
    """
    return _divide_alive(vectors, _range(vectors))


def keep(vectors: Tensor) -> Tensor:
    """The vectors as they are."""
    return vectors


NORMALISATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "l2": scale_rows,
    "l2-batch": scale_coordinates,
    "minmax-batch": stretch_coordinates,
    "range-batch": divide_by_range,
    "none": keep,
}


def _range(vectors: Tensor) -> Tensor:
    """max − min of each coordinate, and 0 where that is only rounding. (m, n) to (1, n)."""
    high, low = vectors.amax(dim=0, keepdim=True), vectors.amin(dim=0, keepdim=True)
    noise = CONSTANT * vectors.detach().abs().amax(dim=0, keepdim=True)
    return torch.where(high - low > noise, high - low, 0)


def _divide_alive(vectors: Tensor, divisor: Tensor) -> Tensor:
    # what is divided by almost nothing has a gradient of 1/almost nothing: after clipping, no other is left
    alive = divisor.detach() > DEAD * divisor.detach().mean()
    return _divide(vectors, torch.where(alive, divisor, 0))


def _divide(vectors: Tensor, divisor: Tensor) -> Tensor:
    # a divisor of 0 counts as 1: an epsilon there would give finite values but gradients of 1/epsilon
    return vectors / torch.where(divisor > torch.finfo(vectors.dtype).tiny, divisor, 1)
