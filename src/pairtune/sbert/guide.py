"""The encoder as it came, as a table of vectors: it tells likely false negatives from true ones while another one is trained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pairtune.encoders.processes import encode_texts
from pairtune.fast.numbering import text_ids

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CHUNK = 4096  # texts that are numbered at a time


class Guide(nn.Module):
    """Unit vectors of texts by an encoder that is not trained, found by the texts' numbers.

    numbers: (D,) int64, sorted, see `text_ids`. vectors: (D, n). Neither is a parameter, nor saved with a loss.
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
        chunks = (distinct[first : first + CHUNK] for first in range(0, len(distinct), CHUNK))
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
