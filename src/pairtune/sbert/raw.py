"""What the loss sees: embeddings before a final `Normalize`, whole or cut, of the batches of all processes as one batch."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from sentence_transformers.base.losses.merged_forward import embed_columns
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor, nn

from pairtune.processes import world_size

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


@contextmanager
def unnormalized(model: SentenceTransformer) -> Iterator[None]:
    """Inside, a final `Normalize` does nothing at all: vectors have their own lengths."""
    before = {module: vars(module).get("forward") for module in final_normalizations(model)}
    try:
        for module in before:
            vars(module)["forward"] = lambda features, **kwargs: features
        yield
    finally:
        for module, forward in before.items():
            vars(module).pop("forward")
            vars(module).update({"forward": forward} if forward else {})


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


class CutLoss(MatryoshkaLoss):
    """The host's MatryoshkaLoss of a loss of the host's, which the fast step can ask too: one pass over the embeddings."""

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """The loss of one batch as the host's trainer hands it over."""
        return self.compute_loss_from_embeddings(embed_columns(self.model, list(sentence_features)), labels)

    def compute_loss_from_embeddings(self, embeddings: Sequence[Tensor], labels: Tensor | None = None) -> Tensor:
        """The sum over the dimensions, each of unit vectors."""
        loss: Any = self.loss
        sizes = [[nn.functional.normalize(side[:, :size], dim=1) for side in embeddings] for size in self.matryoshka_dims]
        return torch.stack([loss.compute_loss_from_embeddings(sides, labels) for sides in sizes]).sum()


def join_ranks(*columns: Tensor) -> list[Tensor]:
    """Each column with the rows of every process below each other, in the order of the ranks; gradients flow back.

    columns: (m, …) on each process, where m may differ from process to process but not from column to column.
    The gradient is whole after DDP's averaging, provided that every process computes the same loss of the joined rows.
    """
    rows = torch.tensor([len(columns[0])], device=columns[0].device)
    counts = [torch.zeros_like(rows) for _ in range(world_size())]
    dist.all_gather(counts, rows)
    return [_JoinRanks.apply(column, [int(count) for count in counts]) for column in columns]


class _JoinRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        padded = local.new_zeros(max(counts), *local.shape[1:])  # all_gather wants equal shapes
        padded[: len(local)] = local
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        # Each rank holds the gradient of the one joined loss; DDP divides by the number of ranks, this undoes it.
        own = gradients[0].split(ctx.counts)[dist.get_rank()]
        return own * len(ctx.counts), None
