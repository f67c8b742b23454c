"""The vectors of texts by the model as it is now, without leaving a trace in its training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from pairtune.encoders.embedding import embed

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Thing = TypeVar("Thing")


def encode_texts(
    model: SentenceTransformer,
    texts: Sequence[str],
    *,
    prompt: str | None = None,
    task: str | None = None,
    precision: torch.dtype | None = None,
) -> np.ndarray:
    """(D, n) float32: the embedding of each text, dropout off; every process encodes its share and ends with all of them.

    prompt, task: as the collator gives them in training. precision: that of the training step, where it is not float32.
    """
    rank, world = process_place()
    longest_first = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
    mine = longest_first[rank::world]
    with leave_no_trace(model), torch.autocast(model.device.type, dtype=precision, enabled=precision is not None):
        # no prompt is "", not the model's default one, which the collator does not add either
        some = [texts[place] for place in mine]
        vectors = embed(model, some, "encoding texts", prompt=prompt or "", task=task, quiet=rank > 0)
    return _join_shares(mine, vectors.cpu().numpy(), len(texts))


def _join_shares(places: list[int], vectors: np.ndarray, count: int) -> np.ndarray:
    shares = gather_everywhere((places, vectors))
    joined = np.empty((count, vectors.shape[1]), np.float32)
    for some, theirs in shares:
        joined[some] = theirs
    return joined


@contextmanager
def leave_no_trace(model: torch.nn.Module) -> Iterator[None]:
    """Afterwards each module is in the mode it was in, and torch's random numbers go on as if nothing had happened."""
    modes = [(module, module.training) for module in model.modules()]
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[device.index] if device.type == "cuda" else [], device_type="cuda"):
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training


def process_place() -> tuple[int, int]:
    """The number of this process, and of how many."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else (0, 1)


def gather_everywhere(mine: Thing) -> list[Thing]:
    """What each process holds, in their order, on every process."""
    _, world = process_place()
    if world == 1:
        return [mine]
    everyone: list[Any] = [None] * world
    dist.all_gather_object(everyone, mine)
    return everyone


def share_from_first(make: Callable[[], Thing]) -> Thing:
    """What the first process makes, on every process: two machines may round a sum differently, and must not disagree."""
    rank, world = process_place()
    box: list[Any] = [make() if rank == 0 else None]
    if world > 1:
        dist.broadcast_object_list(box)
    return box[0]
