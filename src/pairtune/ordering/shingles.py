"""Algorithm 2: pairs that drew the same shingle (a few words, a cluster, a neighbor) come together in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import regex

from pairtune.ordering.nearest import Candidates, find_candidates, place_centroids, require_vectors, unit_rows
from pairtune.ordering.order import Order, Side, hash_text, number_texts, rank_rows, to_array
from pairtune.progress import track
from pairtune.runs.recipe import OrderSettings

# "don't" is read as "don" and "t", hence the halves at the end.
STOP_WORDS: frozenset[str] = frozenset(
    """
    a about above after again against all also am an and any are as at be because been before being below between both but by
    can cannot could did do does doing down during each either else ever every few for from further get had has have having he
    her here hers herself him himself his how however i if in into is it its itself just let like may me might more most much
    must my myself no nor not now of off on once only or other our ours ourselves out over own per same shall she should since
    so some such than that the their theirs them themselves then there these they this those though through to too under until
    up upon us very was we were what when where whether which while who whom whose why will with within without would yet you
    your yours yourself yourselves
    d didn doesn don isn ll m re s t ve wasn won
    """.split()  # noqa: SIM905
)


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


WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")


def order_by_words(side: Side, settings: OrderSettings, seed: int) -> Order:
    """Groups of pairs that drew the same `settings.shingle` words of their texts."""
    words = [find_words(text) for text in side.texts]
    identical = side.text if settings.drop_identical else None
    return order_by_shingles((words[i] for i in side.text.tolist()), len(side), settings.group, settings.shingle, seed, identical)


def find_words(text: str | None) -> list[str]:
    """The words of a text in their order, lower-cased, without stop words.

    İ and ς are replaced because lower() of Python, Java and DuckDB disagree on them, and on nothing else of Unicode 13.

    >>> find_words("How do I learn Python?")
    ['learn', 'python']
    """
    if text is None:
        return []
    folded = text.replace("İ", "i").lower().replace("ς", "σ")
    return [word for word in WORD.findall(folded) if word not in STOP_WORDS]


def order_by_clusters(side: Side, settings: OrderSettings, seed: int) -> Order:
    """Groups of pairs of one cluster; the cluster's number is the only word of a pair, so the shingle is always 1."""
    vectors = to_array(require_vectors(side))
    count = min(settings.clusters or round(len(vectors) ** 0.5), len(vectors))
    cluster = find_clusters(vectors, count, seed)[side.text]
    identical = side.text if settings.drop_identical else None
    return order_by_shingles(([str(number)] for number in cluster.tolist()), len(side), settings.group, 1, seed, identical)


def find_clusters(vectors: np.ndarray, count: int, seed: int) -> np.ndarray:
    """(D,) int64: the cluster of each of the (D, n) vectors by spherical k-means, at most `count` of them."""
    vectors = unit_rows(vectors)
    if count <= 1:
        return np.zeros(len(vectors), np.int64)
    return place_centroids(vectors, count, seed).assign(vectors)[1].astype(np.int64)


SEARCHED_PAIRS = 4096  # pairs whose neighbors are searched at a time


def order_by_neighbors(side: Side, settings: OrderSettings, seed: int) -> Order:
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
    for first in track(range(0, len(side), SEARCHED_PAIRS), "finding neighbors"):
        pairs = np.arange(first, min(first + SEARCHED_PAIRS, len(side)))
        candidates = find(pairs)
        for own, near, start in zip(side.text[pairs].tolist(), candidates.texts.tolist(), candidates.start.tolist(), strict=True):
            yield [str(own), *(str(text) for text in near[max(1, start) :] if text >= 0)]
