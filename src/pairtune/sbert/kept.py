"""Embeddings kept from the training steps, so that the next epoch's order costs no encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pairtune.sbert.vectors import gather_everywhere, process_place

Part = tuple[Sequence[int], Tensor, Tensor | None]  # rows, their vectors, and each one's own similarity

FILE_EVERY = 64  # batches whose embeddings wait to be filed together
AT_HAND = 2**28  # numbers of all embeddings that may stay on the device, where the search wants them: 1 GB


@dataclass
class Encoded:
    """vectors: (D, n) float32, one per distinct text of the side that pairs are ordered by.

    own: (N,) float32, the cosine of each pair's own two texts, or None where no margin is asked for.
    """

    vectors: Tensor
    own: Tensor | None = None

    def to(self, device: torch.device) -> Encoded:
        """The same on a device."""
        return Encoded(self.vectors.to(device), None if self.own is None else self.own.to(device))

    def arrays(self) -> dict[str, np.ndarray]:
        """What there is, by name, off the device."""
        return {name: value.cpu().numpy() for name, value in vars(self).items() if value is not None}


class Kept:
    """Watches the training steps and brings `encoded` up to date with what the model gave out in them.

    The embeddings of a step are those of its batch, column by column (all of the first column, then all of the second),
    whether the loss encodes the columns one by one, joined, or in small parts; what a cached loss encodes a second
    time comes after them and is not looked at. Texts that no step saw keep their older vector.
    """

    def __init__(self, encoded: Encoded, text: np.ndarray, columns: int, place: int, device: torch.device) -> None:
        """text: (N,) the text of each pair. columns: how many are encoded in a step; place: the one ordered by.

        device: that of the training. `encoded` moves there, or off it where it is large.
        """
        self.encoded = encoded.to(device if encoded.vectors.numel() <= AT_HAND else torch.device("cpu"))
        self.text, self.columns, self.place = text, columns, place
        self.batches_kept = 0
        self._batches: Sequence[Sequence[int]] = ()
        self._next = 0
        self._seen: list[Tensor] = []
        self._waiting: list[Part] = []  # of single batches, on the device
        self._joined: list[Part] = []  # of several, for all processes

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
        if len(self._waiting) >= FILE_EVERY:
            self._file()

    def flush(self) -> None:
        """Bring `encoded` up to date with what any process saw. All processes call it together."""
        self._file()
        mine, self._joined = self._joined, []
        for parts in gather_everywhere(mine) if process_place()[1] > 1 else ():
            for part in parts:
                self._write(*part)

    def _file(self) -> None:
        """What waits goes into `encoded`, or with several processes off the device, until they meet."""
        if self._waiting:
            rows = [row for some, _, _ in self._waiting for row in some]
            vectors = torch.cat([vectors for _, vectors, _ in self._waiting]).float()
            owns = [own for _, _, own in self._waiting if own is not None]
            own, self._waiting = torch.cat(owns) if owns else None, []
            if process_place()[1] > 1:
                self._joined.append((rows, vectors.cpu(), None if own is None else own.cpu()))
            else:
                self._write(rows, vectors, own)

    def _write(self, rows: Sequence[int], vectors: Tensor, own: Tensor | None) -> None:
        """Of a text that was seen more than once the last vector stays; each place is written once, on a GPU too."""
        device = self.encoded.vectors.device
        texts, back = np.unique(self.text[rows][::-1], return_index=True)
        last = torch.from_numpy(len(rows) - 1 - back).to(vectors.device)
        self.encoded.vectors[torch.from_numpy(texts).to(device)] = vectors[last].to(device)
        if self.encoded.own is not None and own is not None:
            self.encoded.own[torch.tensor(rows, device=device)] = own.to(device)
