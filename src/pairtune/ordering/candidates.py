"""Who may stand beside whom: the nearest texts of every text, less those that are likely false negatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pairtune.errors import UserError
from pairtune.ordering.knn import find_nearest, require_vectors
from pairtune.ordering.order import Side
from pairtune.recipe import OrderSettings


@dataclass(frozen=True, eq=False)
class Candidates:
    """texts: (b, c) int32, of each of b pairs its own text first, then the others from the nearest on (-1: none found).

    start: (b,) int64, how many of them each pair leaves out, counted from the first: all three controls leave out the
    most similar ones, so one number holds them.
    """

    texts: np.ndarray
    start: np.ndarray


def find_candidates(side: Side, settings: OrderSettings, count: int) -> Callable[[np.ndarray], Candidates]:
    """A function from (b,) pairs to the `count` nearest texts of each, and where each begins to read them.

    drop_identical leaves out the text itself; skip_nearest = p > 0 the text itself and the p nearest others;
    margin all those j with cos(i, j) > cos(left_i, right_i) + margin, the text itself (cosine 1) among them.
    """
    search = find_nearest(require_vectors(side), count, side.device, similar=settings.margin is not None)
    skipped = settings.skip_nearest + 1 if settings.skip_nearest else int(settings.drop_identical)

    def find(pairs: np.ndarray) -> Candidates:
        own = side.text[pairs]
        distinct, place = np.unique(own, return_inverse=True)
        if len(distinct) == len(own):  # no text twice: they are searched as they come, and nothing is put in order
            ids, similarities = search(own)
        else:
            ids, similarities = (found[place] for found in search(distinct))
        texts = np.empty((len(own), 1 + ids.shape[1]), np.int32)
        texts[:, 0], texts[:, 1:] = own, ids
        start = np.full(len(pairs), skipped)
        if settings.margin is not None:
            limits = require_own(side)[pairs] + settings.margin
            too_close = (similarities > limits[:, None]).sum(axis=1) + (limits < 1)
            start = np.maximum(start, too_close)
        return Candidates(texts, start)

    return find


def require_own(side: Side) -> np.ndarray:
    """(N,) the cosine of each pair's own two texts, which a margin is measured from."""
    if side.own is None or len(side.own) != len(side):
        raise UserError("order.margin compares with the similarity of each pair's own two texts: encode both sides")
    return side.own
