"""What the batches of an order are like, before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pairtune.errors import UserError
from pairtune.ordering.nearest import unit_rows
from pairtune.ordering.order import Order, count_cut_groups, cut_batches

FALSE_NEGATIVE_MARGIN = 0.05  # cosine; a negative that beats the positive by less may well be a hard one


@dataclass(frozen=True)
class HardGroup:
    """rows: the pairs of a group. similarity: the mean cosine of its negatives, left i against right j, i ≠ j."""

    rows: tuple[int, ...]
    similarity: float


@dataclass(frozen=True)
class OrderHardness:
    """What a model would meet in an epoch of these batches; a negative is left i of a positive pair against right j ≠ i.

    negative_similarity: mean cosine of the negatives. top_similarity: of each anchor's most similar one, the mean.
    positive_similarity: mean cosine of the positive pairs. likely_false_negatives: the share of negatives, other than
    repeated texts, that beat the anchor's own right text by more than the margin. repeated_texts: pairs per batch, on
    average, of which the left or the right text already stands in that batch. hardest: the groups with the most similar
    negatives.
    """

    pairs: int
    batches: int
    groups: int
    largest_group: int
    alone: int
    groups_cut: int
    positive_similarity: float
    negative_similarity: float
    top_similarity: float
    likely_false_negatives: float
    repeated_texts: float
    hardest: tuple[HardGroup, ...]


def inspect_batches(
    order: Order,
    batch: int,
    left: np.ndarray,
    right: np.ndarray,
    left_text: np.ndarray,
    right_text: np.ndarray,
    positive: np.ndarray | None = None,
    *,
    margin: float = FALSE_NEGATIVE_MARGIN,
    examples: int = 5,
) -> OrderHardness:
    """Describe the batches of `batch` pairs that an order gives.

    left, right: (N, n) vectors. left_text, right_text: (N,) numbers, equal where texts are identical.
    positive: (N,) bool, the pairs that are anchors; all of them where it is None.
    """
    if not len(left) == len(right) == len(order):
        raise UserError(f"an order of {len(order)} pairs, but {len(left)} left and {len(right)} right vectors: give one per pair")
    left, right = unit_rows(left), unit_rows(right)
    anchor = np.ones(len(order), bool) if positive is None else np.asarray(positive, bool)
    parts = [_look_at_batch(rows, left, right, left_text, right_text, anchor, margin) for rows in cut_batches(order, batch)]
    total = np.sum(parts, axis=0) if parts else np.zeros(len(SUMS))
    found = dict(zip(SUMS, total.tolist(), strict=True))
    sizes = order.sizes()
    return OrderHardness(
        pairs=len(order),
        batches=len(parts),
        groups=len(sizes),
        largest_group=int(sizes.max(initial=0)),
        alone=int(np.count_nonzero(sizes == 1)),
        groups_cut=count_cut_groups(order, batch),
        positive_similarity=_share(found["positive sum"], found["anchors"]),
        negative_similarity=_share(found["negative sum"], found["negatives"]),
        top_similarity=_share(found["top sum"], found["accompanied"]),
        likely_false_negatives=_share(found["false negatives"], found["negatives"]),
        repeated_texts=_share(found["repeated"], len(parts)),
        hardest=find_hardest_groups(order, left, right, examples),
    )


SUMS = ("anchors", "accompanied", "positive sum", "negatives", "negative sum", "top sum", "false negatives", "repeated")


def _look_at_batch(
    rows: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    left_text: np.ndarray,
    right_text: np.ndarray,
    anchor: np.ndarray,
    margin: float,
) -> tuple[float, ...]:
    """The SUMS of one batch."""
    mine = anchor[rows]
    similarity = left[rows] @ right[rows].T  # (m, m)
    own = similarity.diagonal()
    negative = mine[:, None] & ~np.eye(len(rows), dtype=bool)
    identical = find_identical(left_text[rows], right_text[rows])
    false = find_false_negatives(similarity, identical, mine, margin)
    top = np.where(negative, similarity, -np.inf).max(axis=1)
    accompanied = negative.any(axis=1)
    repeated = np.tril(identical, -1).any(axis=1)
    return (
        mine.sum(),
        accompanied.sum(),
        own[mine].sum(),
        negative.sum(),
        similarity[negative].sum(),
        top[accompanied].sum(),
        false.sum(),
        repeated.sum(),
    )


def find_identical(left_text: np.ndarray, right_text: np.ndarray) -> np.ndarray:
    """(m, m) bool: pairs i and j have the same left or the same right text; both arguments are (m,) numbers of texts."""
    return (left_text[:, None] == left_text) | (right_text[:, None] == right_text)


def find_false_negatives(
    similarity: np.ndarray, identical: np.ndarray, positive: np.ndarray, margin: float = FALSE_NEGATIVE_MARGIN
) -> np.ndarray:
    """(m, m) bool: the negatives, other than repeated texts, that beat the anchor's own right text by more than the margin.

    similarity: (m, m) cosines. positive: (m,) bool, the pairs that are anchors.
    """
    return positive[:, None] & ~identical & (similarity > similarity.diagonal()[:, None] + margin)


def find_hardest_groups(order: Order, left: np.ndarray, right: np.ndarray, count: int) -> tuple[HardGroup, ...]:
    """The groups of two and more pairs whose negatives are the most similar; left, right: (N, n), rows of length 1."""
    sizes = order.sizes()
    found = []
    for start, size in zip(order.groups[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
        rows = order.rows[start : start + size]
        similarity = left[rows] @ right[rows].T
        found.append(HardGroup(tuple(rows.tolist()), float((similarity.sum() - similarity.trace()) / (size * (size - 1)))))
    return tuple(sorted(found, key=lambda group: -group.similarity)[:count])


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0
