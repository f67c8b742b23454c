"""Who may stand beside whom: the nearest texts of every text, less those that are likely false negatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pairtune.errors import UserError
from pairtune.ordering.knn import find_nearest, require_vectors
from pairtune.ordering.order import Side
from pairtune.recipe import OrderSettings

MARGIN_ROWS = 4096  # pairs whose margins are looked up at a time


@dataclass(frozen=True, eq=False)
class Candidates:
    """texts: (D, c) int32, each text itself first, then the others from the nearest on (-1: none found).

    start: (N,) int64, how many of them each pair leaves out, counted from the first: all three controls leave out the
    most similar ones, so one number holds them.
    """

    texts: np.ndarray
    start: np.ndarray


def find_candidates(side: Side, settings: OrderSettings, count: int) -> Candidates:
    """The `count` nearest texts of every text, and where each pair begins to read them.

    drop_identical leaves out the text itself; skip_nearest = p > 0 the text itself and the p nearest others;
    margin all those j with cos(i, j) > cos(left_i, right_i) + margin, the text itself (cosine 1) among them.
    """
    vectors = require_vectors(side)
    texts = np.empty((len(vectors), min(count, len(vectors) - 1) + 1), np.int32)
    texts[:, 0] = np.arange(len(vectors))
    skipped = settings.skip_nearest + 1 if settings.skip_nearest else int(settings.drop_identical)
    start = np.full(len(side), skipped)
    by_text = np.argsort(side.text, kind="stable")
    for rows, ids, similarities in find_nearest(vectors, count, side.device):
        texts[rows, 1:] = ids
        if settings.margin is not None:
            first, last = np.searchsorted(side.text[by_text], [rows.start, rows.stop])
            pairs = by_text[first:last]
            too_close = count_above(similarities, side.text[pairs] - rows.start, require_own(side)[pairs] + settings.margin)
            start[pairs] = np.maximum(start[pairs], too_close)
    return Candidates(texts, start)


def count_above(similarities: np.ndarray, places: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """(p,) how many of [1, *similarities[place]] lie above each limit; similarities: (b, c), falling along each row."""
    above = np.empty(len(places), np.int64)
    for start in range(0, len(places), MARGIN_ROWS):
        part = slice(start, start + MARGIN_ROWS)
        above[part] = (similarities[places[part]] > limits[part, None]).sum(axis=1) + (limits[part] < 1)
    return above


def require_own(side: Side) -> np.ndarray:
    """(N,) the cosine of each pair's own two texts, which a margin is measured from."""
    if side.own is None or len(side.own) != len(side):
        raise UserError("order.margin compares with the similarity of each pair's own two texts: encode both sides")
    return side.own
