"""Algorithm 2: pairs that drew the same shingle (a few words, a cluster, a neighbour) come together in groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pairtune.ordering.hashing import hash_text, rank_rows
from pairtune.ordering.order import Order, number_texts


def order_by_shingles(
    words: Iterable[Sequence[str]], count: int, group: int, shingle: int, seed: int, text: np.ndarray | None = None
) -> Order:
    """Algorithm 2 over `count` rows, each with its words: draw a shingle, group by it, bring the groups into random order.

    text: (count,) numbers, or None; two rows of one number never share a group.
    """
    ranks = rank_rows(count, seed)
    rows = enumerate(zip(words, ranks.tolist(), strict=True))
    shingles = [draw_shingle(list(row_words), shingle, rank, row) for row, (row_words, rank) in rows]
    return group_shingles(shingles if text is None else part_identical(shingles, text, ranks), ranks, group, seed)


def draw_shingle(words: list[str], size: int, rank: int, row: int) -> str:
    """A random subset of `size` words, sorted; a row without words is its own shingle.

    The row's one random number is read in mixed radix, a digit per draw: an MD5 per word would cost ten times as much.
    A word that stands twice in the text is drawn twice as often, but never twice.
    """
    picked: list[str] = []
    while words and len(picked) < size:
        rank, place = divmod(rank, len(words))
        word = words[place]
        picked.append(word)
        words = [other for other in words if other != word]
    return " ".join(sorted(picked)) if picked else f" {row}"


def part_identical(shingles: list[str], text: np.ndarray, ranks: np.ndarray) -> list[str]:
    """The shingles with a number added wherever a row's text already stands in that shingle: identical texts part ways."""
    parted = list(shingles)
    seen: dict[tuple[str, int], int] = {}
    for row in np.argsort(ranks, kind="stable").tolist():
        key = (shingles[row], int(text[row]))
        times = seen[key] = seen.get(key, -1) + 1
        if times:
            parted[row] = f"{shingles[row]} {times}"
    return parted


def group_shingles(shingles: list[str], ranks: np.ndarray, group: int, seed: int) -> Order:
    """Cut each shingle's rows, in random order, into groups of at most `group`, and sort the groups by a hash.

    The paper's pseudo-code does not reset its counter s when the shingle changes, so that its groups may be cut short by
    the shingle before; here every shingle starts with a fresh group.
    """
    distinct, shingle = number_texts(shingles)
    order = np.lexsort((ranks, shingle))  # rows of a shingle together, by rank; equal ranks by row, as lexsort is stable
    starts = np.flatnonzero(np.diff(shingle[order], prepend=-1))
    number = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    chunk = number // group
    first = np.flatnonzero(number % group == 0)  # where a group begins
    names = zip(shingle[order][first].tolist(), chunk[first].tolist(), strict=True)
    hashes = np.fromiter((hash_text(f"{seed}|{distinct[name]}|{part}") for name, part in names), np.int64, len(first))
    hashes = np.repeat(hashes, np.diff(first, append=len(order)))
    final = np.lexsort((order, hashes))
    return Order(order[final], np.flatnonzero(np.diff(hashes[final], prepend=-1)))
