"""The losses as modules for sentence-transformers: they encode, join the processes, and call the functions of `loss/`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import CachedLossMixin, has_static_embedding_input
from sentence_transformers.base.losses.merged_forward import embed_columns
from sentence_transformers.sentence_transformer import losses as host_losses
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss, TripletLoss
from torch import Tensor, nn

from pairtune.encoders.loading import check_dimensions
from pairtune.errors import UserError
from pairtune.loss.batch_softmax import batch_softmax_loss, check_choices, check_temperature
from pairtune.loss.pointwise import OF_LISTS, POINTWISE, cosent_loss, pearson_loss
from pairtune.loss.terms import check_labels, flat_labels, text_ids
from pairtune.processes import world_size
from pairtune.runs.recipe import LossSettings
from pairtune.sbert.memory import Guide
from pairtune.sbert.raw import CutLoss, join_ranks, warn_of_unit_vectors
from pairtune.sbert.temperature import Temperature

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


class PearsonLoss(PairLoss):
    """1 − r between the cosines of the batch and its labels: see `pearson_loss`."""

    needs_labels = True

    def loss_of(self, left: Tensor, right: Tensor, batch: Batch) -> Tensor:
        """`pearson_loss` of the batch."""
        assert batch.labels is not None
        return pearson_loss(left, right, batch.labels)


class CosentLoss(PairLoss):
    """Pairs with lower labels should have lower cosines: see `cosent_loss`. The value of the host's `CoSENTLoss`."""

    needs_labels = True

    def loss_of(self, left: Tensor, right: Tensor, batch: Batch) -> Tensor:
        """`cosent_loss` of the batch."""
        assert batch.labels is not None
        return cosent_loss(left, right, batch.labels)


class BatchSoftmaxLoss(PairLoss):
    """The batch-softmax contrastive loss: see `batch_softmax_loss` for its settings.

    learn_temperature makes τ a parameter, log τ, with its own learning rate. Any trainer of sentence-transformers clips, saves
    and restores it with the encoder.
    Without a label column every pair is positive. Texts count as duplicates when their token ids are equal.
    Columns after the second are negatives of all rows: they stay in the denominators of L0.
    guide: vectors of the texts by the original encoder. In-batch negatives that are closer there than the positive, by more than
    guide_margin, do not count: they may be false negatives.
    fused: as in `batch_softmax_loss`.
    """

    temperature: Temperature
    takes_negatives = True

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.1,
        learn_temperature: bool = False,
        temperature_learning_rate: float = 1e-3,
        normalize: str = "l2",
        positive_above: float = 0.5,
        reduction: str = "sum",
        directions: str = "both",
        duplicates: str = "keep",
        guide: Guide | None = None,
        guide_margin: float = 0.0,
        mini_batch_size: int = 0,
        gather_across_devices: bool = True,
        dimensions: Sequence[int] = (),
        fused: bool | None = None,
    ) -> None:
        how: dict[str, Any] = {"mini_batch_size": mini_batch_size, "gather_across_devices": gather_across_devices}
        super().__init__(model, dimensions=dimensions, **how)
        self.fused = fused
        words = {"normalize": normalize, "reduction": reduction, "directions": directions, "duplicates": duplicates}
        check_choices(**words)
        check_temperature(temperature)
        self.options: dict[str, Any] = {"positive_above": positive_above, **words}
        self.guide, self.guide_margin = guide, guide_margin
        self.needs_ids = self.waits_for_device = duplicates == "mask" or guide is not None
        self.temperature = Temperature(temperature, learned=learn_temperature, rate=temperature_learning_rate)
        self._needs_raw = normalize != "l2"  # until a batch was looked at

    def loss_of(self, left: Tensor, right: Tensor, batch: Batch) -> Tensor:
        """`batch_softmax_loss` of the batch."""
        if self._needs_raw:
            self._needs_raw = False
            warn_of_unit_vectors(left, self.options["normalize"])
        left_ids, right_ids, *negative_ids = batch.ids or (None, None)
        temperature = self.temperature() if batch.temperature is None else batch.temperature
        return batch_softmax_loss(
            left,
            right,
            batch.labels,
            temperature=temperature,
            left_ids=left_ids,
            right_ids=right_ids,
            guide=self.guide.similarity(*batch.ids[:2]) if self.guide and batch.ids else None,
            guide_margin=self.guide_margin,
            negatives=batch.negatives,
            negative_ids=[ids for ids in negative_ids if ids is not None],
            fused=self.fused,
            **self.options,
        )

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card; a learned temperature as it is now."""
        learned = self.temperature.log is not None
        own = {"temperature": self.temperature.value, "learn_temperature": learned, **self.options}
        own |= {"guide_margin": self.guide_margin} if self.guide else {}
        return own | super().get_config_dict()


class ComboLoss(BatchSoftmaxLoss):
    """μ·BSC + (1 − μ)·pointwise (eq. 6), with `mix` for μ and all settings of `BatchSoftmaxLoss`.

    The pointwise part, one of `POINTWISE`, is over all pairs and over cosines of the raw embeddings, whatever BSC uses.
    """

    needs_labels = True

    def __init__(self, model: SentenceTransformer, *, mix: float = 0.5, pointwise: str = "mse", **bsc: Any) -> None:
        super().__init__(model, **bsc)
        if not 0 <= mix <= 1:
            raise UserError(f"mix is {mix}; μ weighs the two losses: give a value from 0 (pointwise only) to 1 (BSC only)")
        if pointwise not in POINTWISE:
            raise UserError(f"unknown pointwise {pointwise!r}; known: {', '.join(POINTWISE)}")
        self.mix, self.pointwise = mix, pointwise
        self.needs_ids = self.needs_ids or pointwise in OF_LISTS

    def loss_of(self, left: Tensor, right: Tensor, batch: Batch) -> Tensor:
        """Both parts on one batch, encoded once."""
        assert batch.labels is not None
        pointwise = POINTWISE[self.pointwise](left, right, batch.labels, *self._lists(batch))
        return self.mix * super().loss_of(left, right, batch) + (1 - self.mix) * pointwise

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card; a learned temperature as it is now."""
        return {"mix": self.mix, "pointwise": self.pointwise} | super().get_config_dict()

    def _lists(self, batch: Batch) -> Sequence[Tensor]:
        """Which left texts are equal, for a pointwise part that must know."""
        if self.pointwise not in OF_LISTS:
            return ()
        if not batch.ids:
            raise UserError(f"{self.pointwise} must know which left texts are equal: give compute_loss_from_embeddings ids=…")
        return batch.ids[:1]


BSC = (
    "temperature",
    "learn_temperature",
    "temperature_learning_rate",
    "normalize",
    "positive_above",
    "reduction",
    "directions",
    "duplicates",
    "mini_batch_size",
)

LOSSES: dict[str, Callable[[SentenceTransformer, LossSettings, dict[str, Any]], nn.Module]] = {
    "bsc": lambda model, settings, more: BatchSoftmaxLoss(model, **settings.model_dump(include={*BSC}), **more),
    "combo": lambda model, settings, more: ComboLoss(model, **settings.model_dump(include={*BSC, "mix", "pointwise"}), **more),
    "pearson": lambda model, settings, more: PearsonLoss(model, **_of_every_loss(settings, more)),
    "cosent": lambda model, settings, more: CosentLoss(model, **_of_every_loss(settings, more)),
    "mse": lambda model, settings, more: _at_dimensions(model, CosineSimilarityLoss(model), more),
    "triplet": lambda model, settings, more: _at_dimensions(model, TripletLoss(model, triplet_margin=settings.margin), more),
    "host": lambda model, settings, more: _at_dimensions(model, host_loss(settings.host)(model), more),
}
FURTHER_LOSSES: dict[str, Callable[[SentenceTransformer], nn.Module]] = {}  # a program's own, which `loss.host` may name too


def host_loss(name: str) -> Callable[[SentenceTransformer], nn.Module]:
    """The loss of sentence-transformers that a recipe names, or one that the program has put into FURTHER_LOSSES."""
    found = FURTHER_LOSSES.get(name) or getattr(host_losses, name, None)
    if not hasattr(found, "compute_loss_from_embeddings"):
        known = [one for one in host_losses.__all__ if hasattr(getattr(host_losses, one), "compute_loss_from_embeddings")]
        raise UserError(f"loss.host is {name!r}; known: {', '.join([*FURTHER_LOSSES, *known])}")
    return found  # type: ignore[return-value]  # checked by what the fast step calls


def _of_every_loss(settings: LossSettings, more: dict[str, Any]) -> dict[str, Any]:
    return {"mini_batch_size": settings.mini_batch_size, "dimensions": more["dimensions"]}


def _at_dimensions(model: SentenceTransformer, loss: nn.Module, more: dict[str, Any]) -> nn.Module:
    return CutLoss(model, loss, more["dimensions"]) if more["dimensions"] else loss


def build_loss(
    model: SentenceTransformer,
    settings: LossSettings,
    *,
    texts: Callable[[], Sequence[str]] | None = None,
    dimensions: Sequence[int] = (),
    fused: bool | None = None,
) -> nn.Module:
    """The loss that a recipe asks for. mse and triplet are the host's own, which look at one row at a time.

    Theirs is no cached form: `mini_batch_size` concerns them in the fast step only, which goes through any batch in parts.
    texts: gives those that will be trained on, for the vectors of a guide. dimensions: as `train.dimensions` has them.
    """
    more: dict[str, Any] = {"fused": fused, "dimensions": dimensions}
    if settings.guide is not None:
        if texts is None:
            raise UserError("loss.guide needs the texts that are trained on: give build_loss texts=…")
        more |= {"guide": Guide.of(model, texts()), "guide_margin": settings.guide}
    return LOSSES[settings.kind](model, settings, more)
