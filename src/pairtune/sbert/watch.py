"""Looking on while a model trains: batches as it sees them, how hard their negatives are, the path of the loss."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pairtune.ordering import Order
from pairtune.ordering.hardness import find_false_negatives, find_identical, inspect_batches
from pairtune.ordering.nearest import unit_rows
from pairtune.ordering.order import number_texts
from pairtune.runs.evidence import Hardness, Snapshot, Step, Watched, shorten
from pairtune.runs.folder import write_whole
from pairtune.sbert.callbacks import Clock
from pairtune.sbert.hard_batches import encode_column, find_samplers
from pairtune.sbert.mined import Filling
from pairtune.sbert.sampler import OrderedBatchSampler

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

WATCHED = "watched.json"
WATCHED_PAIRS = 256  # pairs of an epoch that are encoded: about 2 % of the work of training on 4,000
SHOWN_PAIRS = 64  # pairs of a batch that is shown
SHOWN_NEGATIVES = 2  # of each of these pairs
MOST_STEPS = 400  # points of the loss curve


class Watch(TrainerCallback):
    """Sees a few batches of every epoch before the first of them is trained on, and writes watched.json in the stage's folder.

    The training does not notice: dropout and random numbers are as they were, and the clock stands still. What an
    interrupted run has seen is taken up again.
    """

    def __init__(self, clock: Clock, positive_above: float) -> None:
        self.clock, self.positive_above = clock, positive_above
        self.watched = Watched()
        self._due = False

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Go on with what an interrupted run has seen."""
        self.watched = read_watched(Path(args.output_dir or "."))

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Look when the first step begins: by then the epoch has its order."""
        self._due = True

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Encode a sample of the epoch's batches, describe them, and keep one of them whole."""
        samplers = list(find_samplers(kwargs["train_dataloader"])) if self._due else []
        self._due = False
        if len(samplers) == 1 and len(samplers[0].columns) > 1:
            started = time.perf_counter()
            self._look(samplers[0], kwargs["model"], args, state, kwargs["train_dataloader"].collate_fn)
            self.clock.leave_out(time.perf_counter() - started)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Add the path of the loss, which the host has kept through every resume."""
        self._keep(args, state, steps=read_steps(state.log_history))

    def _look(
        self, sampler: OrderedBatchSampler, model: SentenceTransformer, args: TrainingArguments, state: TrainerState, collate: Any
    ) -> None:
        epoch, epochs = round(state.epoch or 0) + 1, int(args.num_train_epochs)
        sample = choose_batches(sampler.order_of_epoch(), sampler.size)
        rows = sampler.dataset[sample.rows.tolist()]
        texts = [list(rows[column]) for column in sampler.columns[:2]]
        vectors = [unit_rows(encode_column(sampler, place, texts[place], model, args)) for place in (0, 1)]
        label = next((rows[name] for name in sampler.valid_label_columns or [] if name in rows), None)
        positive = np.ones(len(sample.rows), bool) if label is None else np.asarray(label) > self.positive_above
        order = Order(np.arange(len(sample.rows)), sample.groups)
        hardness = {**self.watched.hardness, epoch: measure(epoch, order, sampler.size, vectors, texts, positive)}
        snapshots = dict(self.watched.snapshots)
        if epoch in (1, (epochs + 1) // 2, epochs):
            batch = middle_batch(len(order), sampler.size)
            seen = snapshot(epoch, order, batch, vectors, texts, positive)
            negatives = negatives_of(sampler, sample.rows[batch], collate)
            encoded = [encode_column(sampler, place, column, model, args) for place, column in enumerate(negatives, start=2)]
            snapshots[epoch] = add_negative_columns(seen, vectors[0][batch], negatives, encoded)
        self._keep(args, state, order=sampler.settings.by, hardness=hardness, snapshots=snapshots)

    def _keep(self, args: TrainingArguments, state: TrainerState, **changes: Any) -> None:
        self.watched = self.watched.model_copy(update=changes)
        if state.is_world_process_zero:
            write_whole(Path(args.output_dir or ".") / WATCHED, self.watched.model_dump_json())


def read_watched(folder: Path) -> Watched:
    """What was seen of a stage so far; nothing where there is no whole file."""
    try:
        return Watched.model_validate_json((folder / WATCHED).read_bytes())
    except (OSError, ValidationError):
        return Watched()


def read_steps(log: list[dict[str, Any]]) -> list[Step]:
    """The path of the loss from the host's log, thinned where it is long; a loss that is not a number is left out."""
    entries = [entry for entry in log if "loss" in entry and np.isfinite(entry["loss"])]
    every = -(-len(entries) // MOST_STEPS) or 1
    return [Step(epoch=entry["epoch"], loss=entry["loss"], temperature=entry.get("temperature")) for entry in entries[::every]]


def choose_batches(order: Order, size: int) -> Order:
    """Full batches, evenly spread over the epoch, as an order of their own: at most WATCHED_PAIRS pairs, or one batch.

    An epoch that has no full batch gives its only one.
    """
    full = len(order) // size
    count = min(full, max(1, WATCHED_PAIRS // size))
    chosen = [int((place + 0.5) * full / count) for place in range(count)] or [0]
    places = np.concatenate([np.arange(one * size, min((one + 1) * size, len(order))) for one in chosen])
    group = np.searchsorted(order.groups, places, side="right")  # which group each place of the order is in
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    return Order(order.rows[places], starts)


def middle_batch(pairs: int, size: int) -> slice:
    """The middle one of the chosen batches, cut to what can be shown."""
    start = pairs // size // 2 * size if pairs > size else 0
    return slice(start, min(start + min(size, SHOWN_PAIRS), pairs))


def measure(
    epoch: int, order: Order, size: int, vectors: list[np.ndarray], texts: list[list[str]], positive: np.ndarray
) -> Hardness:
    """How hard the negatives of the chosen batches are."""
    numbers = [number_texts(side)[1] for side in texts]
    found = inspect_batches(order, size, vectors[0], vectors[1], numbers[0], numbers[1], positive, examples=0)
    return Hardness(
        epoch=epoch,
        pairs=len(order),
        positive=found.positive_similarity,
        negative=found.negative_similarity,
        hardest=found.top_similarity,
        likely_false=found.likely_false_negatives,
    )


def snapshot(
    epoch: int, order: Order, batch: slice, vectors: list[np.ndarray], texts: list[list[str]], positive: np.ndarray
) -> Snapshot:
    """One batch with all its cosines."""
    similarity = vectors[0][batch] @ vectors[1][batch].T  # (m, m)
    left, right = (side[batch] for side in texts)
    suspects = find_false_negatives(similarity, find_identical(number_texts(left)[1], number_texts(right)[1]), positive[batch])
    return Snapshot(
        epoch=epoch,
        left=[shorten(text) for text in left],
        right=[shorten(text) for text in right],
        positive=positive[batch].tolist(),
        group=np.searchsorted(order.groups, np.arange(len(order))[batch], side="right").tolist(),
        similarity=np.round(similarity.astype(float), 3).tolist(),
        suspects=[(int(i), int(j)) for i, j in np.argwhere(suspects)],
    )


def negatives_of(sampler: OrderedBatchSampler, rows: np.ndarray, collate: Any) -> list[list[str]]:
    """The first columns of negatives of these rows: as they are given, or mined for the epoch."""
    names = [name for name in sampler.columns[2:] if name.startswith("negative_")][:SHOWN_NEGATIVES]
    columns = sampler.dataset[rows.tolist()]
    filled = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if isinstance(collate, Filling):
        filled = [collate.fill(row) for row in filled]
    return [[row[name] for row in filled] for name in names]


def add_negative_columns(seen: Snapshot, left: np.ndarray, negatives: list[list[str]], encoded: list[np.ndarray]) -> Snapshot:
    """The batch with the cosines of its left texts (m, n) with the negatives of all pairs, column by column."""
    if not negatives:
        return seen
    similarity = np.hstack([left @ unit_rows(column).T for column in encoded])  # (m, m × columns)
    texts = [shorten(text) for column in negatives for text in column]
    rows = [
        [*known, *further] for known, further in zip(seen.similarity, np.round(similarity.astype(float), 3).tolist(), strict=True)
    ]
    return seen.model_copy(update={"similarity": rows, "negatives": texts})
