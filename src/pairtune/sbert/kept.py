"""Embeddings kept from the training steps, so that the next epoch's order costs no encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from pairtune.sbert.vectors import gather_everywhere

Part = tuple[Sequence[int], Tensor, Tensor | None]  # rows, their vectors, and each one's own similarity

FLUSH_EVERY = 64  # batches that stay on the device before they are copied, so that no step waits for a copy


@dataclass
class Encoded:
    """vectors: (D, n) float32, one per distinct text of the side that pairs are ordered by.

    own: (N,) float32, the cosine of each pair's own two texts, or None where no margin is asked for.
    """

    vectors: np.ndarray
    own: np.ndarray | None = None


class Kept:
    """Watches the training steps and brings `encoded` up to date with what the model gave out in them.

    The embeddings of a step are those of its batch, column by column (all of the first column, then all of the second),
    whether the loss encodes the columns one by one, joined, or in small parts; what a cached loss encodes a second
    time comes after them and is not looked at. Texts that no step saw keep their older vector.
    """

    def __init__(self, encoded: Encoded, text: np.ndarray, columns: int, place: int) -> None:
        """text: (N,) the text of each pair. columns: how many are encoded in a step; place: the one ordered by."""
        self.encoded, self.text, self.columns, self.place = encoded, text, columns, place
        self.batches_kept = 0
        self._batches: Sequence[Sequence[int]] = ()
        self._next = 0
        self._seen: list[Tensor] = []
        self._waiting: list[Part] = []  # of single batches, on the device
        self._copied: list[Part] = []

    def begin_epoch(self, batches: Sequence[Sequence[int]], done: int) -> None:
        """batches: the rows of each batch of this process, of which `done` were trained on before a resume."""
        self._batches, self._next, self.batches_kept = batches, done, 0
        self._seen.clear()

    def see(self, embeddings: Tensor) -> None:
        """Embeddings of the running step, (k, n), in the order described above, in as many calls as there may be."""
        self._seen.append(embeddings.detach())

    def end_batch(self) -> None:
        """The step is over: file its embeddings under the rows of its batch."""
        rows = self._batches[self._next] if self._next < len(self._batches) else ()
        self._next += 1
        seen, self._seen = self._seen, []
        if not rows or sum(map(len, seen)) < self.columns * len(rows):
            return  # a loss that encodes in its own way: the caller finds out by `batches_kept`
        whole = seen[0] if len(seen) == 1 else torch.cat(seen)
        sides = whole[: self.columns * len(rows)].reshape(self.columns, len(rows), -1)  # (columns, m, n)
        own = torch.cosine_similarity(sides[0].float(), sides[1].float()) if self.encoded.own is not None else None
        self._waiting.append((rows, sides[self.place], own))
        self.batches_kept += 1
        if len(self._waiting) >= FLUSH_EVERY:
            self._copy()

    def flush(self) -> None:
        """Write what was seen, by any process, into `encoded`. All processes call it together."""
        self._copy()
        mine, self._copied = self._copied, []
        for rows, vectors, own in chain.from_iterable(gather_everywhere(mine)):
            self.encoded.vectors[self.text[rows]] = vectors.numpy()
            if self.encoded.own is not None and own is not None:
                self.encoded.own[rows] = own.numpy()

    def _copy(self) -> None:
        """What waits on the device as one part off it: a single copy, for each waits until all steps so far are done."""
        if self._waiting:
            rows = [row for some, _, _ in self._waiting for row in some]
            owns = [own for _, _, own in self._waiting if own is not None]
            vectors = torch.cat([vectors for _, vectors, _ in self._waiting]).float().cpu()
            self._copied.append((rows, vectors, torch.cat(owns).cpu() if owns else None))
            self._waiting = []
