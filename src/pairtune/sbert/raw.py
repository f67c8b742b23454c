"""What a loss sees: embeddings before a final `Normalize`, whole or cut, of the batches of all processes as one batch.

`PairLoss` is what the losses have in common: it encodes, joins the processes, cuts, and calls `loss_of`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from types import MethodType
from typing import Any

import torch
import torch.distributed as dist
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import CachedLossMixin, has_static_embedding_input
from sentence_transformers.base.losses.merged_forward import embed_columns
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor, nn

from pairtune.encoders.loading import check_dimensions
from pairtune.errors import UserError
from pairtune.loss.terms import check_labels, flat_labels, text_ids
from pairtune.processes import world_size
from pairtune.sbert.temperature import Temperature

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


CITATION = """
@inproceedings{chernyavskiy-etal-2022-batch,
    title = "Batch-Softmax Contrastive Loss for Pairwise Sentence Scoring Tasks",
    author = "Chernyavskiy, Anton and Ilvovsky, Dmitry and Kalinin, Pavel and Nakov, Preslav",
    booktitle = "Proceedings of the 2022 Conference of the North American Chapter of the Association for Computational Linguistics: Human Language Technologies",
    year = "2022",
    url = "https://aclanthology.org/2022.naacl-main.9",
}
"""  # noqa: E501


@dataclass(frozen=True)
class Batch:
    """What a loss needs beside the embeddings of its pairs. The host's cached forward hands it through as labels.

    ids: of each column. negatives: the embeddings of the columns after the second.
    """

    labels: Tensor | None
    ids: Sequence[Tensor] | None
    temperature: Tensor | None = None
    negatives: Sequence[Tensor] = ()


class PairLoss(CachedLossMixin, nn.Module):
    """A loss over a batch of (left, right) texts; a subclass gives `loss_of`.

    mini_batch_size: 0 encodes the batch at once; k encodes k texts at a time, twice, with the memory of k (GradCache).
    gather_across_devices: with several processes, the loss is that of their joined batch. On by default, since a
    loss over a batch would otherwise change with the number of processes; in one process it does nothing. Turn it off
    where the processes may be in different losses at the same step (a dict of losses under DDP).
    dimensions: the loss is the sum of those of the embeddings cut to each of these (Matryoshka); none: of whole ones.
    filler: the rows of this process do not count. It takes part in the step, where a batch has fewer pairs than processes.
    needs_ids: it must know which texts are equal. waits_for_device: so its steps cannot be captured as CUDA graphs.
    """

    needs_labels = False
    needs_ids = False
    waits_for_device = False
    takes_negatives = False

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        mini_batch_size: int = 0,
        gather_across_devices: bool = True,
        dimensions: Sequence[int] = (),
    ) -> None:
        super().__init__()
        if mini_batch_size < 0:
            raise UserError(
                f"mini_batch_size is {mini_batch_size}; give the number of texts to encode at a time, or 0 for all at once"
            )
        if mini_batch_size and has_static_embedding_input(model):
            raise UserError("mini_batch_size splits batches by rows, which a StaticEmbedding does not have: leave it at 0")
        check_dimensions(model, dimensions, "a number of dimensions")
        self.model = model
        self.dimensions = tuple(dimensions)
        self.mini_batch_size = mini_batch_size
        self.uses_gradient_cache = mini_batch_size > 0
        self.gather_across_devices = gather_across_devices
        self.filler = False
        self.temperature: Temperature | None = None

    def loss_of(self, left: Tensor, right: Tensor, batch: Batch) -> Tensor:
        """The loss of m pairs. left, right: (m, n). A scalar."""
        raise NotImplementedError

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """The loss of one batch as the host's trainer hands it over: tokenized columns, and labels or None."""
        features = list(sentence_features)
        self._check(features, labels)
        if labels is not None:
            check_labels(labels)
        # before encoding: modules of the host may change the features in place
        ids = [text_ids(column) for column in features] if self.needs_ids else None
        if self.uses_gradient_cache:
            return self._forward_in_parts(features, labels, ids)
        return self.compute_loss_from_embeddings(embed_columns(self.model, features), labels, ids)

    def compute_loss_from_embeddings(
        self, embeddings: Sequence[Tensor], labels: Tensor | None = None, ids: Sequence[Tensor] | None = None
    ) -> Tensor:
        """The loss of embeddings that are there already: left, right and any negatives, (m, n) each. ids: see `text_ids`."""
        self._check(embeddings, labels)
        left, right, *negatives = embeddings
        return self._loss_of_joined(left, right, Batch(labels, ids, negatives=negatives))

    def calculate_loss(self, reps: list[list[Tensor]], labels: Any = None, *, with_backward: bool = False) -> Tensor:
        """Called by the host's cached forward: the loss of the whole batch from the embeddings of its mini-batches."""
        left, right, *negatives = map(torch.cat, reps)
        loss = self._loss_of_joined(left, right, replace(labels, negatives=negatives))
        if with_backward:
            loss.backward()
            loss = loss.detach()
        return loss

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        own = {"mini_batch_size": self.mini_batch_size, "gather_across_devices": self.gather_across_devices}
        return own | ({"dimensions": list(self.dimensions)} if self.dimensions else {})

    @property
    def citation(self) -> str:
        """BibTeX of the paper, for the model card."""
        return CITATION

    def _check(self, columns: Sequence[Any], labels: Tensor | None) -> None:
        name = type(self).__name__
        if len(columns) < 2 or (len(columns) > 2 and not self.takes_negatives):
            more = ", and any number of negatives" if self.takes_negatives else ""
            raise UserError(
                f"{name} takes two columns of texts, left and right{more}, but the dataset has {len(columns)}: "
                f"choose them with select_columns; labels go in a column called label or score"
            )
        if labels is None and self.needs_labels:
            raise UserError(f"{name} compares cosines with labels, but the dataset has none: add a column called label or score")

    def _loss_of_joined(self, left: Tensor, right: Tensor, batch: Batch) -> Tensor:
        if not self.gather_across_devices or world_size() == 1:
            return self._loss_of_sizes(left, right, batch)
        left, right = (side.to(torch.promote_types(side.dtype, torch.float32)) for side in (left, right))
        # without labels every pair is positive, above any positive_above; another rank may have a dataset with labels
        labels = left.new_full((len(left),), torch.inf) if batch.labels is None else flat_labels(batch.labels, left).to(left)
        negatives = [side.to(left.dtype) for side in batch.negatives]
        columns = [left, right, labels, *negatives, *(batch.ids or ())]
        left, right, labels, *rest = join_ranks(*([column[:0] for column in columns] if self.filler else columns))
        negatives, ids = rest[: len(negatives)], rest[len(negatives) :]
        return self._loss_of_sizes(left, right, Batch(labels, ids or None, batch.temperature, negatives))

    def _loss_of_sizes(self, left: Tensor, right: Tensor, batch: Batch) -> Tensor:
        """The sum over `dimensions`, as the host's MatryoshkaLoss has it. Cut vectors stay raw: the loss normalizes them."""
        if not self.dimensions:
            return self.loss_of(left, right, batch)
        parts = []
        for size in self.dimensions:
            left_cut, right_cut, *negatives = (side[:, :size].contiguous() for side in (left, right, *batch.negatives))
            parts.append(self.loss_of(left_cut, right_cut, replace(batch, negatives=negatives)))
        return torch.stack(parts).sum()

    def _forward_in_parts(self, features: list[dict[str, Tensor]], labels: Tensor | None, ids: Any) -> Tensor:
        temperature = self.temperature() if self.temperature and torch.is_grad_enabled() else None
        if not isinstance(temperature, Tensor):
            return self.forward_cached(features, Batch(labels, ids))  # type: ignore[arg-type]
        # The host takes the gradient of the batch before the outer backward pass scales it (accumulation, fp16),
        # and passes that scale on to the encoder only. A copy of τ collects its gradient there, and is tied in here.
        copy = temperature.detach().requires_grad_()
        loss = self.forward_cached(features, Batch(labels, ids, copy))  # type: ignore[arg-type]
        assert copy.grad is not None
        return loss + (temperature - temperature.detach()) * copy.grad
