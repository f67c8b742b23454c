"""A file that is already in order goes into training as it stands, without being loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pairtune.engines.files import open_source
from pairtune.errors import UserError

if TYPE_CHECKING:
    from datasets import IterableDataset


def stream(source: str, columns: Sequence[str] | None = None) -> IterableDataset:
    """The rows of Parquet files, in their order, read as they are needed: a `train_dataset` for the host's trainer.

    columns: which ones, in this order (all if not given). The host puts consecutive rows into a batch, takes no batch
    sampler with such a dataset, and cannot count it: give `max_steps`, rows // batch for one epoch. A
    `datasets.Dataset.from_parquet` can be counted and sampled, but first copies the whole file into its cache.
    """
    from datasets import IterableDataset

    opened = open_source(source)
    for column in columns or ():
        if column not in opened.schema.names:
            raise UserError(f"{source} has no column {column!r}; there are: {', '.join(opened.schema.names)}")
    chosen = list(columns) if columns is not None else None
    return IterableDataset.from_parquet(list(opened.files), columns=chosen)
