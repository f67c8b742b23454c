"""The losses as modules for sentence-transformers, which call the functions of `loss/`; and the one that a recipe asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses as host_losses
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss, TripletLoss
from torch import Tensor, nn

from pairtune.errors import UserError
from pairtune.loss.batch_softmax import batch_softmax_loss, check_choices, check_temperature
from pairtune.loss.pointwise import OF_LISTS, POINTWISE, cosent_loss, pearson_loss
from pairtune.runs.recipe import LossSettings
from pairtune.sbert.memory import Guide
from pairtune.sbert.raw import Batch, CutLoss, PairLoss, warn_of_unit_vectors
from pairtune.sbert.temperature import Temperature


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
