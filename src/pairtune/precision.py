"""How a GPU multiplies float32, for the length of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal


@contextmanager
def float32_products(how: Literal["ieee", "tf32"]) -> Iterator[None]:
    """Inside, as float32 (whatever was allowed before) or by the TF32 units: 10 bits of each factor, sums in float32."""
    import torch

    products: Any = torch.backends.cuda.matmul  # not torch.set_float32_matmul_precision: torch refuses to mix the two
    before = products.fp32_precision
    products.fp32_precision = how
    try:
        yield
    finally:
        products.fp32_precision = before
