"""Algorithm 1, example-based shuffling: a pair and its nearest unused neighbours form a group."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from pairtune.ordering.candidates import Candidates, find_candidates
from pairtune.ordering.order import Order, Side
from pairtune.ordering.plain import shuffle_rows
from pairtune.progress import track
from pairtune.recipe import OrderSettings

FIRST = 32  # neighbours that are read at once: most pairs fill their group from these, and need none of the others
AHEAD = (256, 4096)  # pairs whose neighbours are searched at a time, at least and at most


def order_by_examples(side: Side, settings: OrderSettings, seed: int) -> Order:
    """Algorithm 1: in random order, each unused pair takes the `group` - 1 nearest unused of its `neighbours` nearest.

    The result is reversed, so that the last pairs, which found all their neighbours used, come first and alone: easy
    batches before hard ones. Neighbours are searched among distinct texts and stand for all pairs that have them.
    """
    reach = Reach(side, find_candidates(side, settings, settings.neighbours), settings.neighbours)
    keys = (side.text.tolist(), side.other.tolist()) if settings.drop_identical else ()
    return gather_groups(reach, shuffle_rows(len(side), seed), settings.group, keys, reach.prepare)


def gather_groups(
    neighbours: Callable[[int], Iterable[int]],
    visits: Sequence[int] | np.ndarray,
    size: int,
    keys: Sequence[Sequence[int]] = (),
    prepare: Callable[[np.ndarray], None] | None = None,
) -> Order:
    """The greedy pass of Algorithm 1.

    neighbours: the pairs near a pair, nearest first, -1 for none. visits: all pairs, in the order of the visits.
    keys: for each key, a number per pair; two pairs of one number never share a group.
    prepare: is told, some visits ahead, which pairs `neighbours` may be asked about next.
    """
    used = bytearray(len(visits) + 1)
    used[-1] = 1  # what -1 reads: no neighbour is never free
    result: list[int] = []
    sizes: list[int] = []
    ahead = int(np.clip(len(visits) // (4 * size), *AHEAD))
    for anchor in track(
        visit_unused(np.asarray(visits), used, ahead, prepare if size > 1 else None), "groups of neighbours made"
    ):
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


def visit_unused(
    visits: np.ndarray, used: bytearray, ahead: int, prepare: Callable[[np.ndarray], None] | None = None
) -> Iterator[int]:
    """The pairs that are unused when their turn comes; `prepare` is told of those that are so `ahead` visits before.

    Most pairs are used by then: of 10,000 and more, in groups of eight, the neighbours of a fifth are all that is searched.
    """
    flags = np.frombuffer(used, np.uint8)  # the same memory
    while len(visits):
        visits = visits[flags[visits] == 0]
        soon, visits = visits[:ahead], visits[ahead:]
        if prepare and len(soon):
            prepare(soon)
        yield from (pair for pair in soon.tolist() if not used[pair])


def _fits(other: int, keys: Sequence[Sequence[int]], taken: list[set[int]]) -> bool:
    """Whether no key of the pair stands in the group yet; if so, they do now."""
    if any(key[other] in numbers for key, numbers in zip(keys, taken, strict=True)):
        return False
    for key, numbers in zip(keys, taken, strict=True):
        numbers.add(key[other])
    return True


class Reach:
    """From a pair to the pairs among its `count` nearest that it may take, nearest first; `prepare` comes before.

    A text that stands once is written as its pair, text t that stands more often as -2 - t, until someone reads that far.
    """

    def __init__(self, side: Side, find: Callable[[np.ndarray], Candidates], count: int) -> None:
        self.find, self.count = find, count
        by_text = np.argsort(side.text, kind="stable")
        times = np.bincount(side.text)
        first = np.cumsum(times) - times
        self.written = np.append(np.where(times == 1, by_text[first], -2 - np.arange(len(times))), -1)  # what -1 reads: none
        self.pairs_of = {text: by_text[first[text] :][: times[text]].tolist() for text in np.flatnonzero(times > 1).tolist()}

    def prepare(self, pairs: np.ndarray) -> None:
        """Search for what is near these pairs, and forget what was near others."""
        candidates = self.find(pairs)
        self.near, self.start = self.written[candidates.texts], candidates.start.tolist()  # (b, c)
        self.row = {pair: row for row, pair in enumerate(pairs.tolist())}

    def __call__(self, pair: int) -> Iterator[int]:
        """The pairs near one of those that were prepared."""
        return chain.from_iterable(self._read(pair, self.near[self.row[pair]], self.start[self.row[pair]]))

    def _read(self, pair: int, near: np.ndarray, skipped: int) -> Iterator[list[int]]:
        left, begin = self.count, int(near[0] >= 0)  # a text that stands once is the pair itself
        for place in (near < -1).nonzero()[0].tolist() if self.pairs_of else ():
            yield near[max(begin, skipped) : min(place, begin + left)].tolist()
            left -= place - begin
            others = pairs_after(pair, self.pairs_of[-2 - near[place]]) if left > 0 else []
            if place >= skipped:
                yield others[:left]
            left, begin = left - len(others), place + 1
            if left <= 0:
                return
        near = near[max(begin, skipped) : begin + left]
        yield near[:FIRST].tolist()
        yield near[FIRST:].tolist()


def pairs_after(pair: int, pairs: list[int]) -> list[int]:
    """The other pairs of one text, those that follow the pair first: all are equally near, and each pair begins elsewhere.

    Were it always the first ones, a text that stands more than `neighbours` times would leave most of its pairs alone.

    >>> pairs_after(4, [1, 4, 6, 9])
    [6, 9, 1]
    """
    place = bisect(pairs, pair)
    return [other for other in pairs[place:] + pairs[:place] if other != pair]
