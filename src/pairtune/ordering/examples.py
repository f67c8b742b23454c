"""Algorithm 1, example-based shuffling: a pair and its nearest unused neighbors form a group."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from pairtune.ordering.nearest import Candidates, find_candidates, nearest_by
from pairtune.ordering.nearest_gpu import Search
from pairtune.ordering.order import Order, Side, shuffle_rows
from pairtune.progress import track
from pairtune.runs.recipe import OrderSettings

FIRST = 32  # neighbors that are read at once: most pairs fill their group from these, and need none of the others
AHEAD = {"cpu": 256, "gpu": 1024}  # pairs whose neighbors are searched at a time, at least: on a GPU a search has its latency
MOST = 4096  # and at most


def order_by_examples(
    side: Side,
    settings: OrderSettings,
    seed: int,
    *,
    search: Search | None = None,
    ahead: int | None = None,
    first: int = FIRST,
) -> Order:
    """Algorithm 1: in random order, each unused pair takes the `group` - 1 nearest unused of its `neighbors` nearest.

    The result is reversed, so that the last pairs, which found all their neighbors used, come first and alone: easy
    batches before hard ones. Neighbors are searched among distinct texts and stand for all pairs that have them.

    The result does not depend on ahead, how many pairs are searched at a time, nor on first, how many of a pair's neighbors
    are read at once. search: another search than that of `find_nearest`.
    """
    search = search or nearest_by(settings.distance, side, settings.neighbors)
    reach = Reach(side, find_candidates(side, settings, settings.neighbors, search), settings.neighbors, first)
    keys = (side.text.tolist(), side.other.tolist()) if settings.drop_identical else ()
    counted = side.text.tolist() if settings.group_counts == "texts" else None
    ahead = ahead or pairs_ahead(side, settings.group)
    return gather_groups(reach, shuffle_rows(len(side), seed), settings.group, keys, ahead, counted)


def pairs_ahead(side: Side, group: int) -> int:
    """How many pairs are searched at a time: a part of what all anchors will be, within limits."""
    return int(np.clip(len(side) // (4 * group), AHEAD["cpu" if side.device == "cpu" else "gpu"], MOST))


def gather_groups(
    find_near: Callable[[np.ndarray, np.ndarray], Callable[[int], Iterable[int]]],
    visits: Sequence[int] | np.ndarray,
    size: int,
    keys: Sequence[Sequence[int]] = (),
    ahead: int = MOST,
    counted: Sequence[int] | None = None,
) -> Order:
    """The greedy pass of Algorithm 1.

    find_near: from (b,) pairs whose turn comes next, and which pairs are used (kept up to date), to a function from a place
    among them to the pairs near that one, nearest first, -1 for none. visits: all pairs, in the order of the visits.
    keys: for each key, a number per pair; two pairs of one number never share a group. ahead: how many pairs at a time.
    counted: a number per pair; those of one number count as one towards the size. None: each counts.
    """
    used = bytearray(len(visits) + 1)
    used[-1] = 1  # what -1 reads: no neighbor is never free
    flags = np.frombuffer(used, np.uint8)  # the same memory
    result: list[int] = []
    sizes: list[int] = []
    rounds = unused_ahead(np.asarray(visits), flags, ahead)
    for soon in track(rounds, f"groups of neighbors, rounds of {ahead:,} pairs out of {len(visits):,}"):
        near = find_near(soon, flags) if size > 1 else _nothing
        for place, anchor in enumerate(soon.tolist()):
            if used[anchor]:
                continue
            used[anchor] = 1
            room = size - 1
            taken = [{key[anchor]} for key in keys]
            before, there = len(result), {counted[anchor]} if counted else set()
            for other in near(place):
                if used[other] or (keys and not _add_unless_there(other, keys, taken)):
                    continue
                used[other] = 1
                result.append(other)
                if counted and counted[other] in there:
                    continue
                if counted:
                    there.add(counted[other])
                room -= 1
                if not room:
                    break
            result.append(anchor)
            sizes.append(len(result) - before)
    starts = np.cumsum([0, *sizes[::-1]])[:-1]
    return Order(np.array(result[::-1], np.int64), starts.astype(np.int64))


def unused_ahead(visits: np.ndarray, used: np.ndarray, ahead: int) -> Iterator[np.ndarray]:
    """The visits, `ahead` at a time, without the pairs that are used by then.

    Most are: of 10,000 and more, in groups of eight, the neighbors of a fifth to a third are all that is searched.
    """
    while len(visits):
        visits = visits[used[visits] == 0]
        soon, visits = visits[:ahead], visits[ahead:]
        if len(soon):
            yield soon


def _nothing(place: int) -> Iterable[int]:
    return ()


def _add_unless_there(other: int, keys: Sequence[Sequence[int]], taken: list[set[int]]) -> bool:
    """Whether no key of the pair stands in the group yet; if so, they do now."""
    if any(key[other] in numbers for key, numbers in zip(keys, taken, strict=True)):
        return False
    for key, numbers in zip(keys, taken, strict=True):
        numbers.add(key[other])
    return True


class Reach:
    """From pairs to the pairs among the `count` nearest of each that it may take.

    A text that stands once is written as its pair, text t that stands more often as -2 - t, until someone reads that far.
    """

    def __init__(self, side: Side, find: Callable[[np.ndarray], Candidates], count: int, first: int = FIRST) -> None:
        self.find, self.count, self.first = find, count, first
        by_text = np.argsort(side.text, kind="stable")
        times = np.bincount(side.text)
        begin = np.cumsum(times) - times
        self.written = np.append(np.where(times == 1, by_text[begin], -2 - np.arange(len(times))), -1)  # what -1 reads: none
        self.pairs_of = {text: by_text[begin[text] :][: times[text]].tolist() for text in np.flatnonzero(times > 1).tolist()}

    def __call__(self, pairs: np.ndarray, used: np.ndarray) -> Near:
        """Search for what is near these pairs."""
        return Near(self, pairs.tolist(), self.find(pairs), used)

    def pairs_of_text(self, written: int, pair: int) -> list[int]:
        """The pairs of a text that stands more than once, as the given pair sees them."""
        return pairs_after(pair, self.pairs_of[-2 - written])


class Near:
    """From a place among some pairs to the pairs near that one, nearest first; far ones that are used may be missing.

    Of an anchor's texts, its own (left out where it stands once) and then `count` places are read; a text of p pairs fills p.
    """

    def __init__(self, reach: Reach, pairs: list[int], found: Candidates, used: np.ndarray) -> None:
        self.reach, self.pairs, self.texts, self.used = reach, pairs, found.texts, used  # texts: (b, c)
        first = reach.written[found.texts[:, : reach.first]]
        self.first, self.skipped = first.tolist(), found.start.tolist()
        self.several = (first < -1).any(axis=1).tolist()  # a text among them stands more than once

    def __call__(self, place: int) -> Iterator[int]:
        """The pairs near the one at this place."""
        if self.several[place]:
            return chain.from_iterable(self._spread(place))
        end = 1 + self.reach.count
        return chain(self.first[place][self.skipped[place] or 1 : end], self._far(place, end))

    def _spread(self, place: int) -> Iterator[Iterable[int]]:
        """The same where texts among the first stand more than once."""
        first, begin = self.first[place], self.skipped[place]
        at = int(first[0] >= 0)  # where to go on reading
        end = at + self.reach.count
        for column, written in enumerate(first):
            if written < -1:
                yield first[max(at, begin) : min(column, end)]
                at = column + 1
                if column < end:
                    others = self.reach.pairs_of_text(written, self.pairs[place])
                    yield others[: end - column] if column >= begin else ()
                    end = max(0, end - len(others) + 1)
        yield first[max(at, begin) : end]
        yield self._far(place, end)

    def _far(self, place: int, end: int) -> Iterator[int]:
        """The neighbors after the first, which nobody looks at before all those are used."""
        begin, first = self.skipped[place], self.reach.first
        far = self.reach.written[self.texts[place, first : max(first, end)]]
        free = np.flatnonzero((far < -1) | (self.used[far] == 0))  # few: who reads that far comes late
        for column, written in zip((first + free).tolist(), far[free].tolist(), strict=True):
            if column >= end:
                return
            if written >= 0:
                if column >= begin:
                    yield written
            else:
                others = self.reach.pairs_of_text(written, self.pairs[place])
                yield from others[: end - column] if column >= begin else ()
                end -= len(others) - 1


def pairs_after(pair: int, pairs: list[int]) -> list[int]:
    """The other pairs of one text, those that follow the pair first: all are equally near, and each pair begins elsewhere.

    Were it always the first ones, a text that stands more than `neighbors` times would leave most of its pairs alone.

    >>> pairs_after(4, [1, 4, 6, 9])
    [6, 9, 1]
    """
    place = bisect(pairs, pair)
    return [other for other in pairs[place:] + pairs[:place] if other != pair]
