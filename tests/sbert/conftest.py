"""Two processes that train together, started once for all tests of them."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def two_ranks(tiny_encoder, tmp_path_factory):
    """What each of the two processes found."""
    import torch

    import ddp_worker
    from ranks import run_two_ranks

    out = tmp_path_factory.mktemp("ddp")
    run_two_ranks(ddp_worker.__file__, tiny_encoder, out, logs=out)
    return [torch.load(out / f"{rank}.pt") for rank in range(2)]
