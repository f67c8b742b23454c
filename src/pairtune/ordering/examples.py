"""Algorithm 1, example-based shuffling: a pair and its nearest unused neighbours form a group."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from pairtune.ordering.candidates import Candidates, find_candidates
from pairtune.ordering.order import Order, Side
from pairtune.ordering.plain import shuffle_rows
from pairtune.recipe import OrderSettings

FIRST = 32  # neighbours that are read at once: most pairs fill their group from these, and need none of the others


def order_by_examples(side: Side, settings: OrderSettings, seed: int) -> Order:
    """Algorithm 1: in random order, each unused pair takes the `group` - 1 nearest unused of its `neighbours` nearest.

    The result is reversed, so that the last pairs, which found all their neighbours used, come first and alone: easy
    batches before hard ones. Neighbours are searched among distinct texts and stand for all pairs that have them.
    """
    candidates = find_candidates(side, settings, settings.neighbours)
    keys = (side.text.tolist(), side.other.tolist()) if settings.drop_identical else ()
    neighbours = neighbours_in_reach(side, candidates, settings.neighbours)
    return gather_groups(neighbours, shuffle_rows(len(side), seed).tolist(), settings.group, keys)


def gather_groups(
    neighbours: Callable[[int], Iterable[int]], visits: Sequence[int], size: int, keys: Sequence[Sequence[int]] = ()
) -> Order:
    """The greedy pass of Algorithm 1.

    neighbours: the pairs near a pair, nearest first, -1 for none. visits: all pairs, in the order of the visits.
    keys: for each key, a number per pair; two pairs of one number never share a group.
    """
    used = bytearray(len(visits) + 1)
    used[-1] = 1  # what -1 reads: no neighbour is never free
    result: list[int] = []
    sizes: list[int] = []
    for anchor in visits:
        if used[anchor]:
            continue
        used[anchor] = 1
        chosen: list[int] = []
        taken = [{key[anchor]} for key in keys]
        for other in neighbours(anchor) if size > 1 else ():
            if used[other] or (keys and not _fits(other, keys, taken)):
                continue
            used[other] = 1
            chosen.append(other)
            if len(chosen) == size - 1:
                break
        result += chosen
        result.append(anchor)
        sizes.append(len(chosen) + 1)
    starts = np.cumsum([0, *sizes[::-1]])[:-1]
    return Order(np.array(result[::-1], np.int64), starts.astype(np.int64))


def _fits(other: int, keys: Sequence[Sequence[int]], taken: list[set[int]]) -> bool:
    """Whether no key of the pair stands in the group yet; if so, they do now."""
    if any(key[other] in numbers for key, numbers in zip(keys, taken, strict=True)):
        return False
    for key, numbers in zip(keys, taken, strict=True):
        numbers.add(key[other])
    return True


def neighbours_in_reach(side: Side, candidates: Candidates, count: int) -> Callable[[int], Iterable[int]]:
    """A function from a pair to the pairs among its `count` nearest that it may take, nearest first."""
    texts, start = candidates.texts, candidates.start
    if len(side.texts) == len(side):  # no text stands twice: texts are pairs

        def alone(pair: int) -> Iterator[int]:
            near = texts[pair, start[pair] :]
            yield from near[:FIRST].tolist()
            yield from near[FIRST:].tolist()

        return alone

    by_text = np.argsort(side.text, kind="stable")
    pairs_of = [part.tolist() for part in np.split(by_text, np.searchsorted(side.text[by_text], np.arange(1, len(side.texts))))]

    def repeated(pair: int) -> Iterator[int]:
        left, skipped = count, start[pair]
        for place, text in enumerate(texts[side.text[pair]].tolist()):
            if left <= 0 or text < 0:
                return
            near = pairs_after(pair, pairs_of[text])
            if place >= skipped:
                yield from near[:left]
            left -= len(near)

    return repeated


def pairs_after(pair: int, pairs: list[int]) -> list[int]:
    """The other pairs of one text, those that follow the pair first: all are equally near, and each pair begins elsewhere.

    Were it always the first ones, a text that stands more than `neighbours` times would leave most of its pairs alone.

    >>> pairs_after(4, [1, 4, 6, 9])
    [6, 9, 1]
    """
    place = bisect(pairs, pair)
    return [other for other in pairs[place:] + pairs[:place] if other != pair]
