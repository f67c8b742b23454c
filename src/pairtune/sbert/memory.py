"""Vectors that are remembered while a model trains: its own of the last steps, and those of the original encoder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from pairtune.encoders.embedding import encode_texts
from pairtune.loss.terms import text_ids
from pairtune.processes import gather_everywhere, world_size

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Part = tuple[np.ndarray, Tensor, Tensor | None]  # rows, their vectors, and each one's own similarity

WAITING = 2**24  # numbers of embeddings that wait to be filed together: 64 MB
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

    def __init__(
        self,
        encoded: Encoded,
        text: np.ndarray,
        columns: int,
        place: int,
        device: torch.device,
        *,
        at_hand: int = AT_HAND,
        waiting: int = WAITING,
    ) -> None:
        """text: (N,) the text of each pair. columns: how many are encoded in a step; place: the one ordered by.

        device: that of the training. `encoded` moves there, or off it where it holds more numbers than `at_hand`.
        """
        self.encoded = encoded.to(device if encoded.vectors.numel() <= at_hand else torch.device("cpu"))
        self.text, self.columns, self.place = text, columns, place
        self.batches_kept = 0
        self._batches: Sequence[Sequence[int]] = ()
        self._next = 0
        self._seen: list[Tensor] = []
        self._waiting: list[tuple[Sequence[int], list[Tensor]]] = []  # batches: rows, and all that was seen
        self._numbers, self._most_waiting = 0, waiting  # that wait, and when they are filed
        self._joined: list[Part] = []  # of many batches, for all processes
        self._last = np.empty(len(encoded.vectors), np.int64)  # of each text, where it was written last; room to work in

    def begin_epoch(self, batches: Sequence[Sequence[int]], done: int) -> None:
        """batches: the rows of each batch of this process, of which `done` were trained on before a resume."""
        self._batches, self._next, self.batches_kept = batches, done, 0
        self._seen.clear()

    def see(self, embeddings: Tensor) -> None:
        """Embeddings of the running step, (k, n), in the order described above, in as many calls as there may be."""
        self._seen.append(embeddings.detach())

    def end_batch(self) -> None:
        """The step is over: its embeddings belong to the rows of its batch. As little as possible: this is in every step."""
        rows = self._batches[self._next] if self._next < len(self._batches) else ()
        self._next += 1
        seen, self._seen = self._seen, []
        if not rows or sum(map(len, seen)) < self.columns * len(rows):
            return  # a loss that encodes in its own way: the caller finds out by `batches_kept`
        self._waiting.append((rows, seen))
        self._numbers += sum(map(Tensor.numel, seen))
        self.batches_kept += 1
        if self._numbers >= self._most_waiting:
            self._file()

    def flush(self) -> None:
        """Bring `encoded` up to date with what any process saw. All processes call it together."""
        self._file()
        mine, self._joined = self._joined, []
        for parts in gather_everywhere(mine) if world_size() > 1 else ():
            for part in parts:
                self._write(*part)

    def _file(self) -> None:
        """What waits goes into `encoded`, or with several processes off the device, until they meet."""
        if not self._waiting:
            return
        waiting, self._waiting, self._numbers = self._waiting, [], 0
        whole = torch.cat([tensor for _, seen in waiting for tensor in seen])
        sizes = np.array([len(rows) for rows, _ in waiting])
        begins = np.cumsum([0, *(sum(map(len, seen)) for _, seen in waiting[:-1])])
        rows = np.fromiter(chain.from_iterable(rows for rows, _ in waiting), np.int64, sizes.sum())
        # of batch b, the first column's embeddings begin at begins[b], each other one's sizes[b] later
        places = np.arange(len(rows)) + np.repeat(begins - np.cumsum(sizes) + sizes, sizes)
        columns = [places + column * np.repeat(sizes, sizes) for column in range(self.columns)]
        own = None
        if self.encoded.own is not None:
            left, right = (whole[put(column, whole.device)].float() for column in columns[:2])
            own = torch.cosine_similarity(left, right)
        if world_size() > 1:
            vectors = whole[put(columns[self.place], whole.device)].float()
            self._joined.append((rows, vectors.cpu(), None if own is None else own.cpu()))
        else:
            self._write(rows, whole, own, columns[self.place])

    def _write(self, rows: np.ndarray, vectors: Tensor, own: Tensor | None, places: np.ndarray | None = None) -> None:
        """Of a text that was seen more than once the last vector stays; each place is written once, on a GPU too.

        places: where among the vectors those of the rows are; all of them, in order, unless told.
        """
        device, texts, turn = self.encoded.vectors.device, self.text[rows], np.arange(len(rows))
        self._last[texts] = turn  # of an index that is repeated, the last value stays
        last = np.flatnonzero(self._last[texts] == turn)
        new = vectors.index_select(0, put(last if places is None else places[last], vectors.device))
        self.encoded.vectors.index_copy_(0, put(texts[last], device), new.to(device, torch.float32))
        if self.encoded.own is not None and own is not None:
            self.encoded.own.index_copy_(0, put(rows, device), own.to(device))


def put(indices: np.ndarray, device: torch.device) -> Tensor:
    """The indices on a device, without waiting for what it still has to do."""
    tensor = torch.from_numpy(indices)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


NUMBERED_AT_ONCE = 4096  # texts that are numbered at a time


class Guide(nn.Module):
    """Unit vectors of texts by an encoder that is not trained. They are found by the ids of the texts.

    numbers: (D,) int64, sorted, see `text_ids`. vectors: (D, n). Neither is a parameter, and a loss does not save them.
    """

    numbers: Tensor
    vectors: Tensor

    def __init__(self, numbers: Tensor, vectors: Tensor) -> None:
        super().__init__()
        numbers, order = numbers.sort()
        self.register_buffer("numbers", numbers, persistent=False)
        self.register_buffer("vectors", nn.functional.normalize(vectors[order], dim=1), persistent=False)

    @classmethod
    def of(cls, model: SentenceTransformer, texts: Iterable[str]) -> Guide:
        """The model as it is now, asked once about each distinct text: make it before training begins."""
        distinct = list(dict.fromkeys(texts))
        chunks = (distinct[first : first + NUMBERED_AT_ONCE] for first in range(0, len(distinct), NUMBERED_AT_ONCE))
        numbers = torch.cat([text_ids(model.preprocess(chunk)) for chunk in chunks])
        return cls(numbers, torch.from_numpy(encode_texts(model, distinct))).to(model.device)

    def similarity(self, left_ids: Tensor, right_ids: Tensor) -> Tensor:
        """The cosine of each left with each right text, (m, m). ids: (m,), see `text_ids`."""
        return self._find(left_ids) @ self._find(right_ids).T

    def _find(self, ids: Tensor) -> Tensor:
        """The vectors of these texts; of one that nobody asked about, NaN, which is more similar to nothing. (m, n)."""
        ids = ids.to(self.numbers.device)
        place = torch.searchsorted(self.numbers, ids).clamp(max=len(self.numbers) - 1)
        return torch.where((self.numbers[place] == ids)[:, None], self.vectors[place], torch.nan)
