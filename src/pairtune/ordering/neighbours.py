"""Algorithm 2 by neighbours: pairs whose texts have a near text in common come together."""

from __future__ import annotations

import numpy as np

from pairtune.ordering.candidates import find_candidates
from pairtune.ordering.order import Order, Side
from pairtune.ordering.shingles import order_by_shingles
from pairtune.recipe import OrderSettings


def order_by_neighbours(side: Side, settings: OrderSettings, seed: int) -> Order:
    """Groups of pairs that drew the same near texts: the words of a pair are the numbers of its `group` nearest texts.

    Its own text is one of them: two texts that are nearest to each other, and to nothing else, would otherwise draw each
    other's number and never meet. What skip_nearest and margin leave out is no word of the pair, but two such texts may
    still meet in a third that is near to both: here these controls thin out, in `examples` they forbid.
    """
    skipped = settings.skip_nearest
    candidates = find_candidates(side, settings.model_copy(update={"drop_identical": False}), settings.group - 1 + skipped)
    identical = side.text if settings.drop_identical else None
    own = side.text.tolist()
    words = ([str(own[i]), *_numbers(candidates.texts[own[i], max(1, candidates.start[i]) :])] for i in range(len(side)))
    return order_by_shingles(words, len(side), settings.group, settings.shingle, seed, identical)


def _numbers(texts: np.ndarray) -> list[str]:
    return [str(text) for text in texts.tolist() if text >= 0]
