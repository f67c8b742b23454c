"""Algorithm 2 by neighbours: pairs whose texts have a near text in common come together."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pairtune.ordering.candidates import Candidates, find_candidates
from pairtune.ordering.order import Order, Side
from pairtune.ordering.shingles import order_by_shingles
from pairtune.progress import track
from pairtune.recipe import OrderSettings

BLOCK = 4096  # pairs whose neighbours are searched at a time


def order_by_neighbours(side: Side, settings: OrderSettings, seed: int) -> Order:
    """Groups of pairs that drew the same near texts: the words of a pair are the numbers of its `group` nearest texts.

    Its own text is one of them: two texts that are nearest to each other, and to nothing else, would otherwise draw each
    other's number and never meet. What skip_nearest and margin leave out is no word of the pair, but two such texts may
    still meet in a third that is near to both: here these controls thin out, in `examples` they forbid.
    """
    skipped = settings.skip_nearest
    find = find_candidates(side, settings.model_copy(update={"drop_identical": False}), settings.group - 1 + skipped)
    identical = side.text if settings.drop_identical else None
    return order_by_shingles(_words(side, find), len(side), settings.group, settings.shingle, seed, identical)


def _words(side: Side, find: Callable[[np.ndarray], Candidates]) -> Iterator[list[str]]:
    """Of each pair: its own text and those near it, as numbers."""
    for first in track(range(0, len(side), BLOCK), "finding neighbours"):
        pairs = np.arange(first, min(first + BLOCK, len(side)))
        candidates = find(pairs)
        for own, near, start in zip(side.text[pairs].tolist(), candidates.texts.tolist(), candidates.start.tolist(), strict=True):
            yield [str(own), *(str(text) for text in near[max(1, start) :] if text >= 0)]
