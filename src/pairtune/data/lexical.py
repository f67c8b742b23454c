"""BM25 over a corpus, as a sparse matrix: who shares rare words, in short texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pairtune.errors import UserError
from pairtune.progress import track

SATURATION, LENGTH = 1.2, 0.75  # k1 and b, as Lucene has them
CELLS = 2**24  # scores that are held at once


class Lexical:
    """Ranks a corpus for queries by BM25; words are runs of letters and digits, lower-cased."""

    def __init__(self, queries: Sequence[str], corpus: Sequence[str]) -> None:
        from scipy.sparse import csr_matrix
        from sklearn.feature_extraction.text import CountVectorizer

        counter = CountVectorizer(token_pattern=r"\w+", dtype=np.float64)
        try:
            count = csr_matrix(counter.fit_transform(corpus))
        except ValueError as problem:  # an empty vocabulary
            raise UserError(
                "no text to search in has a word of letters or digits, by which BM25 ranks: "
                "give an encoder in its place, such as minilm"
            ) from problem
        self.queries = csr_matrix((counter.transform(queries) > 0).astype(np.float64))
        self.weights = _weigh(count).T.tocsc()  # (words, C)

    def rank(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(Q, k) scores and places, best first; equal scores by place."""
        texts = self.weights.shape[1]
        count, block = min(count, texts), max(1, CELLS // texts)
        found = []
        for start in track(range(0, self.queries.shape[0], block), "searching by words"):
            scores = (self.queries[start : start + block] @ self.weights).toarray()
            places = np.argpartition(-scores, count - 1, axis=1)[:, :count]
            places = np.sort(places, axis=1)
            best = np.argsort(-np.take_along_axis(scores, places, 1), axis=1, kind="stable")
            places = np.take_along_axis(places, best, 1)
            found.append((np.take_along_axis(scores, places, 1), places))
        return np.concatenate([scores for scores, _ in found]), np.concatenate([places for _, places in found])

    def score(self, queries: np.ndarray, places: np.ndarray) -> np.ndarray:
        """(N,) the score of each query with the text at a place."""
        return np.asarray(self.queries[queries].multiply(self.weights.T.tocsr()[places]).sum(axis=1)).ravel()


def _weigh(count: Any) -> Any:
    """The BM25 weight of each word in each text, (C, words), from how often it is there."""
    texts = count.shape[0]
    holding = np.asarray((count > 0).sum(axis=0)).ravel()
    rarity = np.log(1 + (texts - holding + 0.5) / (holding + 0.5))
    length = np.asarray(count.sum(axis=1)).ravel()
    room = SATURATION * (1 - LENGTH + LENGTH * length / max(length.mean(), 1))
    weighed = count.tocoo()
    weighed.data = rarity[weighed.col] * weighed.data * (SATURATION + 1) / (weighed.data + room[weighed.row])
    return weighed.tocsr()
