"""The host's batch sampler, with an order of ours."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch.utils.data import BatchSampler

from pairtune.errors import UserError
from pairtune.ordering import ORDERINGS, Order, Side, epoch_seed, order_pairs
from pairtune.ordering.order import count_batches, cut_batches, order_original
from pairtune.runs.recipe import OrderSettings

if TYPE_CHECKING:
    import torch
    from datasets import Dataset


class OrderedBatchSampler(DefaultBatchSampler):
    """Batches that are consecutive slices of an order.

    It keeps the order of the dataset, as an evaluation wants it, until `HardBatches` finds it in the training's data loader
    and sets `training`: the host builds both kinds in the same way and never says which one it is asking for.
    order: the order of the running epoch, where it depends on the model; `HardBatches` sets it before each epoch.
    shares: of how many processes each has an equal part of every batch; the parts come one after the other, as accelerate
    deals them out. With 1 each batch is one process's own.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        drop_last: bool,
        valid_label_columns: list[str] | None = None,
        generator: torch.Generator | None = None,
        seed: int = 0,
        *,
        settings: OrderSettings,
        shares: int = 1,
    ) -> None:
        super().__init__(dataset, batch_size, drop_last, valid_label_columns, generator, seed)
        self.size, self.shares = batch_size * shares, shares
        if shares > 1:
            self.batch_size = None  # type: ignore[assignment]  # accelerate would hold back parts of other sizes
        self.dataset = dataset
        self.settings = settings
        self.training = False
        self.order: Order | None = None

    def __iter__(self) -> Iterator[list[int]]:
        for rows in cut_batches(self.order_of_epoch(), self.size, self.drop_last):
            for part in np.array_split(rows, self.shares):
                yield part.tolist() or rows[:1].tolist()  # a filler: every process takes part in every step (`own_share`)

    def __len__(self) -> int:
        return count_batches(len(self.dataset), self.size, self.drop_last) * self.shares

    def own_share(self, step: int, place: int) -> tuple[int, int]:
        """How many pairs of a step's batch the process at this place has, and how many all have. step: from 0, of all epochs."""
        batch = step % count_batches(len(self.dataset), self.size, self.drop_last)
        pairs = min(self.size, len(self.dataset) - batch * self.size)
        return share_of(pairs, self.shares, place), pairs

    def set_epoch(self, epoch: int) -> None:
        """Begin another epoch; a model's order of the one before is no longer the order."""
        if epoch != self.epoch:
            self.order = None
        super().set_epoch(epoch)

    def order_of_epoch(self) -> Order:
        """The order that the batches are cut from: the same for the same data, seed and epoch."""
        if not self.training or self.as_it_came:
            return order_original(_count_only(len(self.dataset)), self.settings, self.seed)
        if self.order is None and self.needs_vectors:
            raise UserError(
                f"the order by {self.settings.by!r} needs the model, and none has encoded the texts for epoch {self.epoch + 1}: "
                f"`HardBatches` does that in a trainer of sentence-transformers"
            )
        if self.order is None:
            self.order = order_pairs(self.side, self.settings, self.epoch_seed)
        return self.order

    @property
    def epoch_seed(self) -> int:
        """The seed of the running epoch's order."""
        return epoch_seed(self.seed or 0, self.epoch)

    @property
    def as_it_came(self) -> bool:
        """Whether the running epoch keeps the order of the dataset."""
        return self.epoch == 0 and self.settings.first == "original"

    @property
    def needs_vectors(self) -> bool:
        """Whether the order depends on the model."""
        return ORDERINGS[self.settings.by].needs == "vectors"

    @cached_property
    def columns(self) -> list[str]:
        """The columns of texts, as the host's collator finds them: all but its label column."""
        names = [name for name in self.dataset.column_names if name != "dataset_name"]
        label = next((name for name in self.valid_label_columns or [] if name in names), None)
        return [name for name in names if name != label]

    @property
    def place(self) -> int:
        """Which of the columns the pairs are ordered by."""
        place = {"left": 0, "right": 1}[self.settings.side]
        if place >= len(self.columns):
            raise UserError(
                f"order.side is {self.settings.side!r}, but the dataset has the text columns {self.columns}: it takes two"
            )
        return place

    @cached_property
    def side(self) -> Side:
        """The texts that the pairs are ordered by, and those of the other side."""
        if ORDERINGS[self.settings.by].needs == "nothing":
            return _count_only(len(self.dataset))
        texts = list(self.dataset[self.columns[self.place]])
        other = list(self.dataset[self.columns[1 - self.place]]) if len(self.columns) > 1 else None
        return Side.of(texts, other)


class SharedSources(BatchSampler):
    """Batches of one source each, in the host's mixture of sources, of which every process has an equal part.

    mixture: yields whole batches. The parts come one after the other, as accelerate deals them out.
    """

    def __init__(self, mixture: Any, shares: int) -> None:
        self.batch_sampler, self.shares = mixture, shares
        self.batch_size, self.drop_last = None, False  # type: ignore[assignment]  # as `OrderedBatchSampler` has it
        self.sizes: list[int] = []  # of the epoch's batches so far

    def __iter__(self) -> Iterator[list[int]]:
        self.sizes = []
        for rows in self.batch_sampler:
            self.sizes.append(len(rows))
            for part in np.array_split(rows, self.shares):
                yield part.tolist() or rows[:1]  # a filler

    def __len__(self) -> int:
        return len(self.batch_sampler) * self.shares

    def own_share(self, step: int, place: int) -> tuple[int, int]:
        """As `OrderedBatchSampler.own_share`."""
        pairs = self.sizes[step % len(self.batch_sampler)]
        return share_of(pairs, self.shares, place), pairs

    def set_epoch(self, epoch: int) -> None:
        """Begin another epoch."""
        self.batch_sampler.set_epoch(epoch)


def share_of(pairs: int, shares: int, place: int) -> int:
    """How many pairs of a batch the process at this place has.

    >>> [share_of(8, 3, place) for place in range(3)]
    [3, 3, 2]
    """
    return pairs // shares + (place < pairs % shares)


def _count_only(count: int) -> Side:
    """A side for orders that look at nothing: no text is read."""
    return Side((), np.arange(count), np.arange(count))
