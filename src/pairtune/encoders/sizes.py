"""Smaller embeddings: their first dimensions only, and fewer bits for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

import numpy as np
import torch
from sentence_transformers import quantize_embeddings
from sentence_transformers.base.modules import Dense

from pairtune.encoders.embedding import Embeddings
from pairtune.encoders.loading import check_dimensions
from pairtune.ordering.nearest import unit_rows
from pairtune.runs.record import Precision

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
BITS: dict[Precision, int] = {"float32": 32, "int8": 8, "binary": 1}


def count_bytes(dimension: int, precision: Precision) -> int:
    """What one embedding takes.

    >>> count_bytes(384, "float32"), count_bytes(384, "binary")
    (1536, 48)
    """
    return -(-dimension * BITS[precision] // 8)


class Smaller:
    """The embeddings of a model, cut and rounded: unit vectors whose products are the scores that a search would see.

    Texts are encoded once, by `whole`. calibration: texts whose embeddings say which range each dimension of int8 has.
    """

    def __init__(self, whole: Embeddings, dimension: int, precision: Precision, calibration: Sequence[str]) -> None:
        self.whole, self.dimension, self.precision = whole, dimension, precision
        self.ranges: np.ndarray | None = None
        if precision == "int8":
            vectors = self._cut(calibration)
            self.ranges = np.vstack([vectors.min(axis=0), vectors.max(axis=0)])

    def __call__(self, texts: Sequence[str], what: str = "encoding") -> np.ndarray:
        """(N, dimension) vectors of the texts."""
        return unit_rows(round_vectors(self._cut(texts, what), self.precision, self.ranges))

    def score(self, left: Sequence[str], right: Sequence[str]) -> np.ndarray:
        """(N,) the cosine of each pair."""
        return np.einsum("ij,ij->i", self(left), self(right))

    def _cut(self, texts: Sequence[str], what: str = "encoding") -> np.ndarray:
        return unit_rows(self.whole(texts, what)[:, : self.dimension])


def round_vectors(vectors: np.ndarray, precision: Precision, ranges: np.ndarray | None = None) -> np.ndarray:
    """What the host's codes of the vectors stand for: the middle of an int8 bucket, or −1 and 1 for a bit. vectors: (N, n).

    >>> round_vectors(np.array([[0.3, -0.1]]), "binary")
    array([[ 1., -1.]], dtype=float32)
    """
    if precision == "float32":
        return vectors
    if precision == "binary":
        bits = np.unpackbits(np.asarray(quantize_embeddings(vectors, "ubinary")), axis=1, count=vectors.shape[1])
        return bits.astype(np.float32) * 2 - 1
    assert ranges is not None
    codes = np.asarray(quantize_embeddings(vectors, "int8", ranges=ranges)).astype(np.float32)
    return ranges[0] + (codes + 128.5) * (ranges[1] - ranges[0]) / 255


def fix_dimension(model: SentenceTransformer, dimension: int) -> None:
    """Let the model itself give embeddings of this dimension, saved or exported too, with no option to remember.

    The last layer is a product that keeps the first numbers; a final normalization follows it once more.
    """
    check_dimensions(model, [dimension])
    *_, last = model.children()
    cut = Dense(int(model.get_embedding_dimension() or 0), dimension, bias=False, activation_function=torch.nn.Identity())
    with torch.no_grad():
        cut.linear.weight.copy_(torch.eye(*cut.linear.weight.shape))
    model.append(cut.to(model.device))
    if type(last).__name__ == "Normalize":
        model.append(type(last)())
