"""The kind of a task, seen from its pairs, with the reason in words."""

from __future__ import annotations

from typing import get_args

import numpy as np

from pairtune.data.info import METRICS_OF_KIND
from pairtune.data.pairs import Kind, PairSet
from pairtune.data.profile import number_texts
from pairtune.errors import UserError

KINDS: tuple[Kind, ...] = get_args(Kind)
GRADED_RANKING = ("MAP", "MRR", "nDCG@10")
SEVERAL = 3  # pairs of a left text that make a list to rank
FEW_MIXED = 0.1  # the share of left texts with right and wrong answers below which lists are no rankings


def check_kind(name: str | None) -> Kind | None:
    """One of the kinds, or none."""
    if name is not None and name not in KINDS:
        raise UserError(f"unknown kind {name!r}; known: {', '.join(KINDS)}")
    return name


def see_kind(pairs: PairSet) -> tuple[Kind, str]:
    """The kind that the labels and the left texts speak for, and the reason.

    All positive: retrieval. Labels 0 and 1: ranking, where most left texts have both, or where most have a list of at least
    3 pairs and at least a tenth has both; else classification. More labels: ranking, where most left texts have at least 3
    pairs with different labels; else regression.
    """
    labels = np.unique(pairs.label)
    if labels.tolist() == [1.0]:
        return "retrieval", "every pair is positive"
    lists, mixed, graded, total = _count_lists(pairs)
    if labels.tolist() == [0.0, 1.0]:
        both = f"{mixed:,} of {total:,} left texts have both right and wrong answers"
        if mixed > total / 2:
            return "ranking", both
        if lists > total / 2 and mixed >= FEW_MIXED * total:
            return (
                "ranking",
                f"{lists:,} of {total:,} left texts have {SEVERAL} pairs or more, {mixed:,} have right and wrong ones",
            )
        return "classification", f"labels are 0 and 1, and only {both}"
    if graded > total / 2:
        return "ranking", f"{graded:,} of {total:,} left texts have {SEVERAL} pairs or more with different grades"
    return "regression", f"{len(labels):,} different labels, and only {graded:,} of {total:,} left texts have a list of grades"


def metrics_of(kind: Kind, pairs: PairSet) -> tuple[str, ...]:
    """What a task of this kind is measured by, the main metric first."""
    return GRADED_RANKING if kind == "ranking" and len(np.unique(pairs.label)) > 2 else METRICS_OF_KIND[kind]


def _count_lists(pairs: PairSet) -> tuple[int, int, int, int]:
    """Left texts with a list of pairs, with both kinds of answers, with a list of different labels; and all of them."""
    query = number_texts([str(name) for name in pairs.query])
    count = np.bincount(query)
    positive = pairs.positives()
    with_positive, with_other = (np.bincount(query[mask], minlength=len(count)) > 0 for mask in (positive, ~positive))
    low, high = np.ones(len(count)), np.zeros(len(count))
    np.minimum.at(low, query, pairs.label)
    np.maximum.at(high, query, pairs.label)
    lists = count >= SEVERAL
    return int(lists.sum()), int((with_positive & with_other).sum()), int((lists & (high > low)).sum()), len(count)
