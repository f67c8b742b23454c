"""What every ordering takes, one side of the pairs, and what it gives; all randomness; and the orders that need nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pairtune.errors import UserError
from pairtune.runs.evidence import shorten
from pairtune.runs.recipe import OrderSettings

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Order:
    """A permutation of N pairs that falls into groups.

    rows: (N,) int64, the pairs in their new order. groups: (G,) int64, where in `rows` each group starts.
    """

    rows: np.ndarray
    groups: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def sizes(self) -> np.ndarray:
        """(G,) how many pairs each group has.

        >>> Order(np.array([2, 0, 1]), np.array([0, 1])).sizes()
        array([1, 2])
        """
        return np.diff(self.groups, append=len(self.rows))


@dataclass(frozen=True, eq=False)
class Side:
    """One side of N pairs as an ordering sees it: each distinct text stands once.

    texts: the D distinct texts, in the order of their first appearance (None where a text is missing).
    text: (N,) int64, which of them each pair has. other: (N,) int64, the same for the pairs' other side.
    vectors: (D, n) float32, one per distinct text, as an array or a tensor anywhere.
    own: (N,) float32, the cosine of each pair's own two texts.
    device: where neighbors are searched, "cpu" (faiss) or a CUDA device (torch).
    """

    texts: tuple[str | None, ...]
    text: np.ndarray
    other: np.ndarray
    vectors: np.ndarray | Tensor | None = None
    own: np.ndarray | None = None
    device: str = "cpu"

    @classmethod
    def of(cls, texts: Sequence[str | None], other: Sequence[str | None] | None = None) -> Side:
        """One side from its N texts; without the texts of the other side, no two of those count as identical.

        >>> Side.of(["b", "a", "b"]).text
        array([0, 1, 0])
        """
        if other is not None and len(other) != len(texts):
            raise UserError(f"{len(texts)} texts on one side but {len(other)} on the other: give one of each per pair")
        distinct, numbers = number_texts(texts)
        return cls(tuple(distinct), numbers, np.arange(len(texts)) if other is None else number_texts(other)[1])

    def __len__(self) -> int:
        return len(self.text)

    def encoded(self, vectors: np.ndarray | Tensor, own: np.ndarray | None = None, device: str = "cpu") -> Side:
        """The same side with a vector for each distinct text, and each pair's own similarity where a margin is asked for."""
        if device == "cpu" or isinstance(vectors, np.ndarray):
            vectors = np.ascontiguousarray(to_array(vectors), dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(self.texts):
            shape = tuple(vectors.shape)
            raise UserError(f"vectors of shape {shape} for {len(self.texts)} distinct texts: give one vector per text")
        if not all_finite(vectors):
            finite = np.isfinite(to_array(vectors)).all(axis=1)
            row = int(np.flatnonzero(~finite[self.text])[0])
            raise UserError(
                f"the vector of pair {row} ({shorten(str(self.texts[self.text[row]]), 60)!r}) has NaN or infinite values, as do "
                f"{np.count_nonzero(~finite) - 1} others of {len(finite)}: the encoder has diverged; lower the learning rate"
            )
        return replace(self, vectors=vectors, own=own, device=device)


def all_finite(vectors: np.ndarray | Tensor) -> bool:
    """Whether no number is NaN or infinite; a tensor is looked at where it lies."""
    return bool(np.isfinite(vectors).all() if isinstance(vectors, np.ndarray) else vectors.isfinite().all())


def to_array(vectors: np.ndarray | Tensor) -> np.ndarray:
    """The vectors off whatever device they are on."""
    return vectors if isinstance(vectors, np.ndarray) else vectors.cpu().numpy()


def number_texts(texts: Sequence[Any]) -> tuple[list[Any], np.ndarray]:
    """The distinct texts in the order of their first appearance, and (N,) int64, which of them each row has."""
    distinct = list(dict.fromkeys(texts))
    numbers: dict[Hashable, int] = dict(zip(distinct, range(len(distinct)), strict=True))
    return distinct, np.fromiter(map(numbers.__getitem__, texts), np.int64, len(texts))


def cut_batches(order: Order, size: int, drop_last: bool = False) -> Iterator[np.ndarray]:
    """The rows of each batch, in the order of training: N // size full ones, then a short one unless it is dropped.

    A group that does not fit is cut: keeping it whole would need batches of other sizes, or an order that is no longer
    the curriculum of Algorithm 1. `count_cut_groups` tells how many.
    """
    for start in range(0, len(order), size):
        if start + size <= len(order) or not drop_last:
            yield order.rows[start : start + size]


def count_batches(pairs: int, size: int, drop_last: bool = False) -> int:
    """How many batches `cut_batches` gives.

    >>> count_batches(10, 4), count_batches(10, 4, drop_last=True)
    (3, 2)
    """
    return pairs // size if drop_last else -(-pairs // size)


def count_cut_groups(order: Order, size: int) -> int:
    """The groups whose pairs fall into more than one batch."""
    last = order.groups + order.sizes() - 1
    return int(np.count_nonzero(order.groups // size != last // size))


def describe_groups(order: Order, size: int) -> str:
    """Groups and batches of an order, in words.

    >>> describe_groups(Order(np.arange(5), np.array([0, 1, 2])), 4)
    '5 pairs in 3 groups (largest 3, 2 pairs alone); batches of 4 cut 1 of them'
    """
    sizes = order.sizes()
    alone = np.count_nonzero(sizes == 1)
    return (
        f"{len(order):,} pairs in {len(sizes):,} groups (largest {sizes.max(initial=0)}, {alone:,} pairs alone); "
        f"batches of {size} cut {count_cut_groups(order, size):,} of them"
    )


def hash_text(text: str) -> int:
    """60 bits of MD5: the first 15 hexadecimal digits, which fit the BIGINT of every engine.

    >>> hash_text("7|0")
    317837971778625153
    """
    return int(hashlib.md5(text.encode("utf-8"), usedforsecurity=False).hexdigest()[:15], 16)


def rank_rows(count: int, seed: int) -> np.ndarray:
    """(count,) int64: the random number of each row, its only one."""
    digests = bytearray()
    for row in range(count):
        digests += hashlib.md5(b"%d|%d" % (seed, row), usedforsecurity=False).digest()  # hash_text(f"{seed}|{row}") of each
    return (np.frombuffer(digests, ">u8")[::2] >> 4).astype(np.int64)  # the first 60 bits of 128


def epoch_seed(seed: int, epoch: int) -> int:
    """The seed of an epoch. The first epoch has the seed itself: its order is that of a file shuffled with this seed.

    Later seeds are hashed, not counted up: otherwise epoch 1 of seed 1 would be epoch 0 of seed 2.
    """
    return seed if epoch == 0 else hash_text(f"{seed}|epoch|{epoch}")


def order_original(side: Side, settings: OrderSettings, seed: int) -> Order:
    """The pairs as they came, each a group of its own."""
    return Order(np.arange(len(side)), np.arange(len(side)))


def order_uniformly(side: Side, settings: OrderSettings, seed: int) -> Order:
    """The pairs by their random numbers, each a group of its own."""
    return Order(shuffle_rows(len(side), seed), np.arange(len(side)))


def shuffle_rows(count: int, seed: int) -> np.ndarray:
    """(count,) int64: a random permutation, the same on every machine and in every engine."""
    return np.argsort(rank_rows(count, seed), kind="stable")


def order_by_queries(side: Side, settings: OrderSettings, seed: int) -> Order:
    """All pairs of one text together, such as the answers to a question; the groups, and the pairs in each, in random order."""
    rank = rank_rows(len(side), seed)
    first = np.full(len(side.texts), np.iinfo(np.int64).max)
    np.minimum.at(first, side.text, rank)  # a group stands where its first pair would
    rows = np.lexsort((rank, side.text, first[side.text]))
    return Order(rows, np.flatnonzero(np.diff(side.text[rows], prepend=-1)))
